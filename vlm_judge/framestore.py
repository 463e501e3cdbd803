"""Frames on disk, found by what the video holds, never by its name: two systems cannot get each other's."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.record import dumps
from vlm_judge.decoding import VERSION, Sampler, decode
from vlm_judge.gate import Gate
from world.video import VideoError

_META = "frames.json"
_CHUNK = 1 << 20
SHORT = 16
"""Hexadecimal digits of a digest in records: enough to tell frames apart."""


@dataclass(frozen=True)
class Frames:
    """Frames of one video. video : SHA-256 of the file. digests : SHA-256 of each JPEG, in order."""

    video: str
    total: int
    indices: list[int]
    digests: list[str]
    gate: Gate
    folder: Path

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def short(self) -> list[str]:
        return [digest[:SHORT] for digest in self.digests]

    def jpegs(self) -> list[bytes]:
        """The pictures. Raises ``OSError`` when they are gone."""
        return [_file(self.folder, index).read_bytes() for index in range(len(self))]


class FrameStore:
    """Decodes a video when its frames are not there yet. Safe with several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._busy: dict[tuple[Path, Sampler], threading.Lock] = {}
        self._known: dict[tuple[Path, Sampler], Frames | VideoError] = {}
        self.decoded = 0

    def frames(self, path: Path, sampler: Sampler) -> Frames:
        """Frames of ``path``, decoded at most once. Raises ``VideoError`` where the video is unusable, and
        ``OSError`` where it cannot be read.
        """
        with self._lock:
            busy = self._busy.setdefault((path, sampler), threading.Lock())
        with busy:
            found = self._known.get((path, sampler))
            if found is None:
                try:
                    found = self._frames(path, sampler)
                except VideoError as error:
                    found = error
                self._known[path, sampler] = found
        if isinstance(found, VideoError):
            raise found
        return found

    def _frames(self, path: Path, sampler: Sampler) -> Frames:
        video = sha256(path)
        name = hashlib.sha256(
            json.dumps([VERSION, video, sampler.as_json()], sort_keys=True).encode()
        ).hexdigest()
        folder = self._folder / name[:2] / name
        stored = _stored(folder, video)
        if stored is not None:
            return stored
        with self._lock:
            self.decoded += 1
        made = decode(path, sampler)
        digests = [hashlib.sha256(jpeg).hexdigest() for jpeg in made.jpegs]
        meta = {"total": made.total, "indices": made.indices, "digests": digests, "edge": made.gate.edge,
                "top": made.gate.top, "gated": made.gate.gated}  # fmt: skip
        _put(folder, meta, made.jpegs)
        return Frames(video, made.total, made.indices, digests, made.gate, folder)


def sha256(path: Path) -> str:
    """Digest of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _file(folder: Path, index: int) -> Path:
    return folder / f"f{index:05d}.jpg"


def _stored(folder: Path, video: str) -> Frames | None:
    """What lies there, if it is whole and unchanged."""
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        gate = Gate(meta["edge"], meta["top"], meta["gated"])
        found = Frames(video, meta["total"], meta["indices"], meta["digests"], gate, folder)
        whole = all(sha256(_file(folder, i)) == digest for i, digest in enumerate(found.digests))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if whole else None


def _put(folder: Path, meta: dict[str, Any], jpegs: list[bytes]) -> None:
    """Write beside the destination and rename: a folder is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for index, jpeg in enumerate(jpegs):
            _file(draft, index).write_bytes(jpeg)
        (draft / _META).write_text(dumps(meta), encoding="utf-8")
        # Damaged ones, and those of a process that was just as quick, make way: the content is the same.
        with suppress(OSError):
            shutil.rmtree(folder)
        with suppress(OSError):
            draft.rename(folder)
        if not (folder / _META).is_file():
            raise OSError(f"{folder} cannot be written")
    finally:
        shutil.rmtree(draft, ignore_errors=True)
