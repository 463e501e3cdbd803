"""Samples of all materials of a world at one frame, and where they go.

Source: protocol 4dcb-1, material sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.sampling.following import track_columns
from scorer.geometry.sampling.materials import MovedMaterial
from scorer.geometry.sampling.shells import shell_samples
from scorer.geometry.sampling.tets import tet_samples
from scorer.geometry.sampling.topology import Shells
from scorer.geometry.sampling.voxels import Box, thin

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Block(Protocol):
    """Samples of one material. points : (S, 3), where they were made."""

    @property
    def points(self) -> NDArray[np.floating]: ...
    def subset(self, rows: Longs) -> Block: ...
    def track(self, start: int, stop: int) -> Floats: ...


@dataclass(frozen=True, eq=False)
class ColumnSamples:
    """Samples that are weighted sums of a few columns: particles (one column) and tetrahedra (four).

    points : (S, 3). columns : int64 (S, k). weights : float32 (S, k).
    """

    material: MovedMaterial
    points: NDArray[np.floating]
    columns: Longs
    weights: Floats

    def subset(self, rows: Longs) -> ColumnSamples:
        return ColumnSamples(self.material, self.points[rows], self.columns[rows], self.weights[rows])

    def track(self, start: int, stop: int) -> Floats:
        return track_columns(self.material, self.columns, self.weights, start, stop)


@dataclass(frozen=True, eq=False)
class FrameSamples:
    """Samples made at one frame, in the order of the materials.

    frames : F of the world. positions : float32 (S, 3), where they were made, in reference radii.
    """

    frames: int
    blocks: tuple[Block, ...]
    positions: Floats

    def __len__(self) -> int:
        return len(self.positions)

    def subset(self, rows: Longs) -> FrameSamples:
        """The samples ``rows`` int64 (n,), ascending."""
        kept, start = [], 0
        for block in self.blocks:
            stop = start + len(block.points)
            low, high = np.searchsorted(rows, [start, stop])
            if low < high:
                kept.append(block.subset(rows[low:high] - start))
            start = stop
        return FrameSamples(self.frames, tuple(kept), self.positions[rows])

    def track(self, start: int, stop: int) -> Floats:
        """Positions float32 (stop − start, S, 3) at the frames ``start`` … ``stop − 1``, from the weights
        even at the frame of birth; NaN where a column of non-zero weight is not alive.
        """
        if not self.blocks:
            return np.zeros((stop - start, 0, 3), np.float32)
        return np.concatenate([block.track(start, stop) for block in self.blocks], axis=1)


def frame_samples(
    materials: Sequence[MovedMaterial],
    frame: int,
    h: float,
    rng: np.random.Generator,
    columns: Sequence[Mask] | None = None,
) -> FrameSamples:
    """Sample every material at ``frame`` with voxel edge ``h``, one sample a voxel over all of them.

    columns : for each material bool (N,), the columns that may take part; None for all that are finite.
    """
    blocks: list[Block] = []
    for number, material in enumerate(materials):
        allowed = None if columns is None else columns[number]
        block = _candidates(material, frame, h, rng, allowed)
        if block is not None and len(block.points):
            blocks.append(block)
    frames = materials[0].frames if materials else 0
    if not blocks:
        return FrameSamples(frames, (), np.zeros((0, 3), np.float32))
    points = np.concatenate([block.points for block in blocks], dtype=np.float64)
    with np.errstate(over="ignore"):
        samples = FrameSamples(frames, tuple(blocks), points.astype(np.float32))
    kept = np.sort(thin(points, h))
    return samples if len(kept) == len(points) else samples.subset(kept)


def _candidates(
    material: MovedMaterial, frame: int, h: float, rng: np.random.Generator, allowed: Mask | None
) -> Block | None:
    """Samples of one material, or None when it has none."""
    picked = None if allowed is None else np.flatnonzero(allowed)
    if picked is not None and not len(picked):
        return None
    found = material.at(frame, picked)
    finite = np.isfinite(found).all(axis=1)
    if not finite.any():
        return None
    columns = np.flatnonzero(finite) if picked is None else picked[finite]
    found = found[finite]
    cells = material.tets if material.tets is not None else material.faces
    if cells is None:
        ones = np.ones((len(columns), 1), np.float32)
        return ColumnSamples(material, found, columns[:, None], ones)
    alive = np.zeros(material.columns, np.bool_)
    alive[columns] = True
    cells = cells if alive.all() else cells[alive[cells].all(axis=1)]
    if not len(cells):
        return None
    positions = np.zeros((material.columns, 3))
    positions[columns] = found
    if material.tets is not None:
        box = Box.around(found.min(axis=0), found.max(axis=0), h)
        return ColumnSamples(material, *tet_samples(positions, cells, box, h, rng))
    shells = material.shells if alive.all() else Shells.of(cells, material.columns)
    return shell_samples(material, shells, positions, h, rng)
