"""Whether two triangles of one mesh intersect, exactly.

The rule is that of libigl's ``remesh_self_intersections``: corners at equal coordinates count as shared.

* three shared: never;
* two shared: only when the triangles lie in one plane and on the same side of the shared edge. libigl asks
  whether their supporting planes are equal, and those it rounds to float64; so do we, see ``_equal_planes``;
* one shared: when the side opposite the shared corner of either triangle meets the other triangle;
* none shared: when the triangles meet at all; touching counts.

Triangles are rows of a float64 (n, ROW) array made by ``write_row``; none of them is degenerate. Float64
signs with certified error bounds settle nearly all pairs, exact predicates the rest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.predicates import BOUND_3D, EPS, collinear, orient_2d, orient_3d, two_product
from scorer.geometry.separation import NORMAL, parted, parted_at_corner

ROW = 15
"""Nine coordinates of float32 values, the rounded normal, and the sums of the sizes of the normal's terms."""
_TERMS = 12
_UNKNOWN = 2


@njit(cache=True, nogil=True)
def write_row(vertices: np.ndarray, face: np.ndarray, row: np.ndarray) -> bool:
    """Fill ``row``, float64 (ROW,), for a face of float32 vertices; False when its corners are in line."""
    for k in range(3):
        for axis in range(3):
            row[3 * k + axis] = vertices[face[k], axis]
    certain = False
    for axis in range(3):
        u = (axis + 1) % 3
        v = (axis + 2) % 3
        left = (row[3 + u] - row[u]) * (row[6 + v] - row[v])
        right = (row[3 + v] - row[v]) * (row[6 + u] - row[u])
        row[NORMAL + axis] = left - right
        row[_TERMS + axis] = abs(left) + abs(right)
        certain |= abs(left - right) > 4.0 * EPS * row[_TERMS + axis]
    return certain or not collinear(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8])


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
        return _no_corner(t, i, j)
    if shared == 1:
        return _one_corner(t, i, first_i, j, first_j)
    if shared == 2:
        return _folded(t, i, first_i, second_i, j, 3 - first_j - second_j)
    return False


@njit(cache=True, nogil=True)
def _side(t: np.ndarray, i: int, j: int, k: int) -> int:
    """Side of the plane of triangle i on which corner k of j lies; _UNKNOWN when float64 cannot tell."""
    x = t[j, 3 * k] - t[i, 0]
    y = t[j, 3 * k + 1] - t[i, 1]
    z = t[j, 3 * k + 2] - t[i, 2]
    value = x * t[i, NORMAL] + y * t[i, NORMAL + 1] + z * t[i, NORMAL + 2]
    bound = BOUND_3D * (abs(x) * t[i, _TERMS] + abs(y) * t[i, _TERMS + 1] + abs(z) * t[i, _TERMS + 2])
    # Signs as in orient_3d of the corners of i and the point.
    if value > bound:
        return -1
    if -value > bound:
        return 1
    return 0 if bound == 0.0 else _UNKNOWN


