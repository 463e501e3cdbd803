"""Whether points have a winding number above one half, without summing over all triangles where possible.

Seen from a point, a surface covers a sphere of directions. Take from it the cone of its boundary over the
direction −r: what is left has no boundary, so it covers every direction equally often, and as the cone
misses r, that is as often as a ray along r crosses the surface, crossings from behind counted against the
others. The winding number is that number plus the solid angles of −r with the edges of the boundary, over 4π.
A surface without boundary needs the ray only.

A ray that comes too near an edge for float64 to tell sides is left open. What is open, and surfaces that are
nearly all boundary, go to the dipole tree, whose bound tells when it is sure, and what that leaves open to
the sum over all triangles. So every answer is that of exact winding numbers, up to points within rounding of
one half.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from scorer.geometry.box_tree import LEAF
from scorer.geometry.winding import winding_numbers
from scorer.geometry.winding_bounds import dipole_tree, winding_with_bound

THRESHOLD = 0.5
"""A point is inside when its absolute winding number is above this."""
_TIE = 1e-9
"""Numbers this near are one half, which a point in the plane of a flat opening has: not above."""

_LONG_BOUNDARY = 3000
"""Edges of a boundary from which on the dipole tree is faster."""
_FEW = 16
"""Points up to which the sum over all triangles is faster than making a dipole tree."""
_UNSURE = -(2**31)
"""In place of a number of crossings that float64 cannot tell."""
_TILT = (1.0, 0.0137, 0.0291)
"""Rays run nearly along an axis, where boxes are tight, but not quite: axis-aligned worlds are full of edges
straight above vertices."""
_DOUBT = 1e-12
"""Share of a determinant's largest terms below which its sign is not trusted."""
_STACK = 64
_COARSE, _FINE = 6.0, 10.0
"""How far away patches are, in their radii, that the two passes of the dipole tree take as a whole."""


def wound_points(
    vertices: np.ndarray,
    faces: np.ndarray,
    points: np.ndarray,
    boundary: np.ndarray,
    boxes: np.ndarray,
    corners: np.ndarray,
) -> np.ndarray:
    """Whether |winding number| > THRESHOLD; bool (P,).

    vertices : float32 (V, 3). faces : int (T, 3), at least one. points : float64 (P, 3), none of them on the
    surface. boundary : directed edges int64 (k, 2), from ``boundary.boundary_edges``. boxes : float32 (2 m,
    6), from ``box_tree``; corners : float64 (T, 9), in the tree's order.
    """
    wound: np.ndarray
    if len(boundary) < _LONG_BOUNDARY:
        rim, edges = np.unique(boundary, return_inverse=True)
        places = np.ascontiguousarray(vertices[rim].T, dtype=np.float64)
        numbers = numbers_by_rays(boxes, corners, places, edges.reshape(-1, 2), points)
        wound = np.abs(numbers) > THRESHOLD + _TIE
        rest = np.flatnonzero(np.isnan(numbers))
    else:
        wound = np.zeros(len(points), dtype=bool)
        rest = np.arange(len(points))
    if len(rest) > _FEW:
        answer = bounded(*dipole_tree(vertices, faces), points[rest])
        wound[rest] = answer > 0
        rest = rest[answer < 0]
    if len(rest):
        used = np.unique(faces)
        wound[rest] = np.abs(winding_numbers(vertices, faces, used, points[rest])) > THRESHOLD + _TIE
    return wound


