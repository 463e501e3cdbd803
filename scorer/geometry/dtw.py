"""Warped distance between paths: the mean gap along the cheapest warp of one path's time to the other's.

With g(i, j) the distance between points i and j, V(0, 0) = g(0, 0), else V = g + min(left, up, up-left);
steps are counted along the predecessor that is the first smallest in that order, where left is (i, j − 1) and
up is (i − 1, j). The distance is V / steps at the last cell. The order matters: it decides between warps of
equal sum and different length. Source: protocol 4dcb-1, dynamic time warping.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorer.geometry.dtw_kernels import LANES, LARGEST, align
from scorer.geometry.raster_cpu import default_threads

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_PAIRS = 64 * LANES
"""Pairs that are handed to a thread at once, about."""


@dataclass(frozen=True, eq=False)
class Packed:
    """Paths with their gaps closed up.

    points : float32 (P, L, 3), each path's finite points first, then zeros. lengths : int64 (P,).
    low, high : float32 (P, 3), corners of each path's bounding box. resting : bool (P,), all points the same.
    """

    points: Floats
    lengths: Ints
    low: Floats
    high: Floats
    resting: NDArray[np.bool_]

    def frames(self, chosen: Ints) -> Floats:
        """The paths ``chosen`` as they were given, but that gaps come last, NaN: float32 (n, L, 3)."""
        inside = np.arange(self.points.shape[1]) < self.lengths[chosen, None]
        return np.where(inside[:, :, None], self.points[chosen], np.float32(np.nan))


def pack(paths: ArrayLike) -> Packed:
    """Drop the frames of ``paths`` (P, L, d) at which a coordinate is not finite; d up to 3.

    Coordinates beyond ±1e12 are cut off there.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(paths).astype(np.float32, copy=False)
    if array.ndim != 3 or not 1 <= array.shape[2] <= 3:
        raise ValueError(f"paths must have shape (P, L, 3), not {array.shape}")
    alive = np.isfinite(array).all(axis=2)
    lengths = alive.sum(axis=1)
    longest = max(1, int(lengths.max(initial=0)))
    points = np.zeros((len(array), longest, 3), np.float32)
    filled = np.arange(longest) < lengths[:, None]
    points[filled, : array.shape[2]] = np.clip(array[alive], -LARGEST, LARGEST)
    outside = ~filled[:, :, None]
    low = np.where(outside, np.float32(np.inf), points).min(axis=1)
    high = np.where(outside, np.float32(-np.inf), points).max(axis=1)
    return Packed(points, lengths, low, high, (low == high).all(axis=1))


def dtw_matrix(a: ArrayLike, b: ArrayLike, cap: float = np.inf, threads: int | None = None) -> Floats:
    """Distances of all pairs, float32 (n, m), no larger than ``cap``; ``cap`` where a path is empty.

    a, b : (n, L, d) and (m, L', d); frames that are not finite are left out. A pair whose bounding boxes lie
    ``cap`` apart is not worked out, and a pair is given up once its sum can only end above ``cap``: neither
    changes a bit of the result, nor does the number of threads. Scratch is a few MB a thread.
    """
    left, right = pack(a), pack(b)
    out = np.full((len(left.points), len(right.points)), cap, np.float32)
    row_order, column_order = (
        np.argsort(side.lengths, kind="stable")[(side.lengths == 0).sum() :] for side in (left, right)
    )
    if not len(row_order) or not len(column_order):
        return out
    height = max(1, _PAIRS // len(column_order))

    def tile(start: int) -> None:
        rows = row_order[start : start + height]
        near = boxes_near(left, rows, right, column_order, cap)
        i, j = np.nonzero(near)
        first, second = rows[i], column_order[j]
        out[first, second] = align_pairs(left, first, right, second, cap)

    each(tile, range(0, len(row_order), height), threads)
    return out


def dtw_pairs(a: ArrayLike, b: ArrayLike, cap: float = np.inf, threads: int | None = None) -> Floats:
    """Distance of path i of ``a`` and path i of ``b``, float32 (n,); as :func:`dtw_matrix` otherwise.

    Raises ``ValueError`` when they are not as many.
    """
    left, right = pack(a), pack(b)
    if len(left.points) != len(right.points):
        raise ValueError(
            f"{len(left.points)} paths against {len(right.points)}: a paired reading needs one each"
        )
    out = np.full(len(left.points), cap, np.float32)
    both = np.flatnonzero((left.lengths > 0) & (right.lengths > 0))
    order = both[np.lexsort((right.lengths[both], left.lengths[both]))]

    def tile(start: int) -> None:
        chosen = order[start : start + 4 * LANES]
        out[chosen] = align_pairs(left, chosen, right, chosen, cap)

    each(tile, range(0, len(order), 4 * LANES), threads)
    return out


def align_pairs(left: Packed, first: Ints, right: Packed, second: Ints, cap: float) -> Floats:
    """Distances float32 (pairs,) of paths first[p] of ``left`` and second[p] of ``right``, no larger than
    ``cap``, in the calling thread. None of the paths is empty.
    """
    out = np.empty(len(first), np.float32)
    ceiling = np.float32(min(cap, float(np.finfo(np.float32).max)))
    align(
        left.points, left.lengths, left.resting, right.points, right.lengths, right.resting,
        first, second, ceiling, out,
    )  # fmt: skip
    return out


def boxes_near(left: Packed, rows: Ints, right: Packed, columns: Ints, cap: float) -> NDArray[np.bool_]:
    """Which pairs' boxes are less than ``cap`` apart, bool (rows, columns).

    The gap must exceed the cap by what rounding could take off a sum of distances.
    """
    if not np.isfinite(cap):
        return np.ones((len(rows), len(columns)), bool)
    squared = np.zeros((len(rows), len(columns)), np.float32)
    for axis in range(3):
        above = left.low[rows, axis][:, None] - right.high[columns, axis]
        below = right.low[columns, axis] - left.high[rows, axis][:, None]
        squared += np.square(np.maximum(np.maximum(above, below), np.float32(0.0)))
    longest = left.points.shape[1] + right.points.shape[1]
    slack = 1.0 + (longest + 8) * float(np.finfo(np.float32).eps)
    near: NDArray[np.bool_] = squared < np.float32((cap * slack) ** 2)
    return near


def each(work: Callable[[int], None], starts: range, threads: int | None) -> None:
    """Call ``work`` for every start, in as many threads as are asked for."""
    count = min(default_threads() if threads is None else threads, len(starts))
    if count <= 1:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, starts):
            pass
