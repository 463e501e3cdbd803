"""Exact orientation signs of points whose coordinates are float32 values held in float64.

Float32 values have 24-bit mantissas, so a product of two is exact in float64 and a product of three is
exactly a pair of float64. Every determinant below is therefore a short sum of float64 terms, and its sign
follows from adding them up without rounding (Shewchuk, "Adaptive precision floating-point arithmetic and
fast robust geometric predicates", 1997). A float64 evaluation with a certified error bound comes first;
exact sums are for the few signs that it leaves open. With float32 input nothing here can overflow or
underflow.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EPS = 2.0**-53
"""Largest relative error of one rounded float64 operation."""
BOUND_2D = (3.0 + 16.0 * EPS) * EPS
BOUND_3D = (7.0 + 56.0 * EPS) * EPS
_SPLITTER = 2.0**27 + 1.0
# A rounded sum of 48 terms, compensated once: error below EPS·|sum| + (48·EPS)²·Σ|terms|, with room to spare.
_BOUND_COMPENSATED = 8192.0 * EPS * EPS
_TERMS = 48


@njit(cache=True, nogil=True)
def two_sum(a: float, b: float) -> tuple[float, float]:
    """``a + b`` rounded, and what the rounding lost (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


@njit(cache=True, nogil=True)
def two_product(a: float, b: float) -> tuple[float, float]:
    """``a · b`` rounded, and what the rounding lost (Dekker, Veltkamp's splitting)."""
    product = a * b
    spread = _SPLITTER * a
    a_high = spread - (spread - a)
    a_low = a - a_high
    spread = _SPLITTER * b
    b_high = spread - (spread - b)
    b_low = b - b_high
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


@njit(cache=True, nogil=True)
def sum_sign(terms: np.ndarray, count: int) -> int:
    """Sign of the exact sum of ``terms[:count]`` (float64); −1, 0 or 1."""
    total = 0.0
    lost = 0.0
    size = 0.0
    for i in range(count):
        total, tail = two_sum(total, terms[i])
        lost += tail
        size += abs(terms[i])
    estimate = total + lost
    if abs(estimate) > 4.0 * EPS * abs(estimate) + _BOUND_COMPENSATED * size:
        return 1 if estimate > 0.0 else -1
    # The open case: grow a non-overlapping expansion; its largest component carries the sign.
    expansion = np.empty(count)
    length = 0
    for i in range(count):
        carry = terms[i]
        kept = 0
        for k in range(length):
            carry, tail = two_sum(carry, expansion[k])
            if tail != 0.0:
                expansion[kept] = tail
                kept += 1
        if carry != 0.0:
            expansion[kept] = carry
            kept += 1
        length = kept
    if length == 0:
        return 0
    return 1 if expansion[length - 1] > 0.0 else -1


@njit(cache=True, nogil=True)
def orient_2d_exact(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """``orient_2d`` without the filter."""
    terms = np.empty(6)
    terms[0] = ax * by
    terms[1] = -(ax * cy)
    terms[2] = -(cx * by)
    terms[3] = -(ay * bx)
    terms[4] = ay * cx
    terms[5] = cy * bx
    return sum_sign(terms, 6)


@njit(cache=True, nogil=True)
def orient_2d(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """Sign of (a − c) × (b − c): 1 when a, b, c turn left, 0 when they lie on one line."""
    left = (ax - cx) * (by - cy)
    right = (ay - cy) * (bx - cx)
    det = left - right
    bound = BOUND_2D * (abs(left) + abs(right))
    if det > bound:
        return 1
    if -det > bound:
        return -1
    if bound == 0.0:
        return 0
    return orient_2d_exact(ax, ay, bx, by, cx, cy)


@njit(cache=True, nogil=True)
def _add_triple(
    terms: np.ndarray, at: int, sign: float,
    px: float, py: float, pz: float, qx: float, qy: float, qz: float, rx: float, ry: float, rz: float,
) -> int:  # fmt: skip
    """Write the 12 terms of ``sign · p · (q × r)`` from position ``at`` on; the position after them."""
    terms[at], terms[at + 1] = two_product(sign * px * qy, rz)
    terms[at + 2], terms[at + 3] = two_product(-sign * px * qz, ry)
    terms[at + 4], terms[at + 5] = two_product(sign * py * qz, rx)
    terms[at + 6], terms[at + 7] = two_product(-sign * py * qx, rz)
    terms[at + 8], terms[at + 9] = two_product(sign * pz * qx, ry)
    terms[at + 10], terms[at + 11] = two_product(-sign * pz * qy, rx)
    return at + 12


@njit(cache=True, nogil=True)
def orient_3d_exact(
    ax: float, ay: float, az: float, bx: float, by: float, bz: float,
    cx: float, cy: float, cz: float, dx: float, dy: float, dz: float,
) -> int:  # fmt: skip
    """``orient_3d`` without the filter."""
    terms = np.empty(_TERMS)
    at = _add_triple(terms, 0, 1.0, ax, ay, az, bx, by, bz, cx, cy, cz)
    at = _add_triple(terms, at, -1.0, ax, ay, az, bx, by, bz, dx, dy, dz)
    at = _add_triple(terms, at, 1.0, ax, ay, az, cx, cy, cz, dx, dy, dz)
    at = _add_triple(terms, at, -1.0, bx, by, bz, cx, cy, cz, dx, dy, dz)
    return sum_sign(terms, at)


@njit(cache=True, nogil=True)
def orient_3d_filtered(
    ax: float, ay: float, az: float, bx: float, by: float, bz: float,
    cx: float, cy: float, cz: float, dx: float, dy: float, dz: float,
) -> int:  # fmt: skip
    """``orient_3d`` from float64 alone; 2 when float64 cannot tell."""
    adx, ady, adz = ax - dx, ay - dy, az - dz
    bdx, bdy, bdz = bx - dx, by - dy, bz - dz
    cdx, cdy, cdz = cx - dx, cy - dy, cz - dz
    yz, zy = bdy * cdz, bdz * cdy
    zx, xz = bdz * cdx, bdx * cdz
    xy, yx = bdx * cdy, bdy * cdx
    det = adx * (yz - zy) + ady * (zx - xz) + adz * (xy - yx)
    bound = BOUND_3D * (
        abs(adx) * (abs(yz) + abs(zy)) + abs(ady) * (abs(zx) + abs(xz)) + abs(adz) * (abs(xy) + abs(yx))
    )
    if det > bound:
        return 1
    if -det > bound:
        return -1
    if bound == 0.0:
        return 0
    return 2


@njit(cache=True, nogil=True)
def orient_3d(
    ax: float, ay: float, az: float, bx: float, by: float, bz: float,
    cx: float, cy: float, cz: float, dx: float, dy: float, dz: float,
) -> int:  # fmt: skip
    """Sign of (a − d) · ((b − d) × (c − d)): 0 exactly when the four points lie in one plane."""
    sign = orient_3d_filtered(ax, ay, az, bx, by, bz, cx, cy, cz, dx, dy, dz)
    if sign != 2:
        return sign
    return orient_3d_exact(ax, ay, az, bx, by, bz, cx, cy, cz, dx, dy, dz)


@njit(cache=True, nogil=True)
def collinear(
    ax: float, ay: float, az: float, bx: float, by: float, bz: float, cx: float, cy: float, cz: float
) -> bool:
    """Whether a, b and c lie exactly on one line (coincident points do)."""
    return (
        orient_2d(ax, ay, bx, by, cx, cy) == 0
        and orient_2d(ay, az, by, bz, cy, cz) == 0
        and orient_2d(az, ax, bz, bx, cz, cx) == 0
    )
