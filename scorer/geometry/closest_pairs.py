"""Closest points within each frame of two small moving clouds, by going through all pairs.

Below a thousand points a side this is faster than a search tree, which would have to be built anew for every
transform that is tried.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


def closest(points: Floats, others: Floats) -> tuple[Floats, Ints]:
    """For each of ``points`` (F, M, 3) the closest of ``others`` (F, N, 3) at the same frame.

    Both float32, finite, M and N at least 1. Returns squared distance float32 (F, M) and row int32 (F, M),
    the lowest where several are as close.
    """
    squared, row = np.empty(points.shape[:2], np.float32), np.empty(points.shape[:2], np.int32)
    _kernel(np.ascontiguousarray(points), np.ascontiguousarray(others.transpose(0, 2, 1)), squared, row)
    return squared, row


@numba.njit(cache=True, nogil=True)
def _kernel(points: Any, others: Any, squared: Any, row: Any) -> None:
    """points : (F, M, 3). others : (F, 3, N), so that the inner loops run over adjacent numbers.

    The minimum is taken of the distances' bits, which as integers are in the same order for numbers that are
    not negative: the compiler makes vector instructions of that, and not of a minimum of floats.
    """
    count = np.int32(others.shape[2])
    gap = np.empty(count, np.float32)
    bits = gap.view(np.int32)
    for frame in range(points.shape[0]):
        axes = others[frame]
        for i in range(points.shape[1]):
            a, b, c = points[frame, i, 0], points[frame, i, 1], points[frame, i, 2]
            for j in range(count):
                u, v, w = axes[0, j] - a, axes[1, j] - b, axes[2, j] - c
                gap[j] = u * u + v * v + w * w
            least = bits[0]
            for j in range(count):
                least = min(least, bits[j])
            first = count
            for j in range(count):
                first = min(first, np.int32(j) if bits[j] == least else count)
            squared[frame, i] = gap[first]
            row[frame, i] = first


def distances_both_ways(points: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Squared distance float32 (M,) from each of ``points`` (M, 3) to the closest of ``others`` (N, 3), and
    (N,) the reverse, from one pass over all pairs. Both float32, finite, M and N at least 1.
    """
    there, back = (np.full(len(side), np.inf, np.float32) for side in (points, others))
    _both_kernel(np.ascontiguousarray(points), np.ascontiguousarray(others.T), there, back)
    return there, back


_BLOCK = 1024
"""Points that are gone through at a time, so that they stay in the innermost cache."""


@numba.njit(cache=True, nogil=True)
def _both_kernel(points: Any, axes: Any, there: Any, back: Any) -> None:
    """As ``_kernel``, but minima only. there, back : start at +inf."""
    gap = np.empty(_BLOCK, np.float32)
    bits, there_bits = gap.view(np.int32), there.view(np.int32)
    for start in range(0, axes.shape[1], _BLOCK):
        x, y, z = axes[0, start:], axes[1, start:], axes[2, start:]
        back_bits = back[start:].view(np.int32)
        count = min(_BLOCK, len(x))
        for i in range(len(points)):
            a, b, c = points[i, 0], points[i, 1], points[i, 2]
            for j in range(count):
                u, v, w = x[j] - a, y[j] - b, z[j] - c
                gap[j] = u * u + v * v + w * w
            least = there_bits[i]
            for j in range(count):
                least = min(least, bits[j])
            for j in range(count):
                back_bits[j] = min(back_bits[j], bits[j])
            there_bits[i] = least
