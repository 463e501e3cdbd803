"""Distances between point sets: exact nearest neighbours, the capped Chamfer distance, sliced Wasserstein.

All take the rows that are finite, in float32, and give the same bits for any number of threads (nothing here
is summed in an order that depends on them). Source of the formulas: protocol 4dcb-1, point-set distances.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from contract.constants import SEED
from scorer.geometry.raster_cpu import default_threads

Floats = NDArray[np.float32]

DIRECTIONS = 128
"""Directions of the sliced Wasserstein distance."""
QUANTILES = 8192
"""Quantiles that a cloud's projection on each direction is reduced to."""
_FEW = 4096
"""Queries below which a second thread costs more than it saves."""


def clean(points: ArrayLike) -> Floats:
    """The rows of ``points`` (n, d) that are finite in float32, order kept.

    Raises ``ValueError`` when none is left.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(points).astype(np.float32, copy=False)
    if array.ndim != 2:
        raise ValueError(f"a cloud must have shape (n, d), not {array.shape}")
    finite = np.isfinite(array).all(axis=1)
    kept = array if finite.all() else array[finite]
    if not len(kept):
        raise ValueError("a distance was asked for on an empty cloud")
    return kept


def tree(points: Floats) -> cKDTree:
    """A search tree over ``points`` (n, d), finite.

    Splits boxes at their middle: built in two thirds of the time of a balanced tree, as fast to search on
    clouds that overlap and more than twice as fast on clouds that lie far apart.
    """
    return cKDTree(points, balanced_tree=False)


def query(
    found_in: cKDTree, points: Floats, cap: float = np.inf, threads: int | None = None
) -> tuple[Floats, NDArray[np.int64]]:
    """Distance float32 (n,) from each of ``points`` to its nearest point of the tree, and that point's row.

    Where nothing is nearer than ``cap`` the distance is ``+inf`` and the row the tree's length: the search
    stops there, and the smaller of distance and cap is still exact.
    """
    workers = 1 if len(points) < _FEW else threads or default_threads()
    distance, index = found_in.query(points, distance_upper_bound=cap, workers=workers)
    return distance.astype(np.float32), index.astype(np.int64, copy=False)


def nearest(x: ArrayLike, y: ArrayLike, threads: int | None = None) -> tuple[Floats, NDArray[np.int64]]:
    """For each finite row of ``x`` (n, d): distance float32 (n,) to the nearest finite row of ``y`` (m, d),
    and int64 (n,) its number among ``y``'s finite rows.

    Raises ``ValueError`` when either has no finite row.
    """
    return query(tree(clean(y)), clean(x), threads=threads)


def bounded_chamfer(x: ArrayLike, y: ArrayLike, cap: float, threads: int | None = None) -> float:
    """½ (mean over x of min(d(x, Y), cap) + mean over y of min(d(y, X), cap)); ``cap`` when either is empty.

    x, y : (n, d) and (m, d). Rows that are not finite are dropped; ``ValueError`` when that leaves none.
    """
    if not len(np.asarray(x)) or not len(np.asarray(y)):
        return float(cap)
    return Cloud(x).bounded_chamfer(Cloud(y), cap, threads)


class Cloud:
    """A point set that is compared more than once: cleaned once, its tree built on first use."""

    def __init__(self, points: ArrayLike) -> None:
        """points : (n, d). Raises ``ValueError`` when no row is finite."""
        self.points = clean(points)

    @cached_property
    def tree(self) -> cKDTree:
        return tree(self.points)

    @cached_property
    def _walk(self) -> Floats:
        """The points, neighbours after each other: a search that jumps about spends a third of its time on
        cache misses.
        """
        walk: Floats = self.points[self.tree.indices]
        return walk

    def bounded_chamfer(self, other: Cloud, cap: float, threads: int | None = None) -> float:
        """As the function of this name."""
        there = self._mean_capped(other, cap, threads)
        back = other._mean_capped(self, cap, threads)
        return float(np.float32(0.5) * (there + back))

    def _mean_capped(self, other: Cloud, cap: float, threads: int | None) -> np.float32:
        distance, _ = query(other.tree, self._walk, cap, threads)
        return np.float32(np.minimum(distance, np.float32(cap)).mean(dtype=np.float64))


@lru_cache(maxsize=8)
def directions(dim: int) -> Floats:
    """Unit vectors float32 (128, dim), the same on every call; read-only.

    Normals of a seeded generator: not isotropic, so a shift of length 1 costs 0.54 to 0.62 in 3D.
    """
    normals = np.random.default_rng(SEED).normal(size=(DIRECTIONS, dim))
    unit: Floats = (normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(np.float32)
    unit.flags.writeable = False
    return unit


class Projected:
    """A cloud's quantiles along every direction: sorted once, comparable with any other cloud's.

    quantiles : float32 (128, 8192), ascending along each row, 4 MiB.
    """

    def __init__(self, points: ArrayLike) -> None:
        """points : (n, d). Raises ``ValueError`` when no row is finite."""
        columns = np.ascontiguousarray(clean(points).T)
        self.dimensions = len(columns)
        self.quantiles = np.empty((DIRECTIONS, QUANTILES), np.float32)
        for direction, row in zip(directions(len(columns)), self.quantiles, strict=True):
            _resample(np.sort(_along(direction, columns)), row)


def semd(x: ArrayLike, y: ArrayLike) -> float:
    """Sliced Wasserstein distance of order 2 between clouds (n, d) and (m, d), in their unit.

    Root of the mean, over 128 directions and 8192 quantiles, of the squared difference of the projections.
    Raises ``ValueError`` when either has no finite row.
    """
    return semd_projected(Projected(x), Projected(y))


def semd_projected(a: Projected, b: Projected) -> float:
    """As :func:`semd`, of clouds that are projected already. Raises ``ValueError`` when one is planar, say,
    and the other is not.
    """
    if a.dimensions != b.dimensions:
        raise ValueError(f"clouds of {a.dimensions} and {b.dimensions} dimensions cannot be compared")
    rows = [np.square(p - q).mean(dtype=np.float64) for p, q in zip(a.quantiles, b.quantiles, strict=True)]
    return float(np.sqrt(np.float32(np.mean(rows))))


def _along(direction: Floats, columns: Floats) -> Floats:
    """Σ direction[i] columns[i], left to right. A library's matrix product would sum in an order of its own
    choice, which may change with the number of threads.
    """
    total: Floats = columns[0] * direction[0]
    for column, factor in zip(columns[1:], direction[1:], strict=True):
        total += column * factor
    return total


def _resample(values: Floats, out: Floats) -> None:
    """Quantiles of ascending ``values`` (n,) at equal steps, both ends included, linear in between."""
    if len(values) == len(out):
        out[:] = values
        return
    low, high, weight, rest = _steps(len(values), len(out))
    np.multiply(values[low], rest, out=out)
    out += values[high] * weight


@lru_cache(maxsize=8)
def _steps(count: int, steps: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, Floats]:
    """Rows below and above each position, and the weights of the upper and the lower one.

    Positions are float32, counted from the nearer end with a float32 step, as the protocol's are: off by up
    to 0.0024 rows at 65,536. From the far end they are rounded once (a fused multiply-subtract).
    """
    end, index = np.float32(count - 1), np.arange(steps, dtype=np.float32)
    step = end / np.float32(steps - 1)
    from_end = np.float64(end) - np.float64(step) * (steps - 1 - index.astype(np.float64))
    positions = np.where(index < steps // 2, step * index, from_end.astype(np.float32))
    low = np.floor(positions)
    weight = positions - low
    high = np.minimum(np.ceil(positions), end)
    return low.astype(np.intp), high.astype(np.intp), weight, np.float32(1) - weight
