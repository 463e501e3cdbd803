"""Which vertices of which objects come near enough to another object to be looked at."""

from __future__ import annotations

import numpy as np
from numba import njit

TOLERANCE = 0.03
"""Depth that is forgiven, in diagonals of the smaller object's box."""
BALL = 0.53
"""Radius, in an object's diagonals, of the ball around its box's centre in which vertices are looked at."""


@njit(cache=True, nogil=True)
def near_pairs(extents: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Pairs (object, other) where some vertex of the other may lie in the object's box grown by the
    tolerance; int64 (m, 2), ascending.

    extents : float64 (n, 4, 3), see ``Solid.extents``; spans : float64 (n,). An object with NaN extents is in
    no pair.
    """
    count = 0
    pairs = np.empty((16, 2), dtype=np.int64)
    for body in range(len(spans)):
        for other in range(len(spans)):
            tolerance = TOLERANCE * min(spans[other], spans[body])
            if not extents[other, 2, 0] <= extents[body, 1, 0] + tolerance or body == other:
                continue
            near = True
            for axis in range(3):
                near &= extents[other, 2, axis] <= extents[body, 1, axis] + tolerance
                near &= extents[other, 3, axis] >= extents[body, 0, axis] - tolerance
            if not near:
                continue
            if count == len(pairs):
                larger = np.empty((2 * count, 2), dtype=np.int64)
                larger[:count] = pairs
                pairs = larger
            pairs[count, 0] = body
            pairs[count, 1] = other
            count += 1
    return pairs[:count].copy()


@njit(cache=True, nogil=True)
def reachable(
    vertices: np.ndarray, start: np.ndarray, others: np.ndarray, extents: np.ndarray, spans: np.ndarray,
    body: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Vertices of ``others`` in the ball around object ``body`` and in its box grown by their tolerance.

    vertices : float32 (N, 3), those of all objects, of object i from start[i] on. others : int64 (k,),
    ascending. extents, spans : as for ``near_pairs``.

    Returns rows int64 (P,) of ``vertices``, ascending, their positions float64 (P, 3) and tolerances float64
    (P,). Vertices that are not finite are not among them.
    """
    rows = np.empty(64, dtype=np.int64)
    tolerances = np.empty(64)
    count = 0
    low, high = extents[body, 0], extents[body, 1]
    x, y, z = 0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), 0.5 * (low[2] + high[2])
    ball = (BALL * spans[body]) ** 2
    for other in others:
        tolerance = TOLERANCE * min(spans[other], spans[body])
        for i in range(start[other], start[other + 1]):
            px, py, pz = np.float64(vertices[i, 0]), np.float64(vertices[i, 1]), np.float64(vertices[i, 2])
            inside = (px >= low[0] - tolerance) & (px <= high[0] + tolerance)
            inside &= (py >= low[1] - tolerance) & (py <= high[1] + tolerance)
            inside &= (pz >= low[2] - tolerance) & (pz <= high[2] + tolerance)
            if not inside or (px - x) ** 2 + (py - y) ** 2 + (pz - z) ** 2 > ball:
                continue
            if count == len(rows):
                more_rows, more_tolerances = np.empty(2 * count, dtype=np.int64), np.empty(2 * count)
                more_rows[:count], more_tolerances[:count] = rows, tolerances
                rows, tolerances = more_rows, more_tolerances
            rows[count] = i
            tolerances[count] = tolerance
            count += 1
    points = np.empty((count, 3))
    for k in range(count):
        for axis in range(3):
            points[k, axis] = vertices[rows[k], axis]
    return rows[:count].copy(), points, tolerances[:count].copy()
