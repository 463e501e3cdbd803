"""Which points have no triangle within a given distance: the question behind unsigned distances to a surface.

Only a yes or no is asked, so the search stops at the first triangle that is near enough, and boxes that are
farther than the limit are never opened.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.box_tree import LEAF

_STACK = 64


@njit(cache=True, nogil=True)
def clear_of_surface(
    boxes: np.ndarray, corners: np.ndarray, points: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Whether every triangle is farther from a point than the point's limit; bool (P,).

    boxes : float32 (2 m, 6), from ``box_tree``. corners : float64 (T, 9), in the tree's order.
    points : float64 (P, 3). limits : float64 (P,), not negative.
    """
    clear = np.empty(len(points), dtype=np.bool_)
    stack = np.empty(_STACK, dtype=np.int64)
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        clear[i] = not _any_within(boxes, corners, x, y, z, limits[i] * limits[i], stack)
    return clear


@njit(cache=True, nogil=True)
def _any_within(
    boxes: np.ndarray, corners: np.ndarray, x: float, y: float, z: float, limit: float, stack: np.ndarray
) -> bool:
    """Whether a triangle lies within the square root of ``limit`` of (x, y, z)."""
    leaves = len(boxes) // 2
    stack[0] = 1
    height = 1
    while height > 0:
        height -= 1
        node = stack[height]
        if node >= leaves:
            first = (node - leaves) * LEAF
            for f in range(first, min(first + LEAF, len(corners))):
                if square_distance(corners[f], x, y, z) <= limit:
                    return True
            continue
        left = _box_distance(boxes[2 * node], x, y, z)
        right = _box_distance(boxes[2 * node + 1], x, y, z)
        # The nearer child goes on top: it is where a triangle within the limit is likelier.
        near, far = 2 * node, 2 * node + 1
        if right < left:
            near, far = far, near
            left, right = right, left
        if right <= limit:
            stack[height] = far
            height += 1
        if left <= limit:
            stack[height] = near
            height += 1
    return False


@njit(cache=True, nogil=True)
def _box_distance(box: np.ndarray, x: float, y: float, z: float) -> float:
    """Square of the distance to a box, a shade less than its triangles' for all rounding; inf for an empty
    box.
    """
    dx = max(np.float64(box[0]) - x, 0.0, x - np.float64(box[3]))
    dy = max(np.float64(box[1]) - y, 0.0, y - np.float64(box[4]))
    dz = max(np.float64(box[2]) - z, 0.0, z - np.float64(box[5]))
    return (dx * dx + dy * dy + dz * dz) * (1.0 - 1e-12)


@njit(cache=True, nogil=True)
def square_distance(t: np.ndarray, x: float, y: float, z: float) -> float:
    """Square of the distance from (x, y, z) to the triangle ``t`` (float64 (9,)), degenerate ones included.

    The foot on the plane when it lies inside, else the nearest point of the three sides.
    """
    ax, ay, az = t[0] - x, t[1] - y, t[2] - z
    bx, by, bz = t[3] - x, t[4] - y, t[5] - z
    cx, cy, cz = t[6] - x, t[7] - y, t[8] - z
    ux, uy, uz = t[3] - t[0], t[4] - t[1], t[5] - t[2]
    vx, vy, vz = t[6] - t[3], t[7] - t[4], t[8] - t[5]
    wx, wy, wz = t[0] - t[6], t[1] - t[7], t[2] - t[8]
    nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    square = nx * nx + ny * ny + nz * nz
    if square > 0.0:
        # Signs of n · (u × (q − a)) and so on: on which side of each edge the foot lies.
        s0 = nx * (uz * ay - uy * az) + ny * (ux * az - uz * ax) + nz * (uy * ax - ux * ay)
        s1 = nx * (vz * by - vy * bz) + ny * (vx * bz - vz * bx) + nz * (vy * bx - vx * by)
        s2 = nx * (wz * cy - wy * cz) + ny * (wx * cz - wz * cx) + nz * (wy * cx - wx * cy)
        if s0 >= 0.0 and s1 >= 0.0 and s2 >= 0.0:
            height = nx * ax + ny * ay + nz * az
            return float(height * height / square)
    side = _segment_distance(ax, ay, az, ux, uy, uz)
    side = min(side, _segment_distance(bx, by, bz, vx, vy, vz))
    return min(side, _segment_distance(cx, cy, cz, wx, wy, wz))


@njit(cache=True, nogil=True)
def _segment_distance(x: float, y: float, z: float, ux: float, uy: float, uz: float) -> float:
    """Square of the origin's distance to the segment from (x, y, z) along u."""
    length = ux * ux + uy * uy + uz * uz
    along = -(x * ux + y * uy + z * uz)
    if along > 0.0 and length > 0.0:
        step = min(along / length, 1.0)
        x, y, z = x + step * ux, y + step * uy, z + step * uz
    return x * x + y * y + z * z