@njit(cache=True, nogil=True)
def _turn(t: np.ndarray, i: int, a: int, b: int, c: int, j: int, d: int) -> int:
    """``orient_3d`` of corners a, b of i, c of i or (less 3) of j, and d of j."""
    row = i if c < 3 else j
    c = c if c < 3 else c - 3
    return orient_3d(
        t[i, 3 * a], t[i, 3 * a + 1], t[i, 3 * a + 2], t[i, 3 * b], t[i, 3 * b + 1], t[i, 3 * b + 2],
        t[row, 3 * c], t[row, 3 * c + 1], t[row, 3 * c + 2], t[j, 3 * d], t[j, 3 * d + 1], t[j, 3 * d + 2],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _exact_sides(t: np.ndarray, i: int, j: int, sides: np.ndarray, first: int) -> int:
    """Write the exact sides of j's corners against the plane of i from ``first`` on; their sum."""
    total = 0
    for k in range(3):
        sides[first + k] = _turn(t, i, 0, 1, 2, j, k)
        total += sides[first + k]
    return total


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
    axis = 0
    for k in range(1, 3):
        if abs(t[i, NORMAL + k]) > abs(t[i, NORMAL + axis]):
            axis = k
    for _ in range(2):
        if _flat(t, i, 0, 1, i, 2, axis) != 0:
            break
        axis = (axis + 1) % 3
    return axis


@njit(cache=True, nogil=True)
def _folded(t: np.ndarray, i: int, a: int, b: int, j: int, apex: int) -> bool:
    """Two triangles on one edge (corners a, b of i): whether j's apex lies on i's side, in i's plane."""
    side = _side(t, i, j, apex)
    if side != 0 and side != _UNKNOWN:
        return False
    axis = _axis(t, i)
    if _flat(t, i, a, b, i, 3 - a - b, axis) * _flat(t, i, a, b, j, apex, axis) <= 0:
        return False
    return _turn(t, i, 0, 1, 2, j, apex) == 0 and _equal_planes(t, i, j)


@njit(cache=True, nogil=True)
def _plane(t: np.ndarray, i: int) -> tuple[float, float, float, float]:
    """Plane through a triangle, its coefficients rounded in the order of CGAL's construction."""
    px = t[i, 0] - t[i, 6]
    py = t[i, 1] - t[i, 7]
    pz = t[i, 2] - t[i, 8]
    qx = t[i, 3] - t[i, 6]
    qy = t[i, 4] - t[i, 7]
    qz = t[i, 5] - t[i, 8]
    a = py * qz - qy * pz
    b = pz * qx - qz * px
    c = px * qy - qx * py
    return a, b, c, -a * t[i, 6] - b * t[i, 7] - c * t[i, 8]


@njit(cache=True, nogil=True)
def _proportional(a: float, b: float, c: float, d: float) -> bool:
    """Whether ``a · d = b · c``, exactly."""
    left, left_tail = two_product(a, d)
    right, right_tail = two_product(b, c)
    return left == right and left_tail == right_tail


@njit(cache=True, nogil=True)
def _equal_planes(t: np.ndarray, i: int, j: int) -> bool:
    """Whether two supporting planes, as rounded, are equal or opposite.

    Where the coefficients of a plane need more than 53 bits (two triangles folded onto each other at height
    0.7, say) the rounded planes differ and the fold goes unseen. The protocol's values are made so.
    """
    one = _plane(t, i)
    other = _plane(t, j)
    for u in range(3):
        for v in range(u + 1, 3):
            if not _proportional(one[u], one[v], other[u], other[v]):
                return False
    for axis in range(3):
        if one[axis] != 0.0:
            return other[axis] != 0.0 and _proportional(other[axis], other[3], one[axis], one[3])
    return False


@njit(cache=True, nogil=True)
def _one_corner(t: np.ndarray, i: int, p: int, j: int, q: int) -> bool:
    """Triangles with one common corner: p of i is q of j."""
    first = _side(t, i, j, (q + 1) % 3)
    if abs(first) == 1 and first == _side(t, i, j, (q + 2) % 3):
        return False
    first = _side(t, j, i, (p + 1) % 3)
    if abs(first) == 1 and first == _side(t, j, i, (p + 2) % 3):
        return False
    if parted_at_corner(t, i, p, j, q):
        return False
    sides = np.empty(6, dtype=np.int64)
    _exact_sides(t, j, i, sides, 0)
    _exact_sides(t, i, j, sides, 3)
    return _segment_meets(t, i, (p + 1) % 3, sides[:3], j) or _segment_meets(t, j, (q + 1) % 3, sides[3:], i)


@njit(cache=True, nogil=True)
def _no_corner(t: np.ndarray, i: int, j: int) -> bool:
    """Triangles without a common corner."""
    j0, j1, j2 = _side(t, i, j, 0), _side(t, i, j, 1), _side(t, i, j, 2)
    if j0 == j1 and j1 == j2 and abs(j0) == 1:
        return False
    i0, i1, i2 = _side(t, j, i, 0), _side(t, j, i, 1), _side(t, j, i, 2)
    if i0 == i1 and i1 == i2 and abs(i0) == 1:
        return False
    if (max(j0, j1, j2) == _UNKNOWN or j0 * j1 * j2 == 0) and parted(t, i, j):
        return False
    sides = np.empty(6, dtype=np.int64)
    if abs(_exact_sides(t, j, i, sides, 0)) == 3 or abs(_exact_sides(t, i, j, sides, 3)) == 3:
        return False
    for side in range(6):
        one, other = (i, j) if side < 3 else (j, i)
        at = 0 if side < 3 else 3
        if _segment_meets(t, one, side - at, sides[at : at + 3], other):
            return True
    return False


@njit(cache=True, nogil=True)
def _segment_meets(t: np.ndarray, i: int, p: int, sides: np.ndarray, j: int) -> bool:
    """Whether the side of i from corner p on touches triangle j.

    sides : exact sides of the three corners of i against the plane of j.
    """
    q = (p + 1) % 3
    if sides[p] * sides[q] > 0:
        return False
    if sides[p] == 0 and sides[q] == 0:
        return _segment_meets_in_plane(t, i, p, q, j)
    # The line of the segment passes through the triangle when it turns the same way about all three sides.
    low = 1
    high = -1
    for a in range(3):
        turn = _turn(t, i, p, q, 3 + a, j, (a + 1) % 3)
        low = min(low, turn)
        high = max(high, turn)
        if low < 0 and high > 0:
            return False
    return True


@njit(cache=True, nogil=True)
def _segment_meets_in_plane(t: np.ndarray, i: int, p: int, q: int, j: int) -> bool:
    """Whether the segment of corners p, q of i, which lies in the plane of triangle j, touches it."""
    axis = _axis(t, j)
    turn = _flat(t, j, 0, 1, j, 2, axis)
    inside_p = inside_q = True
    for a in range(3):
        b = (a + 1) % 3
        side_p = _flat(t, j, a, b, i, p, axis)
        side_q = _flat(t, j, a, b, i, q, axis)
        inside_p &= side_p * turn >= 0
        inside_q &= side_q * turn >= 0
        if side_p * side_q > 0:
            continue
        side_a = _flat(t, i, p, q, j, a, axis)
        side_b = _flat(t, i, p, q, j, b, axis)
        if side_a * side_b > 0:
            continue
        if side_p != 0 or side_q != 0 or side_a != 0 or side_b != 0:
            return True
        if _overlap_on_line(t, i, p, q, j, a, b, axis):
            return True
    return inside_p or inside_q


@njit(cache=True, nogil=True)
def _overlap_on_line(t: np.ndarray, i: int, p: int, q: int, j: int, a: int, b: int, axis: int) -> bool:
    """Whether segments p q and a b of one line, coordinate ``axis`` left out, have a point in common."""
    for u in range(3):
        if u == axis:
            continue
        low = max(min(t[i, 3 * p + u], t[i, 3 * q + u]), min(t[j, 3 * a + u], t[j, 3 * b + u]))
        high = min(max(t[i, 3 * p + u], t[i, 3 * q + u]), max(t[j, 3 * a + u], t[j, 3 * b + u]))
        if low > high:
            return False
    return True
