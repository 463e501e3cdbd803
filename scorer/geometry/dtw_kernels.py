"""Compiled loops of the warped distance: 64 pairs of paths side by side, one lane each.

All of them are in one file: a cached kernel is not recompiled when one that it calls changes elsewhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 64
ROWS = 4
"""Rows of a table that are filled in one sweep over its columns."""
LARGEST = np.float32(1e12)
"""Coordinates are held within ±LARGEST, so that no sum of distances reaches what stands for outside."""
_OUTSIDE = np.float32(1e30)
"""Value of cells off the table."""
_NOWHERE = np.float32(1e18)
"""Coordinate of a row that no warp passes through: its cells cost more than any path, less than outside."""
_ONE = np.float32(1.0)
_CHECK = 16
"""Rows between two looks whether all pairs can be given up (a look costs a thirtieth of a row)."""
_FAST = {"contract", "nnan", "ninf", "nsz"}
"""No value is a NaN or infinite here, so minima are selects; sums keep their order."""


@njit(cache=True, nogil=True, fastmath=_FAST)
def _next_rows(
    x: np.ndarray, i: int, y: np.ndarray, columns: int, value: np.ndarray, steps: np.ndarray
) -> None:
    """Four rows of every lane's table from row i on, column by column: the row above is read, and the last
    one written, once for all of them.

    ``carry`` holds what a lane takes along: value and steps of the cell up-left of the first row, then of the
    cell to the left in each row, then each row's point. It is made here because a compiler that knows that
    nothing else points to it works on many lanes at once; as an argument it costs a factor of eight.
    """
    carry = np.empty((2 + 5 * ROWS, LANES), np.float32)
    for k in range(LANES):
        carry[0, k] = value[0, k]
        carry[1, k] = 0.0
        value[0, k] = _OUTSIDE
        for r in range(ROWS):
            carry[2 + 2 * r, k] = _OUTSIDE
            carry[3 + 2 * r, k] = 0.0
            for axis in range(3):
                carry[2 + 2 * ROWS + 3 * r + axis, k] = x[i + r, axis, k]
            # The first of a path's rows begins beside the corner, wherever it stands among the four.
            if r < ROWS - 1 and x[i + r, 0, k] == _NOWHERE and x[i + r + 1, 0, k] != _NOWHERE:
                carry[2 + 2 * r, k] = 0.0
    for j in range(columns):
        for k in range(LANES):
            px = y[j, 0, k]
            py = y[j, 1, k]
            pz = y[j, 2, k]
            up = value[j + 1, k]
            up_steps = steps[j + 1, k]
            diagonal = carry[0, k]
            diagonal_steps = carry[1, k]
            carry[0, k] = up
            carry[1, k] = up_steps
            for r in range(ROWS):
                dx = px - carry[2 + 2 * ROWS + 3 * r, k]
                dy = py - carry[3 + 2 * ROWS + 3 * r, k]
                dz = pz - carry[4 + 2 * ROWS + 3 * r, k]
                left = carry[2 + 2 * r, k]
                left_steps = carry[3 + 2 * r, k]
                best = left
                count = left_steps
                count = up_steps if up < best else count
                best = up if up < best else best
                count = diagonal_steps if diagonal < best else count
                best = diagonal if diagonal < best else best
                up = best + np.sqrt(dx * dx + dy * dy + dz * dz)
                up_steps = count + _ONE
                diagonal = left
                diagonal_steps = left_steps
                carry[2 + 2 * r, k] = up
                carry[3 + 2 * r, k] = up_steps
            value[j + 1, k] = up
            steps[j + 1, k] = up_steps


@njit(cache=True, nogil=True)
def _hopeless(value: np.ndarray, columns: int, limit: np.ndarray, least: np.ndarray) -> bool:
    """Whether each lane's row has no value below its ``limit``. ``least`` is scratch."""
    for k in range(LANES):
        least[k] = value[1, k]
    for j in range(2, columns + 1):
        for k in range(LANES):
            least[k] = min(least[k], value[j, k])
    return bool((least >= limit).all())


@njit(cache=True, nogil=True)
def _pack_rows(
    paths: np.ndarray, lengths: np.ndarray, chosen: np.ndarray, held: np.ndarray, x: np.ndarray
) -> None:
    """Lanes of the first paths, (row, axis, lane). Rows that lead nowhere come first, so many that every path
    ends on the last row of a sweep. ``held``: the path that each lane has already.
    """
    for k in range(LANES):
        path = chosen[k]
        if held[k] == path:
            continue
        held[k] = path
        shift = -lengths[path] % ROWS
        for axis in range(3):
            for i in range(shift):
                x[i, axis, k] = _NOWHERE
            for i in range(lengths[path]):
                x[i + shift, axis, k] = paths[path, i, axis]


