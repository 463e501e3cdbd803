"""The three trees that are shown, and the only way to open a file in them: step by step, no link followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.errors import UserError
from contract.names import CASES, DATA, RUNS

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a pipe of that name must not block us for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LONGEST_NAME = 255
Root = Path | int
"""A root's path, or the descriptor of a directory that was opened below one."""


class Absent(Exception):
    """Nothing that may be shown lies at this place; the message is one line for people."""


@dataclass(frozen=True)
class Trees:
    """The roots, resolved once: what they are is the user's own choice, what lies below is not."""

    cases: Path
    data: Path
    runs: Path

    @classmethod
    def of(cls, cases: Path, data: Path, runs: Path) -> Trees:
        """Raises ``UserError`` when a root is no directory."""
        roots = []
        for name, path in ((CASES, cases), (DATA, data), (RUNS, runs)):
            if not path.is_dir():
                raise UserError("no such directory", where=path, next_step=f"give one with --{name}")
            roots.append(path.resolve())
        return cls(*roots)

    def root(self, name: str) -> Path:
        """The root called ``cases``, ``data`` or ``runs``. Raises ``Absent``."""
        found = {CASES: self.cases, DATA: self.data, RUNS: self.runs}.get(name)
        if found is None:
            raise Absent(f"there is no tree {name!r}")
        return found


def checked(parts: Sequence[str]) -> tuple[str, ...]:
    """Levels of a path. Raises ``Absent`` for anything that could lead elsewhere."""
    for part in parts:
        usable = part not in ("", ".", "..") and "/" not in part and "\0" not in part
        if not usable or len(os.fsencode(part)) > LONGEST_NAME:
            raise Absent("not a path below this tree")
    return tuple(parts)


@contextmanager
def directory(root: Root, parts: Sequence[str]) -> Iterator[int]:
    """Descriptor of a directory below ``root``. Raises ``Absent`` where a level is missing or a link."""
    handle = os.dup(root) if isinstance(root, int) else os.open(root, _ROOT)
    try:
        for part in checked(parts):
            try:
                below = os.open(part, _DIRECTORY, dir_fd=handle)
            except (OSError, ValueError) as error:
                raise Absent(f"{part}: no such directory here") from error
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_file(root: Root, parts: Sequence[str]) -> int:
    """Descriptor of a regular file below ``root``; the caller closes it. Raises ``Absent``."""
    *above, name = checked(parts)
    with directory(root, above) as handle:
        try:
            file = os.open(name, _FILE, dir_fd=handle)
        except (OSError, ValueError) as error:
            raise Absent(f"{name}: no such file here") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Absent(f"{name}: not a regular file")
    return file


def read_file(root: Root, parts: Sequence[str], limit: int) -> bytes:
    """A whole small file. Raises ``Absent`` when it is missing, ``ValueError`` when larger than ``limit``."""
    handle = open_file(root, parts)
    with os.fdopen(handle, "rb") as stream:
        size = os.fstat(handle).st_size
        if size > limit:
            raise ValueError(f"{parts[-1]} holds {size} bytes; at most {limit} are read")
        return stream.read(limit + 1)[:limit]


@dataclass(frozen=True)
class Item:
    """An entry of a directory that may be shown."""

    name: str
    folder: bool
    size: int
    mtime_ns: int


def listing(root: Path, parts: Sequence[str], most: int = 10_000) -> list[Item]:
    """Directories and regular files of a directory, sorted by name; links and special files are left out.

    A directory that is missing or cannot be read is empty. At most ``most`` entries are looked at.
    """
    found: list[Item] = []
    try:
        with directory(root, parts) as handle, os.scandir(handle) as entries:
            for count, entry in enumerate(entries):
                if count >= most:
                    break
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                    folder = stat.S_ISDIR(status.st_mode)
                    found.append(Item(entry.name, folder, status.st_size, status.st_mtime_ns))
    except (Absent, OSError):
        return []
    return sorted(found, key=lambda item: item.name)


def walk(root: Path, parts: Sequence[str], depth: int = 8, most: int = 2_000) -> list[tuple[str, int]]:
    """Path below the directory, with ``/``, and size of every regular file; bounded in depth and number."""
    found: list[tuple[str, int]] = []
    pending: list[tuple[str, ...]] = [()]
    while pending and len(found) < most:
        below = pending.pop()
        for item in listing(root, (*parts, *below)):
            path = (*below, item.name)
            if item.folder and len(path) < depth:
                pending.append(path)
            elif not item.folder and len(found) < most:
                found.append(("/".join(path), item.size))
    return sorted(found)
