"""Which pixel centres a face owns, and which of several faces a pixel shows.

Exact integers decide coverage: left and top edges include the centres on them, right and bottom edges do not
(image terms, y down), so two triangles that share an edge never both own nor both miss a centre on it. The
order is decided by 1 − 2·NEAR/z, linear on the screen, in float64; the later face wins an exact tie.

A face that leaves the view, or comes too near, is first clipped to the frustum (Sutherland–Hodgman, float32).
The polygon is kept in the two barycentric parameters (s, t) of the face, so that a clipped corner is ``v0 +
s·(v1 − v0) + t·(v2 − v0)`` in every clip coordinate. Order of the planes: x, y, z; for each axis w + c ≥ 0,
then w − c ≥ 0; an axis is skipped when no corner violates it.

All of it is in one file because numba's cache knows a kernel by its own file alone: an edit of a function
that it calls from another file would go unnoticed.
"""

from __future__ import annotations

import numba
import numpy as np

from contract.constants import MISS, NEAR
from scorer.geometry.raster_project import NOT_SNAPPED, SPAN_LIMIT

_NARROW = 6
"""Boxes up to this many columns are tested pixel by pixel; wider ones solve each row's span by integer
division.
"""
_MOST_CORNERS = 9
"""A triangle cut by six planes has at most nine corners."""
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_NEAR2 = np.float32(2.0 * NEAR)
_CLAMP = np.float32(1 << 20)
_ROUND = np.float32(12582912.0)


@numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _order_value(w):  # type: ignore[no-untyped-def]
    """Depth order 1 − 2·NEAR/z, float64; grows with z."""
    return 1.0 - 2.0 * NEAR / np.float64(w)


@numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _open_edge(dx, dy):  # type: ignore[no-untyped-def]
    """1 for an edge that does not own the centres on it (right, bottom), else 0."""
    return np.int64((dy > 0) | ((dy == 0) & (dx <= 0)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _plane(x0, y0, w0, x1, y1, w1, x2, y2, w2, area):  # type: ignore[no-untyped-def]
    """Origin (x, y), value there and slopes of the order value over the screen, for corners in positive
    winding.

    The origin is the topmost, then leftmost corner: the same triangle gets the same float64 bits from
    whichever corner and in whichever winding it is listed, so that a duplicate is an exact tie.
    """
    if (y1 < y0 or (y1 == y0 and x1 < x0)) and (y1 < y2 or (y1 == y2 and x1 < x2)):
        x0, y0, w0, x1, y1, w1, x2, y2, w2 = x1, y1, w1, x2, y2, w2, x0, y0, w0
    elif (y2 < y0 or (y2 == y0 and x2 < x0)) and (y2 < y1 or (y2 == y1 and x2 < x1)):
        x0, y0, w0, x1, y1, w1, x2, y2, w2 = x2, y2, w2, x0, y0, w0, x1, y1, w1
    d0 = _order_value(w0)
    rise1, rise2 = _order_value(w1) - d0, _order_value(w2) - d0
    inverse = 1.0 / np.float64(area)
    slope_x = (rise1 * np.float64(y2 - y0) - rise2 * np.float64(y1 - y0)) * inverse
    slope_y = (rise2 * np.float64(x1 - x0) - rise1 * np.float64(x2 - x0)) * inverse
    return x0, y0, d0, slope_x, slope_y


@numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _span(value, step, first, last):  # type: ignore[no-untyped-def]
    """Narrow columns [first, last] to those with ``value − step·j ≥ 0``."""
    if step > 0:
        return first, min(last, value // step)
    if step < 0:
        return max(first, -(value // -step)), last
    if value < 0:
        return first, first - 1
    return first, last


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fill_triangle(x0, y0, w0, x1, y1, w1, x2, y2, w2, face, window, order, owner):  # type: ignore[no-untyped-def]
    """Draw one triangle into rows [top, bottom) and columns [left, right) of ``order`` and ``owner``.

    Corners: int64 x, y in 1/16 px with the centre of pixel (row i, column j) at (16j, 16i), float32 w =
    camera z. ``window`` int64 (4,): top, bottom, left, right. ``order`` float64 (H, W), ``owner`` int32 (H,
    W).
    """
    area = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
    if area == 0:
        return
    if area < 0:
        area = -area
        x1, y1, w1, x2, y2, w2 = x2, y2, w2, x1, y1, w1
    top = max(window[0], (min(y0, y1, y2) + 15) >> 4)
    bottom = min(window[1] - 1, max(y0, y1, y2) >> 4)
    left = max(window[2], (min(x0, x1, x2) + 15) >> 4)
    right = min(window[3] - 1, max(x0, x1, x2) >> 4)

    dx0, dy0 = x1 - x0, y1 - y0
    dx1, dy1 = x2 - x1, y2 - y1
    dx2, dy2 = x0 - x2, y0 - y2
    # Edge functions at pixel (0, 0); they change by ∓16·(dy, dx) a (column, row). Below zero is outside.
    e0 = x0 * dy0 - y0 * dx0 - _open_edge(dx0, dy0)
    e1 = x1 * dy1 - y1 * dx1 - _open_edge(dx1, dy1)
    e2 = x2 * dy2 - y2 * dx2 - _open_edge(dx2, dy2)
    step0, step1, step2 = dy0 << 4, dy1 << 4, dy2 << 4
    if right - left < _NARROW:
        planned = False
        ox, oy, base, slope_x, slope_y = x0, y0, 0.0, 0.0, 0.0
        for i in range(top, bottom + 1):
            y = i << 4
            r0, r1, r2 = e0 + y * dx0, e1 + y * dx1, e2 + y * dx2
            for j in range(left, right + 1):
                if (r0 - step0 * j) | (r1 - step1 * j) | (r2 - step2 * j) < 0:
                    continue
                if not planned:  # most small triangles own no centre, and need no plane
                    ox, oy, base, slope_x, slope_y = _plane(x0, y0, w0, x1, y1, w1, x2, y2, w2, area)
                    planned = True
                value = (base + slope_y * np.float64(y - oy)) + slope_x * np.float64((j << 4) - ox)
                if value <= order[i, j]:
                    order[i, j] = value
                    owner[i, j] = face
        return
    ox, oy, base, slope_x, slope_y = _plane(x0, y0, w0, x1, y1, w1, x2, y2, w2, area)
    for i in range(top, bottom + 1):
        y = i << 4
        first, last = _span(e0 + y * dx0, step0, left, right)
        first, last = _span(e1 + y * dx1, step1, first, last)
        first, last = _span(e2 + y * dx2, step2, first, last)
        row = base + slope_y * np.float64(y - oy)
        for j in range(first, last + 1):
            value = row + slope_x * np.float64((j << 4) - ox)
            if value <= order[i, j]:
                order[i, j] = value
                owner[i, j] = face


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _outside(c0, c1, c2):  # type: ignore[no-untyped-def]
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
        if before * here < _ZERO and kept < _MOST_CORNERS:
            share = before / (before - here)
            rest = _ONE - share
            out[kept, 0] = polygon[last, 0] * rest + polygon[k, 0] * share
            out[kept, 1] = polygon[last, 1] * rest + polygon[k, 1] * share
            kept += 1
        if here >= _ZERO and kept < _MOST_CORNERS:
            out[kept, 0] = polygon[k, 0]
            out[kept, 1] = polygon[k, 1]
            kept += 1
        last = k
        before = here
    return kept


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _clip_triangle(c0, c1, c2, polygon, scratch):  # type: ignore[no-untyped-def]
    """Clip the triangle with corners (x, y, z, w) to the frustum.

    ``polygon`` and ``scratch`` are float32 (_MOST_CORNERS, 2); the corners' (s, t) end up in ``polygon``.
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _corner(clip, vertex, tile, out):  # type: ignore[no-untyped-def]
    """(x, y, z, w) of a vertex in the tile's clip space, float32."""
    w = clip[vertex, 2]
    out[0] = clip[vertex, 0] * tile[0] + w * tile[1]
    out[1] = clip[vertex, 1] * tile[2] + w * tile[3]
    out[2] = w - _NEAR2
    out[3] = w


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _mix(a, b, c, s, t, k):  # type: ignore[no-untyped-def]
    """Clip coordinate k at barycentric (s, t) of a triangle."""
    return a[k] + (b[k] - a[k]) * s + (c[k] - a[k]) * t


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _snap_clipped(value, reciprocal, scale):  # type: ignore[no-untyped-def]
    """Snapped coordinate of a clipped corner; int64, saturated (a corner of the frustum's tip may be
    anywhere).
    """
    scaled = value * reciprocal * scale
    if scaled != scaled:
        return np.int64(0)
    # Adding and subtracting 1.5·2^23 rounds a float32 below 2^22 to an integer, half to even.
    return np.int64((min(max(scaled, -_CLAMP), _CLAMP) + _ROUND) - _ROUND)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fill_clipped(clip, faces, face, tile, grid, window, corners, order, owner):  # type: ignore[no-untyped-def]
    """Clip one face to the frustum and fill the fan of what is left."""
    a, b, c = corners[0, :4], corners[1, :4], corners[2, :4]
    _corner(clip, faces[face, 0], tile, a)
    _corner(clip, faces[face, 1], tile, b)
    _corner(clip, faces[face, 2], tile, c)
    if _outside(a, b, c):
        return
    polygon = np.empty((_MOST_CORNERS, 2), np.float32)
    scratch = np.empty((_MOST_CORNERS, 2), np.float32)
    count = _clip_triangle(a, b, c, polygon, scratch)
    x = np.empty(_MOST_CORNERS, np.int64)
    y = np.empty(_MOST_CORNERS, np.int64)
    w = np.empty(_MOST_CORNERS, np.float32)
    for k in range(count):
        s, t = polygon[k, 0], polygon[k, 1]
        w[k] = _mix(a, b, c, s, t, 3)
        reciprocal = _ONE / w[k]
        x[k] = _snap_clipped(_mix(a, b, c, s, t, 0), reciprocal, tile[4]) + grid[0]
        y[k] = _snap_clipped(_mix(a, b, c, s, t, 1), reciprocal, tile[5]) + grid[1]
    for k in range(1, count - 1):
        _fill_triangle(
            x[0], y[0], w[0], x[k], y[k], w[k], x[k + 1], y[k + 1], w[k + 1], face, window, order, owner
        )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def band_kernel(clip, snapped, faces, kept, chunks, tile, grid, top, bottom, order, owner):  # type: ignore[no-untyped-def]
    """Fill rows [top, bottom) of a tile. ``order`` and ``owner`` are the tile's views; ``chunks`` int64 (C,
    2): start and number of the kept faces of each chunk, in face order.
    """
    window = np.array([top, bottom, 0, grid[2] + 1], np.int64)
    corners = np.empty((3, 4), np.float32)
    for i in range(top, bottom):
        for j in range(grid[2] + 1):
            order[i, j] = np.inf
            owner[i, j] = MISS
    for chunk in range(len(chunks)):
        for n in range(chunks[chunk, 0], chunks[chunk, 0] + chunks[chunk, 1]):
            rows = kept[n, 1]
            if (rows & 0xFFFF) >= bottom or (rows >> 16) < top:
                continue
            f = kept[n, 0]
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            xa, ya = np.int64(snapped[a, 0]), np.int64(snapped[a, 1])
            xb, yb = np.int64(snapped[b, 0]), np.int64(snapped[b, 1])
            xc, yc = np.int64(snapped[c, 0]), np.int64(snapped[c, 1])
            low = min(xa, xb, xc, ya, yb, yc)
            if low == NOT_SNAPPED or max(xa, xb, xc, ya, yb, yc) - low > SPAN_LIMIT:
                _fill_clipped(clip, faces, f, tile, grid, window, corners, order, owner)
                continue
            _fill_triangle(
                xa + grid[0], ya + grid[1], clip[a, 2],
                xb + grid[0], yb + grid[1], clip[b, 2],
                xc + grid[0], yc + grid[1], clip[c, 2],
                f, window, order, owner,
            )  # fmt: skip
