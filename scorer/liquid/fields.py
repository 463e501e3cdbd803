"""What the tracers move through: the velocity of every cached frame, and which cells are liquid.

Velocities lie in an unnamed scratch file that is mapped: it vanishes with the process, however that ends.
Of the signed distance only its sign is used, so one bit a cell is kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorer.liquid.cache import Bake, Dims, read_velocity, regular
from scorer.liquid.helper import Helper
from scorer.liquid.manifest import Manifest
from world.reader import World

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

MAX_EXTENT = 1 << 25
"""Area plus edge lengths, in cells, of a liquid mesh that is voxelised; 512³ cells have a surface of 2^21.
What is larger was placed by a wrong scale and would fill the memory.
"""
_MAX_COORDINATE = 1 << 24


@dataclass(frozen=True, eq=False)
class Fields:
    """velocity : float32 (n, nx, ny, nz, 3), cells per unit of solver time, each component at its cell's low
    face. times : float64 (n,), solver time. bits : uint8 (n, ceil(nx·ny·nz / 8)), packed, 1 in liquid cells.
    """

    velocity: Floats
    times: Doubles
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, velocity: Floats, phi: ArrayLike, times: ArrayLike) -> Fields:
        """From arrays: signed distance ``phi`` (n, nx, ny, nz), negative in liquid."""
        bits = np.stack([wet_bits(one) for one in np.asarray(phi)])
        return cls(velocity, np.asarray(times, np.float64), bits)

    @property
    def frames(self) -> int:
        return len(self.velocity)

    @property
    def dims(self) -> Dims:
        nx, ny, nz = self.velocity.shape[1:4]
        return nx, ny, nz

    def wet(self, frame: int) -> Mask:
        """Which cells (nx, ny, nz) hold liquid."""
        nx, ny, nz = self.dims
        return np.unpackbits(self.bits[frame], count=nx * ny * nz).reshape(self.dims).view(np.bool_)


def wet_bits(phi: Floats) -> NDArray[np.uint8]:
    """Packed signs of a signed distance: 1 where it is below 0."""
    return np.packbits(phi.reshape(-1) < 0)


def read_fields(world: World, manifest: Manifest, bake: Bake) -> Fields:
    """Read velocities and voxelise the liquid's meshes, frame by frame. Raises ``ValueError``."""
    count = len(bake.numbers)
    for number in manifest.liquid_ids:
        if world.lifetime(number).stop > count:
            raise ValueError(f"{world.path}: liquid mesh extends past the cached timeline")
    # One row at a time: a bake that boasts of its size fails for want of data, not of memory.
    bits: list[NDArray[np.uint8]] = []
    dry = np.zeros(-(-bake.cells // 8), np.uint8)
    with tempfile.TemporaryFile(prefix="4dcb-liquid-") as scratch, Helper(bake.dims) as helper:
        phi = np.empty(bake.cells, np.float32)
        for frame in range(count):
            mesh = grid_mesh(world, manifest, bake.voxel, frame)
            if mesh is not None:
                helper.ask_surface(*mesh)
            if not bake.in_vdb:
                velocity_path = bake.velocity_path(frame)
                _keep(scratch, read_velocity(velocity_path, bake.dims), velocity_path, frame)
            if mesh is not None:
                helper.answer(phi, f"{world.path}: liquid mesh of frame {frame}")
                bits.append(wet_bits(phi))
            else:
                bits.append(dry)
            if bake.in_vdb:
                _keep(scratch, _from_vdb(helper, bake, frame), bake.velocity_path(frame), frame)
        scratch.flush()
        velocity = np.memmap(scratch, np.float32, "r", shape=(count, *bake.dims, 3))
    return Fields(velocity, np.array(bake.times), np.stack(bits))


def grid_mesh(world: World, manifest: Manifest, voxel: float, frame: int) -> tuple[Floats, Ints] | None:
    """The liquid's triangles at a frame, in cells, the centre of cell (i, j, k) at (i, j, k); None without.

    Raises ``ValueError`` for a mesh that cannot belong to the grid.
    """
    meshes = [world.object_mesh(number, frame) for number in manifest.liquid_ids]
    faces = _joined([faces for _, faces in meshes], [len(vertices) for vertices, _ in meshes])
    if not len(faces):
        return None
    vertices = np.concatenate([vertices for vertices, _ in meshes]).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        cells = (vertices - manifest.domain_min) / (voxel * manifest.metres_per_unit) - 0.5
        sound = np.abs(cells).max() < _MAX_COORDINATE and _extent(cells[faces]) < MAX_EXTENT
    if not sound:
        raise ValueError(
            f"{world.path}: liquid mesh of frame {frame} is far larger than the solver grid; "
            "check domain_min and metres_per_unit"
        )
    return cells.astype(np.float32), faces


def _joined(faces: Sequence[Ints], counts: Sequence[int]) -> Ints:
    starts = np.cumsum([0, *counts])[:-1]
    return np.concatenate([part + np.int32(start) for part, start in zip(faces, starts, strict=True)])


def _extent(corners: Doubles) -> float:
    """Area plus edge lengths of triangles (T, 3, 3)."""
    sides = corners - np.roll(corners, 1, axis=1)
    area = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1).sum() / 2
    return float(area + np.linalg.norm(sides, axis=2).sum())


def _from_vdb(helper: Helper, bake: Bake, frame: int) -> Floats:
    velocity = np.empty((*bake.dims, 3), np.float32)
    path = bake.velocity_path(frame)
    with regular(path):
        helper.ask_velocity(path)
    helper.answer(velocity, path)
    return velocity


def _keep(scratch: IO[bytes], velocity: Floats, path: Path, frame: int) -> None:
    if not np.isfinite(velocity).all():
        raise ValueError(f"{path}: frame {frame}: non-finite velocity")
    scratch.write(np.ascontiguousarray(velocity).data)
