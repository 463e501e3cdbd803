"""How the material near a surface point moves: for objects whose mesh changes from frame to frame.

Distances come from a search tree in float64. (The reference multiplies float32 matrices, which loses small
gaps far from the origin: spec note W1; and it draws its probe unseeded: W2. The draws here are seeded.)
Source: protocol 4dcb-1, analytic flow and analytic tracks.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from scorer.geometry.raster_cpu import default_threads

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

REACH = 3.0
"""Material farther from a point than this many typical distances says nothing about it."""
PROBE = 4096
"""Points from which the typical distance is read."""
_CELL = 0.25
"""Edge of the voxels that move as one, in typical distances."""
_NEAREST = 1e-9
"""Least typical distance, metres."""
_GRID_LIMIT = 1 << 20
"""Cells a side of the grid that sorts columns; three such indices fit one int64."""
_FAR = float(1 << 62)
_PART = 1 << 14
"""Voxels that a thread works on at a time."""


class Archive(Protocol):
    """Anything like ``world.reader.Material``."""

    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def pos(self) -> Floats: ...


class Columns:
    """The material columns that display one object: those of every archive that lists it, in order."""

    def __init__(self, materials: Iterable[Archive], number: int) -> None:
        self._materials = [material for material in materials if number in material.ids]

    def at(self, frame: int) -> Floats:
        """Positions float32 (N, 3), world metres, NaN while not alive."""
        found = [material.pos[frame] for material in self._materials]
        return np.concatenate(found) if found else np.zeros((0, 3), np.float32)

    def between(self, frame: int, later: int) -> tuple[Floats, Floats]:
        """Positions (M, 3) at both frames of the columns that are alive at both."""
        now, then = self.at(frame), self.at(later)
        alive = np.isfinite(now).all(axis=1) & np.isfinite(then).all(axis=1)
        return now[alive], then[alive]


def carried(points: Floats, now: Floats, later: Floats, rng: np.random.Generator) -> tuple[Floats, Mask]:
    """Where surface points (P, 3) go when columns move from ``now`` to ``later`` (M, 3): float32 (P, 3), and
    which points some column reached, bool (P,); the others stay where they are.

    Points in a voxel move as one: by the mean displacement, with Gaussian weights, of the columns within
    reach of the voxel's mean point.
    """
    usable = np.isfinite(points).all(axis=1)
    if len(now) < 2 or not usable.any():
        return points, np.zeros(len(points), np.bool_)
    kept = points if usable.all() else points[usable]
    typical = _typical_distance(kept, now, rng)
    voxel, means = _voxels(kept, _CELL * typical)
    step, weight = displacements(means, now, later, typical)
    moved, reached = points.copy(), np.zeros(len(points), np.bool_)
    with np.errstate(over="ignore"):
        moved[usable] = kept + step.astype(np.float32)[voxel]
    reached[usable] = weight[voxel] > 0
    return moved, reached


def displacements(at: Doubles, now: Floats, later: Floats, typical: float) -> tuple[Doubles, Doubles]:
    """Displacement (V, 3) at each point of ``at`` (V, 3), and the sum of weights (V,); both 0 out of reach.

    Σ w·(later − now) / max(Σ w, 1e-12) over the columns at a distance d ≤ 3·typical, w = exp(−½(d/typical)²).
    """
    columns = now.astype(np.float64)
    steps = later.astype(np.float64) - columns
    low = columns.min(axis=0)
    # A hair more than the reach, so that rounding cannot move a column out of the 27 cells that are searched.
    edge = max(REACH * typical * (1 + 1e-9), float((columns.max(axis=0) - low).max()) / _GRID_LIMIT)
    cells = np.floor((columns - low) / edge).astype(np.int64) + 1
    sides = cells.max(axis=0) + 2
    keys = (cells[:, 2] * sides[1] + cells[:, 1]) * sides[0] + cells[:, 0]
    order = np.argsort(keys, kind="stable")
    out = np.zeros((len(at), 4))
    columns, steps, keys = columns[order], steps[order], keys[order]

    def part(start: int) -> None:
        rows = slice(start, start + _PART)
        _gather(at[rows], columns, steps, keys, sides, low, edge, typical, out[rows])

    starts = range(0, len(at), _PART)
    threads = min(default_threads(), len(starts))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, starts))
    else:
        for start in starts:
            part(start)
    return out[:, :3] / np.maximum(out[:, 3:], 1e-12), out[:, 3]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gather(at, columns, steps, keys, sides, low, edge, typical, out):  # type: ignore[no-untyped-def]
    """Sums of w·step and of w for each point; columns sorted by the key of their cell."""
    reach = REACH * typical
    for v in range(at.shape[0]):
        x = np.floor((at[v, 0] - low[0]) / edge) + 1
        y = np.floor((at[v, 1] - low[1]) / edge) + 1
        z = np.floor((at[v, 2] - low[2]) / edge) + 1
        if not (0 <= x < sides[0] and 0 <= y < sides[1] and 0 <= z < sides[2]):
            continue
        column, row, layer = int(x), int(y), int(z)
        left, right = max(column - 1, 0), min(column + 1, sides[0] - 1)
        for k in range(max(layer - 1, 0), min(layer + 2, sides[2])):
            for j in range(max(row - 1, 0), min(row + 2, sides[1])):
                base = (k * sides[1] + j) * sides[0]
                m = np.searchsorted(keys, base + left)
                while m < keys.shape[0] and keys[m] <= base + right:
                    dx, dy, dz = (
                        at[v, 0] - columns[m, 0],
                        at[v, 1] - columns[m, 1],
                        at[v, 2] - columns[m, 2],
                    )
                    distance = np.sqrt(dx * dx + dy * dy + dz * dz)
                    if distance <= reach:
                        ratio = distance / typical
                        w = np.exp(-0.5 * ratio * ratio)
                        out[v, 0] += w * steps[m, 0]
                        out[v, 1] += w * steps[m, 1]
                        out[v, 2] += w * steps[m, 2]
                        out[v, 3] += w
                    m += 1


def nearest_columns(points: Floats, columns: Floats) -> tuple[Doubles, Longs]:
    """Distance float64 (P,) of each point to its nearest column, and that column's row; of equal columns the
    first.
    """
    different, first = np.unique(columns, axis=0, return_index=True)
    distance, index = cKDTree(different, balanced_tree=False).query(points)
    return distance, first[index].astype(np.int64)


def _typical_distance(points: Floats, now: Floats, rng: np.random.Generator) -> float:
    """Lower median of the distances of points, drawn with replacement, to their nearest column."""
    probe = points[rng.integers(0, len(points), min(len(points), PROBE))]
    distance, _ = cKDTree(now, balanced_tree=False).query(probe)
    middle = (len(distance) - 1) // 2
    return max(float(np.partition(distance, middle)[middle]), _NEAREST)


def _voxels(points: Floats, edge: float) -> tuple[Longs, Doubles]:
    """The voxel of each point (P,), and the mean point (V, 3) of each occupied voxel."""
    with np.errstate(over="ignore"):
        cells = np.floor(points / np.float32(edge)).astype(np.float64)
    voxel = _numbered(np.clip(cells, -_FAR, _FAR).astype(np.int64))
    count = np.bincount(voxel)
    sums = [np.bincount(voxel, weights=points[:, axis]) for axis in range(3)]
    means = np.stack(sums, axis=1) / count[:, None]
    # The mean is a float32 to the protocol.
    return voxel, means.astype(np.float32).astype(np.float64)


def _numbered(cells: Longs) -> Longs:
    """A number 0 … V − 1 for each row of ``cells`` (P, 3), the same for equal rows."""
    low, high = cells.min(axis=0), cells.max(axis=0)
    spans = [int(b) - int(a) + 1 for a, b in zip(low, high, strict=True)]
    if spans[0] * spans[1] * spans[2] < 1 << 62:
        shifted = cells - low
        key = (shifted[:, 0] * spans[1] + shifted[:, 1]) * spans[2] + shifted[:, 2]
        return np.unique(key, return_inverse=True)[1].astype(np.int64)
    # Far-flung points: number each axis first, then pairs; no product exceeds the number of points squared.
    number = np.zeros(len(cells), np.int64)
    for axis in range(3):
        part = np.unique(cells[:, axis], return_inverse=True)[1]
        number = np.unique(number * (int(part.max()) + 1) + part, return_inverse=True)[1].astype(np.int64)
    return number
