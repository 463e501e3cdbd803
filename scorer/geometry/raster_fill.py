"""Which pixel centres a snapped triangle owns, and which of several triangles a pixel shows.

Exact integers decide coverage: left and top edges include the centres on them, right and bottom edges do not
(image terms, y down), so two triangles that share an edge never both own nor both miss a centre on it. The
order is decided by 1 − 2·NEAR/z, linear on the screen, in float64; the later face wins an exact tie.
"""

from __future__ import annotations

import numba
import numpy as np

from contract.constants import NEAR

_NARROW = 6
"""Boxes up to this many columns are tested pixel by pixel; wider ones solve each row's span by integer
division.
"""


@numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def order_value(w):  # type: ignore[no-untyped-def]
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
    d0 = order_value(w0)
    rise1, rise2 = order_value(w1) - d0, order_value(w2) - d0
    inverse = 1.0 / np.float64(area)
    slope_x = (rise1 * np.float64(y2 - y0) - rise2 * np.float64(y1 - y0)) * inverse
    slope_y = (rise2 * np.float64(x1 - x0) - rise1 * np.float64(x2 - x0)) * inverse
    return x0, y0, d0, slope_x, slope_y


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_triangle(x0, y0, w0, x1, y1, w1, x2, y2, w2, face, window, order, owner):  # type: ignore[no-untyped-def]
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
