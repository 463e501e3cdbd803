"""Clipping a triangle to the view frustum (Sutherland–Hodgman), in float32.

The polygon is kept in the two barycentric parameters (s, t) of the original triangle, so that a clipped
corner is ``v0 + s·(v1 − v0) + t·(v2 − v0)`` in every clip coordinate. Order of the planes: x, y, z; for each
axis w + c ≥ 0, then w − c ≥ 0; an axis is skipped when no corner violates it.
"""

from __future__ import annotations

import numba
import numpy as np

MOST_CORNERS = 9
"""A triangle cut by six planes has at most nine corners."""

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def outside(c0, c1, c2):  # type: ignore[no-untyped-def]
    """Whether three corners (x, y, z, w) float32 are all strictly outside one of the six planes, or not
    finite.
    """
    for corner in (c0, c1, c2):
        for k in range(4):
            if not np.isfinite(corner[k]):
                return True
    for axis in range(3):
        if c0[3] < c0[axis] and c1[3] < c1[axis] and c2[3] < c2[axis]:
            return True
        if c0[3] < -c0[axis] and c1[3] < -c1[axis] and c2[3] < -c2[axis]:
            return True
    return False


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cut(polygon, count, out, base, ds, dt):  # type: ignore[no-untyped-def]
    """Keep the part of ``polygon`` where ``base + ds·s + dt·t ≥ 0``; returns the new number of corners."""
    kept = 0
    if count < 3:
        return kept
    last = count - 1
    before = base + ds * polygon[last, 0] + dt * polygon[last, 1]
    for k in range(count):
        here = base + ds * polygon[k, 0] + dt * polygon[k, 1]
        if before * here < _ZERO and kept < MOST_CORNERS:
            share = before / (before - here)
            rest = _ONE - share
            out[kept, 0] = polygon[last, 0] * rest + polygon[k, 0] * share
            out[kept, 1] = polygon[last, 1] * rest + polygon[k, 1] * share
            kept += 1
        if here >= _ZERO and kept < MOST_CORNERS:
            out[kept, 0] = polygon[k, 0]
            out[kept, 1] = polygon[k, 1]
            kept += 1
        last = k
        before = here
    return kept


@numba.njit(cache=True, nogil=True, error_model="numpy")
def clip_triangle(c0, c1, c2, polygon, scratch):  # type: ignore[no-untyped-def]
    """Clip the triangle with corners (x, y, z, w) to the frustum.

    ``polygon`` and ``scratch`` are float32 (MOST_CORNERS, 2); the corners' (s, t) end up in ``polygon``.
    Returns their number; fewer than three mean that nothing is left.
    """
    polygon[0, 0], polygon[0, 1] = _ZERO, _ZERO
    polygon[1, 0], polygon[1, 1] = _ONE, _ZERO
    polygon[2, 0], polygon[2, 1] = _ZERO, _ONE
    count = 3
    w0, dw1, dw2 = c0[3], c1[3] - c0[3], c2[3] - c0[3]
    for axis in range(3):
        a0, a1, a2 = c0[axis], c1[axis], c2[axis]
        if not (c0[3] < abs(a0) or c1[3] < abs(a1) or c2[3] < abs(a2)):
            continue
        d1, d2 = a1 - a0, a2 - a0
        count = _cut(polygon, count, scratch, w0 + a0, dw1 + d1, dw2 + d2)
        count = _cut(scratch, count, polygon, w0 - a0, dw1 - d1, dw2 - d2)
    return count
