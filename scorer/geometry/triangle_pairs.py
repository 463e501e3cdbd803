"""Whether two triangles of one mesh intersect, exactly.

The rule is that of libigl's ``remesh_self_intersections``: corners at equal coordinates count as shared.

* three shared: never;
* two shared: only when the triangles lie in one plane and on the same side of the shared edge;
* one shared: when the side opposite the shared corner of either triangle meets the other triangle;
* none shared: when the triangles meet at all; touching counts.

Triangles are rows of a float64 (n, 9) array, three corners of float32 values each, none of them degenerate.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from scorer.geometry.predicates import EPS, orient_2d, orient_3d, orient_3d_filtered

UNKNOWN = 2
_DOT_BOUND = 8.0 * EPS
"""Relative error of (p − q) · d by its terms: one rounding for the difference, one for the product, two for the sums."""


@njit(cache=True, nogil=True)
def triangles_intersect(t: np.ndarray, i: int, j: int) -> bool:
    """The rule above for rows ``i`` and ``j`` of ``t``."""
    shared = 0
    first_i = first_j = second_i = second_j = 0
    for a in range(3):
        for b in range(3):
            if (
                t[i, 3 * a] == t[j, 3 * b]
                and t[i, 3 * a + 1] == t[j, 3 * b + 1]
                and t[i, 3 * a + 2] == t[j, 3 * b + 2]
            ):
                if shared == 0:
                    first_i, first_j = a, b
                else:
                    second_i, second_j = a, b
                shared += 1
    if shared == 0:
        return _disjoint_corners(t, i, j)
    if shared == 1:
        return _one_corner(t, i, first_i, j, first_j)
    if shared == 2:
        return _folded(t, i, first_i, second_i, j, 3 - first_j - second_j)
    return False


@njit(cache=True, nogil=True)
def _side(t: np.ndarray, i: int, j: int, k: int) -> int:
    """Side of the plane of triangle i on which corner k of triangle j lies; UNKNOWN when float64 cannot tell."""
    return orient_3d_filtered(
        t[i, 0], t[i, 1], t[i, 2], t[i, 3], t[i, 4], t[i, 5], t[i, 6], t[i, 7], t[i, 8],
        t[j, 3 * k], t[j, 3 * k + 1], t[j, 3 * k + 2],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _settle(sign: int, t: np.ndarray, i: int, j: int, k: int) -> int:
    """``sign``, or the exact side when it is UNKNOWN."""
    if sign != UNKNOWN:
        return sign
    return orient_3d(
        t[i, 0], t[i, 1], t[i, 2], t[i, 3], t[i, 4], t[i, 5], t[i, 6], t[i, 7], t[i, 8],
        t[j, 3 * k], t[j, 3 * k + 1], t[j, 3 * k + 2],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _flat(t: np.ndarray, i: int, a: int, b: int, j: int, c: int, axis: int) -> int:
    """``orient_2d`` of corners a, b of triangle i and c of triangle j, coordinate ``axis`` left out."""
    u = axis + 1 if axis < 2 else 0
    v = 3 - axis - u
    return orient_2d(
        t[i, 3 * a + u], t[i, 3 * a + v], t[i, 3 * b + u], t[i, 3 * b + v], t[j, 3 * c + u], t[j, 3 * c + v]
    )


@njit(cache=True, nogil=True)
def _axis(t: np.ndarray, i: int) -> int:
    """A coordinate that can be left out without making triangle i degenerate; the best one by float64."""
    ux, uy, uz = t[i, 3] - t[i, 0], t[i, 4] - t[i, 1], t[i, 5] - t[i, 2]
    vx, vy, vz = t[i, 6] - t[i, 0], t[i, 7] - t[i, 1], t[i, 8] - t[i, 2]
    nx, ny, nz = abs(uy * vz - uz * vy), abs(uz * vx - ux * vz), abs(ux * vy - uy * vx)
    axis = 0
    if ny > nx:
        axis = 1
    if nz > max(nx, ny):
        axis = 2
    for step in range(3):
        candidate = (axis + step) % 3
        if _flat(t, i, 0, 1, i, 2, candidate) != 0:
            return candidate
    return axis


@njit(cache=True, nogil=True)
def _folded(t: np.ndarray, i: int, a: int, b: int, j: int, apex: int) -> bool:
    """Two triangles on one edge (corners a, b of i): overlap beyond it when the apex of j lies on i's side in i's plane."""
    axis = _axis(t, i)
    own = _flat(t, i, a, b, i, 3 - a - b, axis)
    if own * _flat(t, i, a, b, j, apex, axis) <= 0:
        return False
    return _settle(_side(t, i, j, apex), t, i, j, apex) == 0


@njit(cache=True, nogil=True)
def _one_corner(t: np.ndarray, i: int, p: int, j: int, q: int) -> bool:
    """Triangles with one common corner: p of i is q of j."""
    p1, p2 = (p + 1) % 3, (p + 2) % 3
    q1, q2 = (q + 1) % 3, (q + 2) % 3
    side_q1, side_q2 = _side(t, i, j, q1), _side(t, i, j, q2)
    if side_q1 == side_q2 and abs(side_q1) == 1:
        return False
    side_p1, side_p2 = _side(t, j, i, p1), _side(t, j, i, p2)
    if side_p1 == side_p2 and abs(side_p1) == 1:
        return False
    if _parted_at_corner(t, i, p, j, q):
        return False
    side_p1, side_p2 = _settle(side_p1, t, j, i, p1), _settle(side_p2, t, j, i, p2)
    if _segment_meets(t, i, p1, p2, side_p1, side_p2, j):
        return True
    side_q1, side_q2 = _settle(side_q1, t, i, j, q1), _settle(side_q2, t, i, j, q2)
    return _segment_meets(t, j, q1, q2, side_q1, side_q2, i)


@njit(cache=True, nogil=True)
def _disjoint_corners(t: np.ndarray, i: int, j: int) -> bool:
    """Triangles without a common corner."""
    j0, j1, j2 = _side(t, i, j, 0), _side(t, i, j, 1), _side(t, i, j, 2)
    if j0 == j1 and j1 == j2 and abs(j0) == 1:
        return False
    i0, i1, i2 = _side(t, j, i, 0), _side(t, j, i, 1), _side(t, j, i, 2)
    if i0 == i1 and i1 == i2 and abs(i0) == 1:
        return False
    if (max(j0, j1, j2) == UNKNOWN or j0 * j1 * j2 == 0) and _parted(t, i, j):
        return False
    j0, j1, j2 = _settle(j0, t, i, j, 0), _settle(j1, t, i, j, 1), _settle(j2, t, i, j, 2)
    if j0 == j1 and j1 == j2 and j0 != 0:
        return False
    i0, i1, i2 = _settle(i0, t, j, i, 0), _settle(i1, t, j, i, 1), _settle(i2, t, j, i, 2)
    if i0 == i1 and i1 == i2 and i0 != 0:
        return False
    return (
        _segment_meets(t, i, 0, 1, i0, i1, j)
        or _segment_meets(t, i, 1, 2, i1, i2, j)
        or _segment_meets(t, i, 2, 0, i2, i0, j)
        or _segment_meets(t, j, 0, 1, j0, j1, i)
        or _segment_meets(t, j, 1, 2, j1, j2, i)
        or _segment_meets(t, j, 2, 0, j2, j0, i)
    )


@njit(cache=True, nogil=True)
def _turn(t: np.ndarray, i: int, p: int, q: int, j: int, a: int, b: int) -> int:
    """Sense in which the line through corners p, q of i passes the line through corners a, b of j."""
    return orient_3d(
        t[i, 3 * p], t[i, 3 * p + 1], t[i, 3 * p + 2], t[i, 3 * q], t[i, 3 * q + 1], t[i, 3 * q + 2],
        t[j, 3 * a], t[j, 3 * a + 1], t[j, 3 * a + 2], t[j, 3 * b], t[j, 3 * b + 1], t[j, 3 * b + 2],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _segment_meets(t: np.ndarray, i: int, p: int, q: int, side_p: int, side_q: int, j: int) -> bool:
    """Whether the segment of corners p, q of i touches triangle j; the sides are exact, against the plane of j."""
    if side_p * side_q > 0:
        return False
    if side_p == 0 and side_q == 0:
        return _segment_meets_in_plane(t, i, p, q, j)
    first = _turn(t, i, p, q, j, 0, 1)
    second = _turn(t, i, p, q, j, 1, 2)
    if first * second < 0:
        return False
    third = _turn(t, i, p, q, j, 2, 0)
    return first * third >= 0 and second * third >= 0


@njit(cache=True, nogil=True)
def _segment_meets_in_plane(t: np.ndarray, i: int, p: int, q: int, j: int) -> bool:
    """The same when the segment lies in the plane of j."""
    axis = _axis(t, j)
    turn = _flat(t, j, 0, 1, j, 2, axis)
    p0, p1, p2 = _flat(t, j, 0, 1, i, p, axis), _flat(t, j, 1, 2, i, p, axis), _flat(t, j, 2, 0, i, p, axis)
    if p0 * turn >= 0 and p1 * turn >= 0 and p2 * turn >= 0:
        return True
    q0, q1, q2 = _flat(t, j, 0, 1, i, q, axis), _flat(t, j, 1, 2, i, q, axis), _flat(t, j, 2, 0, i, q, axis)
    if q0 * turn >= 0 and q1 * turn >= 0 and q2 * turn >= 0:
        return True
    # Both ends outside: the segment meets the triangle only by crossing a side.
    c0, c1, c2 = _flat(t, i, p, q, j, 0, axis), _flat(t, i, p, q, j, 1, axis), _flat(t, i, p, q, j, 2, axis)
    return (
        _cross(t, i, p, q, j, 0, 1, p0, q0, c0, c1, axis)
        or _cross(t, i, p, q, j, 1, 2, p1, q1, c1, c2, axis)
        or _cross(t, i, p, q, j, 2, 0, p2, q2, c2, c0, axis)
    )


@njit(cache=True, nogil=True)
def _cross(
    t: np.ndarray, i: int, p: int, q: int, j: int, a: int, b: int,
    side_p: int, side_q: int, side_a: int, side_b: int, axis: int,
) -> bool:  # fmt: skip
    """Whether segments p q and a b touch in the plane; sides of each end against the other segment's line given."""
    if side_p * side_q > 0 or side_a * side_b > 0:
        return False
    if side_p != 0 or side_q != 0 or side_a != 0 or side_b != 0:
        return True
    for u in range(3):
        if u == axis:
            continue
        low = max(min(t[i, 3 * p + u], t[i, 3 * q + u]), min(t[j, 3 * a + u], t[j, 3 * b + u]))
        high = min(max(t[i, 3 * p + u], t[i, 3 * q + u]), max(t[j, 3 * a + u], t[j, 3 * b + u]))
        if low > high:
            return False
    return True


