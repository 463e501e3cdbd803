"""The solver's bake (Blender's Mantaflow): grid, times and velocities. Read as what it is, somebody else's
files: regular files only, sizes bounded, every number checked.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from scorer.liquid.manifest import Manifest
from world.validation.violation import reason

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Dims = tuple[int, int, int]

CONFIG_BYTES = 204
_CONFIG_END = b"C01\0"
_GRID, _STEP, _LOW, _HIGH = slice(1, 4), 4, slice(6, 9), slice(9, 12)
_MATRIX, _TIME = slice(21, 37), 49
HEADER_BYTES = 292
_GRID_MAGIC = b"MNT3"
_VECTOR_BYTES = 12
MAX_CELLS = 1 << 28
"""Cells of the largest grid that is read: 645³."""


@dataclass(frozen=True)
class Config:
    """One ``config_NNNN.uni``. dims : nx, ny, nz. voxel : edge of a cell in solver units.
    time : accumulated solver time.
    """

    dims: Dims
    voxel: float
    time: float


@dataclass(frozen=True)
class Bake:
    """The covered part of a bake. Video frame k is cache frame ``numbers[k]``.

    dims, voxel : as in the first frame's ``Config``. times : solver time of each frame, ascending.
    in_vdb : whether velocities lie in VDB files, decided by the first frame.
    """

    path: Path
    numbers: range
    dims: Dims
    voxel: float
    times: tuple[float, ...]
    in_vdb: bool

    @property
    def cells(self) -> int:
        return self.dims[0] * self.dims[1] * self.dims[2]

    def config_path(self, frame: int) -> Path:
        return _config_path(self.path, self.numbers[frame])

    def velocity_path(self, frame: int) -> Path:
        """The file that holds the velocity of a video frame."""
        if self.in_vdb:
            return _vdb_path(self.path, self.numbers[frame])
        return self.path / "data" / f"vel_{self.numbers[frame]:04d}.uni"


def open_bake(manifest: Manifest, world: Path, frames: int) -> Bake:
    """Read all configurations. frames : of the video. Raises ``ValueError`` with the reason."""
    first, last = manifest.first, manifest.last
    if first == 0 and not _config_path(manifest.cache, 0).exists():
        first, last = 1, last + 1
    numbers = range(first, last + 1)
    if len(numbers) > frames:
        raise ValueError(f"{world}: {len(numbers)} cache frames for {frames} video frames")
    configs = [read_config(_config_path(manifest.cache, number)) for number in numbers]
    start = configs[0]
    if any(config.dims != start.dims or not np.isclose(config.voxel, start.voxel) for config in configs[1:]):
        raise ValueError(f"{world}: moving or resized solver grid")
    times = tuple(config.time for config in configs)
    # Written so that a NaN is refused as well.
    if not all(later > earlier for earlier, later in pairwise(times)):
        raise ValueError(f"{world}: cache times must increase")
    in_vdb = _vdb_path(manifest.cache, first).exists()
    return Bake(manifest.cache, numbers, start.dims, start.voxel, times, in_vdb)


def read_config(path: Path) -> Config:
    """Read ``config_NNNN.uni``: a gzip stream of 51 little-endian words. Raises ``ValueError``."""
    with regular(path) as stream:
        try:
            data = gzip.GzipFile(fileobj=stream).read(CONFIG_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            data = b""
    wrong = ValueError(f"{path}: unsupported Mantaflow configuration")
    if len(data) != CONFIG_BYTES or not data.endswith(_CONFIG_END):
        raise wrong
    whole, real = np.frombuffer(data, "<i4"), np.frombuffer(data, "<f4").astype(np.float64)
    x, y, z = (int(n) for n in whole[_GRID])
    # Stored transposed: its rows are the columns of the object's matrix, whose lengths are its scale.
    scale = np.linalg.norm(real[_MATRIX].reshape(4, 4)[:3, :3], axis=1)
    voxel = float(real[_STEP] * np.max((real[_HIGH] - real[_LOW]) * scale))
    if min(x, y, z) < 1 or x * y * z > MAX_CELLS or not (np.isfinite(voxel) and voxel > 0):
        raise wrong
    return Config((x, y, z), voxel, float(real[_TIME]))


def read_velocity(path: Path, dims: Dims) -> Floats:
    """Read ``vel_NNNN.uni``: float32 (nx, ny, nz, 3), a view of what is stored with z slowest.

    Raises ``ValueError``.
    """
    nx, ny, nz = dims
    size = _VECTOR_BYTES * nx * ny * nz
    with regular(path) as stream:
        unpacked = gzip.GzipFile(fileobj=stream)
        header = _read(unpacked, HEADER_BYTES, path)
        if not header.startswith(_GRID_MAGIC):
            raise ValueError(f"{path}: expected MNT3 grid")
        words = np.frombuffer(header[4:28].ljust(24, b"\0"), "<i4")
        if (*words[:3], words[5]) != (nx, ny, nz, _VECTOR_BYTES):
            raise ValueError(f"{path}: unexpected grid dimensions or element size")
        data = _read(unpacked, size, path)
    if len(data) != size:
        raise ValueError(f"{path}: truncated grid")
    return np.frombuffer(data, "<f4").reshape(nz, ny, nx, 3).transpose(2, 1, 0, 3)


def _config_path(cache: Path, number: int) -> Path:
    return cache / "config" / f"config_{number:04d}.uni"


def _vdb_path(cache: Path, number: int) -> Path:
    return cache / "data" / f"fluid_data_{number:04d}.vdb"


def _read(stream: gzip.GzipFile, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except EOFError:
        raise ValueError(f"{path}: truncated grid") from None
    except gzip.BadGzipFile:
        raise ValueError(f"{path}: expected MNT3 grid") from None
    except zlib.error as error:
        raise ValueError(f"{path}: damaged grid: {error}") from None


@contextmanager
def regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file; a pipe by that name must not block us. Raises ``ValueError``."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing") from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's failing
        raise ValueError(f"{path}: cannot be read: {reason(error)}") from error
    try:
        # Before Python looks: of a directory it would only say a number.
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{path}: is not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(handle)
