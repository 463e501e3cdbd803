"""Proofs that two triangles lie apart, by a plane between them whose side of each corner float64 can tell
for certain.

A proof that fails says nothing. They spare the exact tests to flat neighbourhoods, where the signs of
determinants are open. Triangles are rows as in ``triangle_pairs``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from scorer.geometry.predicates import EPS

NORMAL = 9
"""Where a row holds its triangle's normal."""
_DOT_BOUND = 8.0 * EPS
"""Error of (p − q) · d by the size of its terms: a rounding each for difference and product, two for the
sums.
"""


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
def parted_at_corner(t: np.ndarray, i: int, p: int, j: int, q: int) -> bool:
    """Proof that the triangles meet in the common corner only: a plane through it with one on either side.

    A failed proof says nothing. It spares the exact tests to flat neighbourhoods, where float64 signs are
    open.
    """
    x = y = z = 0.0
    for k in range(4):
        ux, uy, uz = _ray(t, i, p, j, q, k)
        sign = -1.0 if k < 2 else 1.0
        x += sign * ux
        y += sign * uy
        z += sign * uz
    if _parted_at_corner_along(t, i, p, j, q, x, y, z):
        return True
    # A plane upright on i that halves the angle between a side of i and one of j.
    nx, ny, nz = t[i, NORMAL], t[i, NORMAL + 1], t[i, NORMAL + 2]
    for k in range(4):
        ux, uy, uz = _ray(t, i, p, j, q, k // 2)
        vx, vy, vz = _ray(t, i, p, j, q, 2 + k % 2)
        x, y, z = ux + vx, uy + vy, uz + vz
        if _parted_at_corner_along(t, i, p, j, q, ny * z - nz * y, nz * x - nx * z, nx * y - ny * x):
            return True
    return False


@njit(cache=True, nogil=True)
def _ray(t: np.ndarray, i: int, p: int, j: int, q: int, k: int) -> tuple[float, float, float]:
    """Unit vector from the common corner along a side: k = 0, 1 of triangle i, k = 2, 3 of triangle j."""
    row = i if k < 2 else j
    own = 3 * (p if k < 2 else q)
    other = (own + 3 + 3 * (k % 2)) % 9
    x, y, z = (
        t[row, other] - t[row, own],
        t[row, other + 1] - t[row, own + 1],
        t[row, other + 2] - t[row, own + 2],
    )
    scale = 1.0 / math.sqrt(x * x + y * y + z * z)
    return x * scale, y * scale, z * scale


@njit(cache=True, nogil=True)
def _parted_at_corner_along(
    t: np.ndarray, i: int, p: int, j: int, q: int, dx: float, dy: float, dz: float
) -> bool:
    """Proof that along d the other corners of i and those of j lie on different sides of the common one."""
    low_i = low_j = math.inf
    high_i = high_j = -math.inf
    for k in range(1, 3):
        value, error = _dot(t, i, p, i, (p + k) % 3, dx, dy, dz)
        low_i = min(low_i, value - error)
        high_i = max(high_i, value + error)
        value, error = _dot(t, i, p, j, (q + k) % 3, dx, dy, dz)
        low_j = min(low_j, value - error)
        high_j = max(high_j, value + error)
    return (high_i < 0.0 and low_j > 0.0) or (low_i > 0.0 and high_j < 0.0)


@njit(cache=True, nogil=True)
def parted(t: np.ndarray, i: int, j: int) -> bool:
    """Proof that (nearly) coplanar triangles are disjoint: a line in their plane, along one of six sides."""
    for side in range(6):
        one = i if side < 3 else j
        a = 3 * (side % 3)
        b = (a + 3) % 9
        ex, ey, ez = t[one, b] - t[one, a], t[one, b + 1] - t[one, a + 1], t[one, b + 2] - t[one, a + 2]
        nx, ny, nz = t[one, NORMAL], t[one, NORMAL + 1], t[one, NORMAL + 2]
        if _parted_along(t, i, j, ny * ez - nz * ey, nz * ex - nx * ez, nx * ey - ny * ex):
            return True
    return False


@njit(cache=True, nogil=True)
def _parted_along(t: np.ndarray, i: int, j: int, dx: float, dy: float, dz: float) -> bool:
    """Proof that i and j lie apart in direction d, either way round."""
    high_i = high_j = -math.inf
    low_i = low_j = math.inf
    for k in range(3):
        value, error = _dot(t, i, 0, i, k, dx, dy, dz)
        high_i = max(high_i, value + error)
        low_i = min(low_i, value - error)
        value, error = _dot(t, i, 0, j, k, dx, dy, dz)
        high_j = max(high_j, value + error)
        low_j = min(low_j, value - error)
    return low_j > high_i or high_j < low_i