@njit(cache=True, nogil=True)
def _dot(
    t: np.ndarray, i: int, p: int, j: int, q: int, dx: float, dy: float, dz: float
) -> tuple[float, float]:
    """(corner q of j − corner p of i) · d, and a bound of its rounding error."""
    x = (t[j, 3 * q] - t[i, 3 * p]) * dx
    y = (t[j, 3 * q + 1] - t[i, 3 * p + 1]) * dy
    z = (t[j, 3 * q + 2] - t[i, 3 * p + 2]) * dz
    return x + y + z, _DOT_BOUND * (abs(x) + abs(y) + abs(z))


@njit(cache=True, nogil=True)
def _parted_at_corner(t: np.ndarray, i: int, p: int, j: int, q: int) -> bool:
    """Certain proof that the triangles meet in the common corner only: a plane through it with one on either side.

    A failed proof says nothing. It spares the exact tests to flat neighbourhoods, where float64 signs are open.
    """
    dx = dy = dz = 0.0
    for k in range(1, 3):
        a, b = 3 * ((p + k) % 3), 3 * ((q + k) % 3)
        ux, uy, uz = t[i, a] - t[i, 3 * p], t[i, a + 1] - t[i, 3 * p + 1], t[i, a + 2] - t[i, 3 * p + 2]
        vx, vy, vz = t[j, b] - t[j, 3 * q], t[j, b + 1] - t[j, 3 * q + 1], t[j, b + 2] - t[j, 3 * q + 2]
        u = 1.0 / math.sqrt(ux * ux + uy * uy + uz * uz)
        v = 1.0 / math.sqrt(vx * vx + vy * vy + vz * vz)
        dx += vx * v - ux * u
        dy += vy * v - uy * u
        dz += vz * v - uz * u
    for k in range(1, 3):
        value, error = _dot(t, i, p, i, (p + k) % 3, dx, dy, dz)
        if value >= -error:
            return False
        value, error = _dot(t, i, p, j, (q + k) % 3, dx, dy, dz)
        if value <= error:
            return False
    return True