@njit(cache=True, nogil=True)
def bounded(nodes: np.ndarray, corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """1 where |winding number| is above THRESHOLD, 0 where it is not, −1 where the bounds leave it open;
    int8 (P,).

    nodes, corners : from ``dipole_tree``. points : float64 (P, 3).
    """
    answer = np.full(len(points), -1, dtype=np.int8)
    for i in range(len(points)):
        for far in (_COARSE, _FINE):
            number, error = winding_with_bound(nodes, corners, points[i, 0], points[i, 1], points[i, 2], far)
            if abs(abs(number) - THRESHOLD) > error:
                answer[i] = abs(number) > THRESHOLD
                break
    return answer


@njit(cache=True, nogil=True)
def numbers_by_rays(
    boxes: np.ndarray, corners: np.ndarray, rim: np.ndarray, boundary: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Winding numbers, NaN where the ray comes too near an edge; float64 (P,).

    boxes, corners, points : as for ``wound_points``. rim : float64 (3, n), the boundary's vertices.
    boundary : int64 (k, 2), its edges by column of ``rim``.
    """
    numbers = np.empty(len(points))
    scratch = np.empty((4, rim.shape[1]))
    stack = np.empty(_STACK, dtype=np.int64)
    ray = np.empty(3)
    for i in range(len(points)):
        _aim(boxes[1], points[i], ray)
        crossings = _crossings(boxes, corners, points[i], ray, stack)
        if crossings == _UNSURE:
            numbers[i] = np.nan
        elif len(boundary):
            numbers[i] = crossings + _cone(rim, boundary, points[i], ray, scratch)
        else:
            numbers[i] = crossings
    return numbers


@njit(cache=True, nogil=True)
def _aim(box: np.ndarray, point: np.ndarray, ray: np.ndarray) -> None:
    """Towards the nearest side of the box: the shortest way out passes the fewest triangles."""
    best = np.inf
    axis = 0
    sign = 1.0
    for k in range(3):
        up = np.float64(box[3 + k]) - point[k]
        down = point[k] - np.float64(box[k])
        if up < best:
            best, axis, sign = up, k, 1.0
        if down < best:
            best, axis, sign = down, k, -1.0
    for k in range(3):
        ray[(axis + k) % 3] = sign * _TILT[k]


@njit(cache=True, nogil=True)
def _cone(
    rim: np.ndarray, boundary: np.ndarray, point: np.ndarray, ray: np.ndarray, scratch: np.ndarray
) -> float:
    """Winding number of the cone from −ray over the boundary.

    rim : float64 (3, n), the boundary's vertices. boundary : int64 (k, 2), edges by column of ``rim``.
    scratch : float64 (4, n), overwritten.
    """
    size = math.sqrt(ray[0] ** 2 + ray[1] ** 2 + ray[2] ** 2)
    rx, ry, rz = -ray[0] / size, -ray[1] / size, -ray[2] / size
    for i in range(rim.shape[1]):
        x, y, z = rim[0, i] - point[0], rim[1, i] - point[1], rim[2, i] - point[2]
        scale = 1.0 / math.sqrt(x * x + y * y + z * z)
        x, y, z = x * scale, y * scale, z * scale
        scratch[0, i], scratch[1, i], scratch[2, i] = x, y, z
        scratch[3, i] = 1.0 + rx * x + ry * y + rz * z
    real, imaginary, turns = 1.0, 0.0, 0
    for e in range(len(boundary)):
        a, b = boundary[e, 0], boundary[e, 1]
        ax, ay, az = scratch[0, a], scratch[1, a], scratch[2, a]
        bx, by, bz = scratch[0, b], scratch[1, b], scratch[2, b]
        # Sine and cosine, but for a factor, of half the solid angle of −ray, a and b.
        sine = rx * (ay * bz - az * by) + ry * (az * bx - ax * bz) + rz * (ax * by - ay * bx)
        cosine = scratch[3, a] + scratch[3, b] - 1.0 + (ax * bx + ay * by + az * bz)
        next_real = real * cosine - imaginary * sine
        next_imaginary = real * sine + imaginary * cosine
        # Half angles lie in (−π, π); their sum leaves that range where the imaginary part changes sign behind
        # zero.
        if sine > 0.0:
            if imaginary >= 0.0 and next_imaginary < 0.0:
                turns += 1
        elif sine < 0.0 and imaginary < 0.0 and next_imaginary >= 0.0:
            turns -= 1
        # Scaled by the larger part: edges that are nearly in line with the point have angles near zero.
        size = 1.0 / (abs(next_real) + abs(next_imaginary))
        real, imaginary = next_real * size, next_imaginary * size
    return (math.atan2(imaginary, real) + 2.0 * math.pi * turns) / (2.0 * math.pi)


@njit(cache=True, nogil=True)
def _crossings(
    boxes: np.ndarray, corners: np.ndarray, point: np.ndarray, ray: np.ndarray, stack: np.ndarray
) -> int:
    """Signed number of triangles that the ray crosses, with their normals less against them, or _UNSURE."""
    x, y, z = point[0], point[1], point[2]
    sx, sy, sz = 1.0 / ray[0], 1.0 / ray[1], 1.0 / ray[2]
    # For each axis the side of a box where the ray enters and the one where it leaves.
    near_x, far_x = (0, 3) if sx > 0.0 else (3, 0)
    near_y, far_y = (1, 4) if sy > 0.0 else (4, 1)
    near_z, far_z = (2, 5) if sz > 0.0 else (5, 2)
    leaves = len(boxes) // 2
    total = 0
    stack[0] = 1
    height = 1
    while height > 0:
        height -= 1
        node = stack[height]
        box = boxes[node]
        enter = max((box[near_x] - x) * sx, (box[near_y] - y) * sy, (box[near_z] - z) * sz, 0.0)
        leave = min((box[far_x] - x) * sx, (box[far_y] - y) * sy, (box[far_z] - z) * sz)
        # Boxes that the ray passes within rounding count as met. An empty box leaves at −∞.
        if enter > leave * (1.0 + 1e-9):
            continue
        if node < leaves:
            stack[height] = 2 * node
            stack[height + 1] = 2 * node + 1
            height += 2
            continue
        first = (node - leaves) * LEAF
        for f in range(first, min(first + LEAF, len(corners))):
            crossing = _crossing(corners[f], point, ray)
            if crossing == _UNSURE:
                return _UNSURE
            total += crossing
    return total


@njit(cache=True, nogil=True)
def _crossing(t: np.ndarray, point: np.ndarray, ray: np.ndarray) -> int:
    """1 when the ray crosses the triangle with its normal, −1 against it, 0 when it misses, or _UNSURE."""
    ax, ay, az = t[0] - point[0], t[1] - point[1], t[2] - point[2]
    bx, by, bz = t[3] - point[0], t[4] - point[1], t[5] - point[2]
    cx, cy, cz = t[6] - point[0], t[7] - point[1], t[8] - point[2]
    a = abs(ax) + abs(ay) + abs(az)
    b = abs(bx) + abs(by) + abs(bz)
    c = abs(cx) + abs(cy) + abs(cz)
    # On which side of each edge the ray passes.
    ab = _side(ray, ax, ay, az, bx, by, bz, a * b)
    bc = _side(ray, bx, by, bz, cx, cy, cz, b * c)
    if ab * bc < 0:
        return 0
    ca = _side(ray, cx, cy, cz, ax, ay, az, c * a)
    if ab * ca < 0 or bc * ca < 0:
        return 0
    if ab == 0 and bc == 0 and ca == 0:
        return _UNSURE
    side = 1 if ab + bc + ca > 0 else -1
    ux, uy, uz = t[3] - t[0], t[4] - t[1], t[5] - t[2]
    vx, vy, vz = t[6] - t[0], t[7] - t[1], t[8] - t[2]
    # Height of the triangle's plane over the point: of the sign of ``side`` when the plane lies ahead.
    ahead = ax * (uy * vz - uz * vy) + ay * (uz * vx - ux * vz) + az * (ux * vy - uy * vx)
    size = a * (abs(ux) + abs(uy) + abs(uz)) * (abs(vx) + abs(vy) + abs(vz))
    if abs(ahead) <= _DOUBT * size:
        return _UNSURE
    if (ahead > 0.0) != (side > 0):
        return 0
    return side if ab != 0 and bc != 0 and ca != 0 else _UNSURE


@njit(cache=True, nogil=True)
def _side(
    ray: np.ndarray, ax: float, ay: float, az: float, bx: float, by: float, bz: float, size: float
) -> int:
    """Sign of ray · (a × b), 0 when it is not sure; ``size`` bounds the products of a and b."""
    volume = ray[0] * (ay * bz - az * by) + ray[1] * (az * bx - ax * bz) + ray[2] * (ax * by - ay * bx)
    if abs(volume) <= _DOUBT * size:
        return 0
    return 1 if volume > 0.0 else -1
