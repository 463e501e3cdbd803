"""Tracers of a liquid: seeded where it is wet and nobody is near, carried through the solver's velocities.

Grid units: cell (i, j, k) is the cube from (i, j, k) to (i+1, j+1, k+1). Time is solver time. All sums in
float64, in the reference's order. Source: protocol 4dcb-1, liquid tracers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contract.constants import TRACER_POINTS
from scorer.geometry.sampling.threads import in_blocks
from scorer.liquid.fields import Fields

Doubles = NDArray[np.float64]

SEED = 20260821
SUBSTEPS = 4
"""Heun steps from one cached frame to the next."""
BISECTIONS = 6
GROWTH = 1.5
"""Factor between the spacings that are tried before bisecting."""
_BLOCK = 2048


class TooMany(Exception):
    """A spacing that needs more columns than allowed."""


def tracers(fields: Fields, spacing: float, most: int = TRACER_POINTS) -> Iterator[Doubles]:
    """Positions float64 (n, 3) of all tracers so far, for each cached frame; n grows, NaN once one has left
    the grid. The array is carried on in place afterwards: copy what is kept.

    Raises ``TooMany`` as soon as there are more than ``most``.
    """
    rng = np.random.default_rng(SEED)
    coarse = tuple(np.floor((np.arange(n) + 0.5) / spacing).astype(np.int64) for n in fields.dims)
    points = np.empty((0, 3), np.float64)
    for frame in range(fields.frames):
        if frame:
            advance(points, fields, frame - 1)
        points = np.concatenate([points, _born(points, fields, frame, spacing, coarse, rng)])
        if len(points) > most:
            raise TooMany
        yield points


def advance(points: Doubles, fields: Fields, frame: int) -> None:
    """Carry ``points`` (n, 3) from a cached frame to the next, in place; what leaves the grid becomes NaN."""
    step = (fields.times[frame + 1] - fields.times[frame]) / SUBSTEPS
    now, later = np.asarray(fields.velocity[frame]), np.asarray(fields.velocity[frame + 1])
    in_blocks(len(points), _BLOCK, lambda start, stop: _advance(points[start:stop], now, later, step))


def finest_spacing(fields: Fields, most: int = TRACER_POINTS) -> tuple[float, int]:
    """The finest spacing found whose tracers number at most ``most``, and how many they are.

    Raises ``ValueError`` when no cell is ever wet.
    """
    fullest = max(int(np.count_nonzero(fields.wet(frame))) for frame in range(fields.frames))
    if not fullest:
        raise ValueError("no cell centre is ever inside the liquid")
    spacing = max(1.0, (2 * fullest / most) ** (1 / 3))
    count = columns(fields, spacing, most)
    failing, fitting = (spacing, None) if count is None else (None, (spacing, count))
    while fitting is None:
        spacing *= GROWTH
        count = columns(fields, spacing, most)
        failing, fitting = (spacing, None) if count is None else (failing, (spacing, count))
    while failing is None and fitting[0] > 1:
        spacing = max(1.0, fitting[0] / GROWTH)
        count = columns(fields, spacing, most)
        failing, fitting = (spacing, fitting) if count is None else (None, (spacing, count))
    if failing is None:
        return fitting
    for _ in range(BISECTIONS):
        spacing = (failing + fitting[0]) / 2
        count = columns(fields, spacing, most)
        failing, fitting = (spacing, fitting) if count is None else (failing, (spacing, count))
    return fitting


def columns(fields: Fields, spacing: float, most: int = TRACER_POINTS) -> int | None:
    """How many tracers a spacing needs; None when more than ``most``."""
    count = 0
    try:
        for points in tracers(fields, spacing, most):
            count = len(points)
    except TooMany:
        return None
    return count


def _born(
    points: Doubles,
    fields: Fields,
    frame: int,
    spacing: float,
    coarse: tuple[NDArray[np.int64], ...],
    rng: np.random.Generator,
) -> Doubles:
    """New tracers (k, 3): one in each seeding cell that is wet and neither holds nor adjoins a living one.

    A seeding cell's tracer lies in the first of its wet grid cells in a random order of all candidates; new
    ones come in ascending order of seeding cell.
    """
    nx, ny, nz = (int(axis[-1]) + 1 for axis in coarse)
    covered = _covered(points, spacing, (nx, ny, nz))
    cells, homes = _candidates(fields.wet(frame), covered, *coarse)
    order = rng.permutation(len(cells))
    chosen = cells[_first_of_each(homes, order, covered.size)]
    return chosen + rng.random((len(chosen), 3))


@njit(cache=True, nogil=True)
def _covered(points: Doubles, spacing: float, shape: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Seeding cells with a living tracer in them or in one of their 26 neighbours, around the border too."""
    held = np.zeros(shape, np.bool_)
    home = np.empty(3, np.int64)
    for point in range(len(points)):
        if np.isnan(points[point, 0]):
            continue
        for axis in range(3):
            home[axis] = min(max(np.floor(points[point, axis] / spacing), 0.0), shape[axis] - 1.0)
        held[home[0], home[1], home[2]] = True
    covered = np.zeros(shape, np.bool_)
    for i in range(shape[0]):
        for j in range(shape[1]):
            for k in range(shape[2]):
                if held[i, j, k]:
                    _cover_around(covered, i, j, k)
    return covered


