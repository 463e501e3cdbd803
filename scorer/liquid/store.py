"""Where extracted tracers are kept: outside every delivery, under the content of what they came from.

``$FOURDCB_CACHE_DIR`` where it is set, else the user's cache directory, else the temporary one. An entry is
written beside its place and renamed, by one process at a time; the least recently used ones go when all
together become too large.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contract.names import ARCHIVE_SUFFIX, IDS_KEY, MESHES, POS_KEY, SOLVER, SOLVER_MANIFEST
from contract.record import replacing
from scorer.cachedir import private_directory
from scorer.digest import digest
from scorer.liquid.cache import Bake
from scorer.liquid.manifest import Manifest
from world.meshes import mesh_id
from world.reader import World

VARIABLE = "FOURDCB_CACHE_DIR"
KEEP_BYTES = 8 << 30
_METHOD = "4dcb-1 tracers 1"
"""Part of every entry's name; changes when the extraction's values do."""


class CacheUnavailable(RuntimeError):
    """The directory named for the cache cannot be used: the machine's failing, not a submission's."""

    infrastructure = True


def key(world: World, manifest: Manifest, bake: Bake) -> str:
    """Digest of everything that the tracers depend on: manifest, covered part of the bake, liquid meshes and
    frame count.
    """
    frames = range(len(bake.numbers))
    files = [world.path / SOLVER / SOLVER_MANIFEST]
    files += [path(frame) for frame in frames for path in (bake.config_path, bake.velocity_path)]
    meshes = {mesh_id(path.name): path for path in (world.path / MESHES).iterdir()}
    files += [meshes[number] for number in manifest.liquid_ids]
    parts = [_METHOD, world.frames, manifest.liquid_ids, [digest(file) for file in files]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def kept(name: str, sound: Callable[[Path], bool], build: Callable[[Path], None]) -> Path:
    """The entry ``name``; built at its place by ``build(path)``, which must be atomic, unless there is a
    ``sound`` one. Two processes that want the same entry build it once.
    """
    directory = cache_directory()
    path = directory / f"{name}{ARCHIVE_SUFFIX}"
    if not _usable(path, sound):
        with _locked(path.with_suffix(".lock")):
            if not _usable(path, sound):
                build(path)
                _prune(directory, path)
    return path


def write_tracers(
    path: Path, shape: tuple[int, int], frames: Iterable[NDArray[np.float32]], ids: Iterable[int]
) -> None:
    """Write ``pos`` float32 (F, N, 3) and ``ids`` uint16, a frame at a time.

    shape : (F, N). frames : arrays (n, 3), n ≤ N growing from frame to frame, for the first of the F frames;
    everything else is NaN.
    """
    count, columns = shape
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
        with archive.open(zipfile.ZipInfo(f"{POS_KEY}.npy"), "w", force_zip64=True) as member:
            header = {"descr": "<f4", "fortran_order": False, "shape": (count, columns, 3)}
            np.lib.format.write_array_header_1_0(member, header)
            written = 0
            for points in frames:
                row = np.full((columns, 3), np.nan, "<f4")
                row[: len(points)] = points
                member.write(row.data)
                written += 1
            absent = np.full((columns, 3), np.nan, "<f4")
            for _ in range(written, count):
                member.write(absent.data)
        with archive.open(zipfile.ZipInfo(f"{IDS_KEY}.npy"), "w") as member:
            np.lib.format.write_array(member, np.array(sorted(ids), np.uint16), allow_pickle=False)


def cache_directory() -> Path:
    """The directory of the entries, which exists and can be written. Raises ``CacheUnavailable``."""
    named = os.environ.get(VARIABLE)
    if named:
        chosen = Path(named) / "tracers"
        try:
            chosen.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CacheUnavailable(f"{chosen}: {error.strerror or error}; set {VARIABLE}") from error
        if not os.access(chosen, os.W_OK | os.X_OK):
            raise CacheUnavailable(f"{chosen}: cannot be written; set {VARIABLE}")
        return chosen
    return private_directory("tracers")


def _usable(path: Path, sound: Callable[[Path], bool]) -> bool:
    if not path.is_file() or not sound(path):
        return False
    with suppress(OSError):
        os.utime(path)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file, which goes at the end. Where the file system knows no locks, two processes may build
    the same entry, and the later one's replaces the earlier one's equal.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def _prune(directory: Path, newest: Path) -> None:
    """Remove the least recently used entries beyond ``KEEP_BYTES``, never ``newest``."""
    entries = []
    for path in directory.glob(f"*{ARCHIVE_SUFFIX}"):
        with suppress(OSError):
            found = path.stat()
            entries.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= KEEP_BYTES:
            return
        if path != newest:
            with suppress(OSError):
                path.unlink()
            total -= size