@njit(cache=True, nogil=True)
def _parted_along(t: np.ndarray, i: int, j: int, dx: float, dy: float, dz: float) -> bool:
    """Certain proof that i and j lie apart in direction d, either way round."""
    high_i = 0.0
    low_i = 0.0
    for k in range(1, 3):
        value, error = _dot(t, i, 0, i, k, dx, dy, dz)
        high_i = max(high_i, value + error)
        low_i = min(low_i, value - error)
    high_j = -math.inf
    low_j = math.inf
    for k in range(3):
        value, error = _dot(t, i, 0, j, k, dx, dy, dz)
        high_j = max(high_j, value + error)
        low_j = min(low_j, value - error)
    return low_j > high_i or high_j < low_i


@njit(cache=True, nogil=True)
def _parted(t: np.ndarray, i: int, j: int) -> bool:
    """Certain proof that (nearly) coplanar triangles are disjoint: a line in their plane, along one of the sides."""
    for k in range(2):
        one = i if k == 0 else j
        ux, uy, uz = t[one, 3] - t[one, 0], t[one, 4] - t[one, 1], t[one, 5] - t[one, 2]
        vx, vy, vz = t[one, 6] - t[one, 0], t[one, 7] - t[one, 1], t[one, 8] - t[one, 2]
        nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        for side in range(3):
            a, b = 3 * side, 3 * ((side + 1) % 3)
            ex, ey, ez = t[one, b] - t[one, a], t[one, b + 1] - t[one, a + 1], t[one, b + 2] - t[one, a + 2]
            if _parted_along(t, i, j, ny * ez - nz * ey, nz * ex - nx * ez, nx * ey - ny * ex):
                return True
    return False