@njit(cache=True, nogil=True)
def _pack_columns(paths: np.ndarray, chosen: np.ndarray, columns: int, y: np.ndarray) -> None:
    for j in range(columns):
        for k in range(LANES):
            for axis in range(3):
                y[j, axis, k] = paths[chosen[k], j, axis]


@njit(cache=True, nogil=True)
def _block(
    x: np.ndarray,
    rows: np.ndarray,
    y: np.ndarray,
    columns: np.ndarray,
    cap: np.float32,
    value: np.ndarray,
    steps: np.ndarray,
    limit: np.ndarray,
    least: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fill 64 tables; ``found[k]`` is the mean along lane k's warp, or ``cap`` if that is no less.

    rows, columns : int64 (64,), lengths of each lane's paths. Other arguments are scratch.
    """
    height = rows.max()
    width = columns.max()
    for j in range(width + 1):
        value[j] = _OUTSIDE
        steps[j] = 0.0
    for k in range(LANES):
        found[k] = cap
        limit[k] = cap * np.float32(rows[k] + columns[k] - 1)
        if rows[k] % ROWS == 0:
            value[0, k] = 0.0
    for i in range(0, height, ROWS):
        _next_rows(x, i, y, width, value, steps)
        for k in range(LANES):
            if i < rows[k] <= i + ROWS:
                mean = value[columns[k], k] / steps[columns[k], k]
                found[k] = min(mean, cap)
                limit[k] = -_ONE
        if i % _CHECK == _CHECK - ROWS and _hopeless(value, width, limit, least):
            return


@njit(cache=True, nogil=True)
def _resting(a: np.ndarray, b: np.ndarray, count: int, cap: np.float32) -> np.float32:
    """Mean of two points at rest: the shortest warp, ``count`` steps, each as long."""
    dx = b[0] - a[0]
    dy = b[1] - a[1]
    dz = b[2] - a[2]
    distance = np.sqrt(dx * dx + dy * dy + dz * dz)
    total = np.float32(0.0)
    for _ in range(count):
        total += distance
    return min(total / np.float32(count), cap)


@njit(cache=True, nogil=True)
def align(
    paths_a: np.ndarray,
    lengths_a: np.ndarray,
    resting_a: np.ndarray,
    paths_b: np.ndarray,
    lengths_b: np.ndarray,
    resting_b: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    cap: np.float32,
    out: np.ndarray,
) -> None:
    """``out[p]`` = min(mean along the warp of path first[p] of a and path second[p] of b, cap).

    paths : float32 (P, L, 3), finite. lengths : int64 (P,), at least 1. resting : bool (P,), whether a path
    stays where it is. first, second : int64 (pairs,). cap : float32. out : float32 (pairs,).
    """
    x = np.zeros((paths_a.shape[1] + ROWS, 3, LANES), np.float32)
    y = np.zeros((paths_b.shape[1], 3, LANES), np.float32)
    value = np.empty((paths_b.shape[1] + 1, LANES), np.float32)
    steps = np.empty((paths_b.shape[1] + 1, LANES), np.float32)
    least = np.empty(LANES, np.float32)
    limit = np.empty(LANES, np.float32)
    found = np.empty(LANES, np.float32)
    rows = np.empty(LANES, np.int64)
    columns = np.empty(LANES, np.int64)
    above = np.empty(LANES, np.int64)
    beside = np.empty(LANES, np.int64)
    slot = np.empty(LANES, np.int64)
    held = np.full(LANES, -1, np.int64)
    filled = 0
    for p in range(len(first)):
        i = first[p]
        j = second[p]
        if resting_a[i] and resting_b[j]:
            out[p] = _resting(paths_a[i, 0], paths_b[j, 0], max(lengths_a[i], lengths_b[j]), cap)
        else:
            above[filled] = i
            beside[filled] = j
            slot[filled] = p
            filled += 1
        if filled == LANES or (filled and p == len(first) - 1):
            above[filled:] = above[0]
            beside[filled:] = beside[0]
            for k in range(LANES):
                rows[k] = lengths_a[above[k]]
                columns[k] = lengths_b[beside[k]]
            _pack_rows(paths_a, lengths_a, above, held, x)
            _pack_columns(paths_b, beside, columns.max(), y)
            _block(x, rows, y, columns, cap, value, steps, limit, least, found)
            for k in range(filled):
                out[slot[k]] = found[k]
            filled = 0
