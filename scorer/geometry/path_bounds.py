"""Proofs that the warped distance of two paths is no less than a limit, far cheaper than the distance.

Each path is cut into pieces of consecutive frames, each held in a ball. In the table of the warp, points of
piece I and piece J are at least b(I, J) apart, the gap of their balls. Let h = b − limit. A warp visits the
pieces of each side in order, enters every frame of each once, and has at most as many cells in a block of
the table as it enters frames there, and at least half as many. So the excess of its sum over limit × cells
is at least the sum of f · φ(h) over all pieces of both sides, f a piece's number of frames and φ(h) = h where
h < 0, else h/2, taken at the least of the blocks that it visits with that piece. The least of these sums over
all ways through the blocks comes from a table of blocks. Where it is not negative, no warp has a mean below
the limit; and the distance is the mean of one.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scorer.geometry.dtw import Packed

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]

_LANES = 64
_ROWS = 4
"""Rows of the table that are filled in one sweep; numbers of pieces are multiples."""
_FAR = np.float32(1e30)
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)
_LESS = np.float32(1.0 - 1e-6)
"""Distances are taken for so much shorter, because rounding may have lengthened them."""
_BY_TIME = 0.3
"""Pieces are even in the length of the path but for this share, which is even in time."""
_FAST = {"contract", "nnan", "ninf", "nsz"}


def outlines(paths: Packed, pieces: int) -> Floats:
    """float32 (P, pieces, 5) of paths that are not empty: centre and radius of each piece's ball, and its
    number of frames (0 where a path has fewer frames). ``pieces`` is a multiple of 4.
    """
    if pieces % _ROWS:
        raise ValueError(f"{pieces} pieces are no multiple of {_ROWS}")
    return _outlines(paths.points, paths.lengths, pieces)


def at_least(left: Floats, first: Longs, right: Floats, second: Longs, limit: Floats) -> NDArray[np.bool_]:
    """bool (pairs,), whether the warped distance of paths first[p] and second[p] is proven to be ``limit[p]``
    at least, also as float32 arithmetic finds it. False says nothing.

    left, right : outlines of as many pieces. limit : float32 (pairs,), positive.
    """
    out = np.empty(len(first), np.bool_)
    _prove(left, first, right, second, limit, out)
    return out


@njit(cache=True, nogil=True)
def _outlines(points: np.ndarray, lengths: np.ndarray, pieces: int) -> np.ndarray:
    out = np.zeros((len(points), pieces, 5), np.float32)
    piece = np.empty(points.shape[1], np.int64)
    far = np.empty(points.shape[1])
    for p in range(len(points)):
        length = lengths[p]
        far[0] = 0.0
        for t in range(1, length):
            step = 0.0
            for axis in range(3):
                step += (np.float64(points[p, t, axis]) - np.float64(points[p, t - 1, axis])) ** 2
            far[t] = far[t - 1] + np.sqrt(step)
        whole = far[length - 1]
        for t in range(length):
            place = (t + 0.5) / length
            if whole > 0.0:
                place = _BY_TIME * place + (1.0 - _BY_TIME) * far[t] / whole
            piece[t] = min(int(place * pieces), pieces - 1)
        start = 0
        while start < length:
            stop = start + 1
            while stop < length and piece[stop] == piece[start]:
                stop += 1
            _ball(points[p, start:stop], out[p, piece[start]])
            start = stop
        # An empty piece stands where the one before it does, those before the first where the first does.
        for s in range(pieces):
            if out[p, s, 4] == 0.0:
                other = s - 1 if s > 0 else piece[0]
                out[p, s, :4] = out[p, other, :4]
    return out


@njit(cache=True, nogil=True)
def _ball(points: np.ndarray, out: np.ndarray) -> None:
    """Centre of the box, the distance of the farthest point from it, and the number of points."""
    for axis in range(3):
        low = high = np.float64(points[0, axis])
        for t in range(len(points)):
            low = min(low, np.float64(points[t, axis]))
            high = max(high, np.float64(points[t, axis]))
        out[axis] = np.float32(0.5 * (low + high))
    most = 0.0
    for t in range(len(points)):
        squared = 0.0
        for axis in range(3):
            squared += (np.float64(points[t, axis]) - np.float64(out[axis])) ** 2
        most = max(most, squared)
    out[3] = np.float32(np.sqrt(most) * (1.0 + 1e-6))
    out[4] = np.float32(len(points))


@njit(cache=True, nogil=True, fastmath=_FAST)
def _next_rows(
    x: np.ndarray, i: int, y: np.ndarray, limit: np.ndarray, row_paid: np.ndarray, both_paid: np.ndarray
) -> None:
    """Four rows of every lane's table of blocks. A way to a block may have paid for the block's row, its
    column, both or neither yet; to leave a row or a column it must have paid for it.

    row_paid, both_paid : (pieces + 1, lanes), of the row above, from the column before the first on. What a
    lane takes along lies in ``carry``, made here for the reason given in ``dtw_kernels``.
    """
    carry = np.empty((2 + 7 * _ROWS, _LANES), np.float32)
    for k in range(_LANES):
        carry[0, k] = both_paid[0, k]
        carry[1, k] = limit[k]
        both_paid[0, k] = _FAR
        for r in range(_ROWS):
            carry[2 + 7 * r, k] = _FAR
            carry[3 + 7 * r, k] = _FAR
            for a in range(5):
                carry[4 + 7 * r + a, k] = x[i + r, a, k]
    for j in range(len(y)):
        for k in range(_LANES):
            px = y[j, 0, k]
            py = y[j, 1, k]
            pz = y[j, 2, k]
            radius = y[j, 3, k]
            frames = y[j, 4, k]
            up_row = row_paid[j + 1, k]
            up_both = both_paid[j + 1, k]
            diagonal = carry[0, k]
            carry[0, k] = up_both
            for r in range(_ROWS):
                dx = px - carry[4 + 7 * r, k]
                dy = py - carry[5 + 7 * r, k]
                dz = pz - carry[6 + 7 * r, k]
                gap = np.sqrt(dx * dx + dy * dy + dz * dz) * _LESS - (radius + carry[7 + 7 * r, k])
                gap = gap if gap > _ZERO else _ZERO
                excess = gap - carry[1, k]
                half = excess * _HALF
                excess = excess if excess < half else half
                for_row = excess * carry[8 + 7 * r, k]
                for_column = excess * frames
                left_column = carry[2 + 7 * r, k]
                left_both = carry[3 + 7 * r, k]
                neither = diagonal if diagonal < left_column else left_column
                neither = neither if neither < up_row else up_row
                row = neither + for_row
                row = row if row < left_both else left_both
                column = neither + for_column
                column = column if column < up_both else up_both
                both = row + for_column
                other = column + for_row
                both = both if both < other else other
                diagonal = left_both
                carry[2 + 7 * r, k] = column
                carry[3 + 7 * r, k] = both
                up_row = row
                up_both = both
            row_paid[j + 1, k] = up_row
            both_paid[j + 1, k] = up_both


@njit(cache=True, nogil=True)
def _prove(
    left: np.ndarray,
    first: np.ndarray,
    right: np.ndarray,
    second: np.ndarray,
    limit: np.ndarray,
    out: np.ndarray,
) -> None:
    pieces = left.shape[1]
    x = np.zeros((pieces, 5, _LANES), np.float32)
    y = np.zeros((pieces, 5, _LANES), np.float32)
    row_paid = np.empty((pieces + 1, _LANES), np.float32)
    both_paid = np.empty((pieces + 1, _LANES), np.float32)
    raised = np.empty(_LANES, np.float32)
    held = np.full(_LANES, -1)
    for start in range(0, len(first), _LANES):
        for k in range(_LANES):
            p = min(start + k, len(first) - 1)
            i = first[p]
            j = second[p]
            if held[k] != i:
                held[k] = i
                for s in range(pieces):
                    for a in range(5):
                        x[s, a, k] = left[i, s, a]
            cells = np.float32(0.0)
            for s in range(pieces):
                for a in range(5):
                    y[s, a, k] = right[j, s, a]
                cells += x[s, 4, k] + y[s, 4, k]
            # By more than rounding takes off the mean of so many cells, and off the sums made here.
            raised[k] = limit[p] * (
                np.float32(1.0) + np.float32(2.4e-7) * (cells + np.float32(8 * pieces + 64))
            )
        row_paid[:] = _FAR
        both_paid[:] = _FAR
        both_paid[0] = _ZERO
        for i in range(0, pieces, _ROWS):
            _next_rows(x, i, y, raised, row_paid, both_paid)
        for k in range(min(_LANES, len(first) - start)):
            out[start + k] = both_paid[pieces, k] >= _ZERO
