"""Where the published data comes from: the hub, or a copy of its repositories on this machine."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import hub_files
from fetching import Arrived, RefusedError, fetch
from hub_files import DATASET, Published

from contract.errors import UserError
from world.packed.unpack import file_digest

SUMS = "SHA256SUMS"
"""Optional file of a local copy, in the form that ``sha256sum`` writes and checks."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Source(Protocol):
    """What both have in common."""

    keeps: bool
    """Whether what :meth:`bring` returns belongs to somebody else and must stay."""

    def revision(self, repo: str) -> str:
        """The commit that is read; empty where it is not known."""

    def files(self, repo: str) -> dict[str, Published]:
        """Every file of a repository by path.

        Raises ``RefusedError``, ``UnreachableError``, ``UserError``.
        """

    def bring(self, repo: str, published: Published, part: Path, arrived: Arrived) -> Path:
        """Where the file lies on this machine, complete and checked as far as its hash is known.

        Raises ``RefusedError``, ``UnreachableError``, ``OSError``.
        """


class HubSource:
    """The Hugging Face hub, each repository at one commit."""

    keeps = False

    def __init__(self, commits: dict[str, str], say: Callable[[str], None]) -> None:
        self._commits = commits
        self._say = say

    def revision(self, repo: str) -> str:
        return self._commits[repo]

    def files(self, repo: str) -> dict[str, Published]:
        return hub_files.files_of(repo, self._commits[repo])

    def bring(self, repo: str, published: Published, part: Path, arrived: Arrived) -> Path:
        """Fetch into ``part``, which may hold a beginning. What arrives damaged is fetched once more."""
        locate = partial(hub_files.resolve, repo, self._commits[repo], published.path, kind=DATASET)
        for attempt in range(2):
            fetch(locate, part, arrived)
            fault = content_fault(part, published)
            if not fault:
                with part.open("rb") as stream:
                    os.fsync(stream.fileno())
                return part
            part.unlink()
            if not attempt:
                self._say(f"{repo}/{published.path}: {fault}; downloading it again")
        raise RefusedError(f"{repo}/{published.path}: {fault}, twice; nothing was kept")


class LocalSource:
    """Copies of the repositories below a directory, as ``hf download`` or Git leave them."""

    keeps = True

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise UserError("no such directory", where=directory, expected="a copy of the data sets")
        self._directory = directory

    def revision(self, repo: str) -> str:
        place = self._place(repo)
        return place.name if place.parent.name == "snapshots" else ""

    def files(self, repo: str) -> dict[str, Published]:
        place = self._place(repo)
        sums = dict(_sums(place / SUMS))
        found = {}
        for path in sorted(_walk(place)):
            name = path.relative_to(place).as_posix()
            digest = sums.get(name) or _noted(place, name) or _blob(path)
            found[name] = Published(name, path.stat().st_size, digest)
        return found

    def bring(self, repo: str, published: Published, part: Path, arrived: Arrived) -> Path:
        """The file itself; ``part`` is not touched."""
        path = self._place(repo) / published.path
        if not path.is_file():
            raise RefusedError(f"{path} is missing")
        fault = content_fault(path, published)
        if fault:
            raise RefusedError(f"{path}: {fault}; copy it again")
        arrived(published.size or 0, published.size)
        return path

    def _place(self, repo: str) -> Path:
        owner, name = repo.split("/")
        places = [self._directory / name, self._directory / owner / name]
        cache = self._directory / f"datasets--{owner}--{name}"
        reference = cache / "refs/main"
        if reference.is_file():
            places.append(cache / "snapshots" / reference.read_text(encoding="utf-8").strip())
        places += sorted(cache.glob("snapshots/*"))
        if self._directory.name == name:
            places.append(self._directory)
        for place in places:
            if place.is_dir():
                return place
        raise UserError(
            f"holds no copy of {repo}",
            where=self._directory,
            expected=f"{name}/ inside it",
            next_step=f"hf download {repo} --repo-type dataset --local-dir {self._directory / name}",
        )


def content_fault(path: Path, published: Published) -> str:
    """What is wrong with a file, or nothing."""
    size = path.stat().st_size
    if published.size is not None and size != published.size:
        return f"it has {size} bytes, expected {published.size}"
    if published.sha256:
        digest = file_digest(path)
        if digest != published.sha256:
            return f"SHA-256 is {digest[:16]}…, expected {published.sha256[:16]}…"
    elif published.git and git_name(path) != published.git:
        return "its content is not the one of the revision"
    return ""


def git_name(path: Path) -> str:
    """Git's name of a file's content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _walk(place: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(place):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and path != place / SUMS and path.is_file():
                yield path


def _sums(path: Path) -> Iterator[tuple[str, str]]:
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            digest, _, name = line.partition(" ")
            if _SHA256.fullmatch(digest.lower()):
                yield name.lstrip(" *").removeprefix("./"), digest.lower()


def _noted(place: Path, name: str) -> str:
    """The hash that ``hf download --local-dir`` notes beside the files."""
    note = place / ".cache/huggingface/download" / f"{name}.metadata"
    try:
        lines = note.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    return lines[1] if len(lines) > 1 and _SHA256.fullmatch(lines[1]) else ""


def _blob(path: Path) -> str:
    """The hash that a file in the hub's cache is named by."""
    name = path.readlink().name if path.is_symlink() else ""
    return name if _SHA256.fullmatch(name) else ""