@njit(cache=True, nogil=True)
def _cover_around(covered: NDArray[np.bool_], i: int, j: int, k: int) -> None:
    nx, ny, nz = covered.shape
    for x in range(i - 1, i + 2):
        for y in range(j - 1, j + 2):
            for z in range(k - 1, k + 2):
                covered[x % nx, y % ny, z % nz] = True


@njit(cache=True, nogil=True)
def _candidates(
    wet: NDArray[np.bool_],
    covered: NDArray[np.bool_],
    along_x: NDArray[np.int64],
    along_y: NDArray[np.int64],
    along_z: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Wet grid cells (n, 3) of uncovered seeding cells, in C order; the flat seeding cell (n,) of each."""
    _, ny, nz = covered.shape
    count = 0
    for filling in range(2):
        if filling:
            cells, homes = np.empty((count, 3), np.int64), np.empty(count, np.int64)
            count = 0
        for i in range(wet.shape[0]):
            for j in range(wet.shape[1]):
                for k in range(wet.shape[2]):
                    if wet[i, j, k] and not covered[along_x[i], along_y[j], along_z[k]]:
                        if filling:
                            cells[count, 0], cells[count, 1], cells[count, 2] = i, j, k
                            homes[count] = (along_x[i] * ny + along_y[j]) * nz + along_z[k]
                        count += 1
    return cells, homes


@njit(cache=True, nogil=True)
def _first_of_each(homes: NDArray[np.int64], order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """For each of ``count`` seeding cells that occurs, the candidate that comes first in ``order``."""
    first = np.full(count, -1, np.int64)
    for candidate in order:
        if first[homes[candidate]] < 0:
            first[homes[candidate]] = candidate
    return first[first >= 0]


@njit(cache=True, nogil=True)
def _advance(points: Doubles, now: np.ndarray, later: np.ndarray, step: float) -> None:
    dims = now.shape
    for point in range(len(points)):
        x, y, z = points[point, 0], points[point, 1], points[point, 2]
        if np.isnan(x):
            continue
        for k in range(SUBSTEPS):
            a, b, c = _velocity(now, later, k / SUBSTEPS, x, y, z)
            ahead = (x + step * a, y + step * b, z + step * c)
            d, e, f = _velocity(now, later, (k + 1) / SUBSTEPS, ahead[0], ahead[1], ahead[2])
            x += 0.5 * step * (a + d)
            y += 0.5 * step * (b + e)
            z += 0.5 * step * (c + f)
        if not (0 <= x < dims[0] and 0 <= y < dims[1] and 0 <= z < dims[2]):
            x = y = z = np.nan
        points[point, 0], points[point, 1], points[point, 2] = x, y, z


@njit(cache=True, nogil=True)
def _velocity(
    now: np.ndarray, later: np.ndarray, fraction: float, x: float, y: float, z: float
) -> tuple[float, float, float]:
    """Velocity at a point and at a fraction of the time between two frames."""
    # A factor of 0 adds nothing, as all velocities are finite: one of the grids need not be read.
    if fraction == 0:
        return _sample(now, x, y, z)
    if fraction == 1:
        return _sample(later, x, y, z)
    a, b, c = _sample(now, x, y, z)
    d, e, f = _sample(later, x, y, z)
    rest = 1 - fraction
    return rest * a + fraction * d, rest * b + fraction * e, rest * c + fraction * f


@njit(cache=True, nogil=True)
def _sample(grid: np.ndarray, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Velocity of a staggered grid (nx, ny, nz, 3) at a point: component c lies on low faces of axis c."""
    nx, ny, nz = grid.shape[0], grid.shape[1], grid.shape[2]
    face_x, face_y, face_z = _between(x, nx), _between(y, ny), _between(z, nz)
    mid_x, mid_y, mid_z = _between(x - 0.5, nx), _between(y - 0.5, ny), _between(z - 0.5, nz)
    return (
        _trilinear(grid, 0, face_x, mid_y, mid_z),
        _trilinear(grid, 1, mid_x, face_y, mid_z),
        _trilinear(grid, 2, mid_x, mid_y, face_z),
    )


@njit(cache=True, nogil=True)
def _between(at: float, count: int) -> tuple[int, int, float, float]:
    """The two grid values on either side of a coordinate, and their weights; the border's value outside."""
    low = min(max(np.floor(at), 0.0), count - 2.0)
    weight = min(max(at - low, 0.0), 1.0)
    start = int(low)
    # An axis of one cell has low = −1: both values are the same one.
    return max(start, 0), start + 1, 1 - weight, weight


@njit(cache=True, nogil=True)
def _trilinear(
    grid: np.ndarray,
    c: int,
    along_x: tuple[int, int, float, float],
    along_y: tuple[int, int, float, float],
    along_z: tuple[int, int, float, float],
) -> float:
    i, i1, u0, u1 = along_x
    j, j1, v0, v1 = along_y
    k, k1, w0, w1 = along_z
    total = u0 * v0 * w0 * np.float64(grid[i, j, k, c])
    total += u0 * v0 * w1 * np.float64(grid[i, j, k1, c])
    total += u0 * v1 * w0 * np.float64(grid[i, j1, k, c])
    total += u0 * v1 * w1 * np.float64(grid[i, j1, k1, c])
    total += u1 * v0 * w0 * np.float64(grid[i1, j, k, c])
    total += u1 * v0 * w1 * np.float64(grid[i1, j, k1, c])
    total += u1 * v1 * w0 * np.float64(grid[i1, j1, k, c])
    total += u1 * v1 * w1 * np.float64(grid[i1, j1, k1, c])
    return total
