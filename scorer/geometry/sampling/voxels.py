"""The voxel grid that samples are placed on: cells, the jittered point of a cell, one sample per cell.

A grid is given by its edge h alone; cell k covers [k h, (k + 1) h) along each axis. Source: protocol 4dcb-1,
voxel machinery.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from contract.constants import SAMPLES

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

MAX_VOXELS = 4 * SAMPLES
"""Cells of one box that are probed at most, and samples that one surface is drawn at most."""
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_PACKED_BITS = 62


def cells(points: ArrayLike, h: float) -> Longs:
    """Cell int64 (n, 3) of each of ``points`` (n, 3): floor(x / h) in float64.

    A quotient outside int64 becomes whatever the machine's conversion gives, as everywhere in numpy.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return np.floor(np.asarray(points, np.float64) / h).astype(np.int64)


def centres(cell: Longs, h: float) -> Doubles:
    """Middle float64 (n, 3) of each of ``cell`` int64 (n, 3): where containment is tested."""
    middle: Doubles = np.multiply(cell + 0.5, h)
    return middle


def jitter(cell: Longs) -> Doubles:
    """Offsets float64 (n, 3) in [0, 1) hashed from ``cell`` int64 (n, 3) alone.

    One round of splitmix64 for each component, keyed by the mixed cell plus the component's constant.
    """
    with np.errstate(over="ignore"):
        key = (cell.astype(np.uint64) * _MIX).sum(axis=1, dtype=np.uint64)
        z = key[:, None] + _MIX
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    share: Doubles = np.divide(z >> np.uint64(11), 2.0**53)
    return share


def jittered(cell: Longs, h: float) -> Doubles:
    """The sample point float64 (n, 3) of each of ``cell`` int64 (n, 3): (k + jitter(k)) h."""
    point: Doubles = (cell + jitter(cell)) * h
    return point


@dataclass(frozen=True)
class Box:
    """The cells between two corners, both inclusive, numbered with x slowest.

    base : int64 (3,), the lowest cell. counts : int64 (3,), cells along each axis. total : their product,
    modulo 2⁶⁴ as int64: a box that overflows it is searched at wrong cells or not at all.
    """

    base: Longs
    counts: Longs
    total: int

    @classmethod
    def around(cls, low: ArrayLike, high: ArrayLike, h: float) -> Box:
        """The box of the corners ``low`` and ``high`` (3,)."""
        return cls.each(np.atleast_2d(low), np.atleast_2d(high), h)[0]

    @classmethod
    def each(cls, low: Doubles, high: Doubles, h: float) -> list[Box]:
        """The boxes of the corners ``low`` and ``high`` (n, 3)."""
        base, top = cells(low, h), cells(high, h)
        with np.errstate(over="ignore"):
            counts = top - base + 1
            totals = np.prod(counts, axis=1).tolist()
        return [cls(*box) for box in zip(base, counts, totals, strict=True)]

    @property
    def wide(self) -> bool:
        """Whether the box is probed at random instead of everywhere."""
        return self.total > MAX_VOXELS

    def probe(self, rng: np.random.Generator) -> Longs:
        """Numbers int64 (n,), ascending, of the cells to test: all of them, or ``MAX_VOXELS`` draws, each
        once. Only a wide box uses the generator.
        """
        if self.wide:
            return np.unique(rng.integers(0, self.total, MAX_VOXELS))
        return np.arange(self.total, dtype=np.int64)

    def cells(self, number: Longs) -> Longs:
        """Cells int64 (n, 3) of ``number`` int64 (n,)."""
        _, y, z = self.counts
        with np.errstate(over="ignore", divide="ignore"):
            within: Longs = np.stack([number // (y * z), number // z % y, number % z], axis=1)
            return within + self.base


def thin(points: ArrayLike, h: float, owner: Longs | None = None) -> Longs:
    """Rows int64 (m,) that remain when every cell keeps its lexicographically smallest point.

    points : (n, 3). owner : int64 (n,), points of different owners do not compete; the leading sort key.
    Returned in the order of (owner, cell x, cell y, cell z). Of equal points the first row stays.
    """
    places = np.ascontiguousarray(points, np.float64)
    if not len(places):
        return np.zeros(0, np.int64)
    keys = [*cells(places, h).T] if owner is None else [owner, *cells(places, h).T]
    packed = _packed(keys)
    if packed is None:
        order = np.lexsort(keys[::-1])
        ordered = [key[order] for key in keys]
        fresh = np.any([key[1:] != key[:-1] for key in ordered], axis=0)
    else:
        order = np.argsort(packed, kind="stable")
        fresh = np.diff(packed[order]) != 0
    starts = np.flatnonzero(np.concatenate([[True], fresh]))
    if len(starts) == len(order):
        return order
    kept: Longs = _smallest(places, order, np.append(starts, len(order)))
    return kept


def _packed(keys: list[Longs]) -> Longs | None:
    """One int64 for each row that sorts as ``keys`` do, or None when they span too much."""
    lows = [int(key.min()) for key in keys]
    spans = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if sum(span.bit_length() for span in spans) > _PACKED_BITS:
        return None
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, span in zip(keys, lows, spans, strict=True):
        packed = packed * span + (key - low)
    return packed


@njit(cache=True, nogil=True)
def _smallest(points: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Of each run of ``order`` the first row whose point is lexicographically smallest."""
    kept = np.empty(len(starts) - 1, np.int64)
    for run in range(len(starts) - 1):
        best = order[starts[run]]
        for i in range(starts[run] + 1, starts[run + 1]):
            row = order[i]
            for axis in range(3):
                if points[row, axis] < points[best, axis]:
                    best = row
                    break
                if points[row, axis] > points[best, axis]:
                    break
        kept[run] = best
    return kept
