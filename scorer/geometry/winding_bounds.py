"""Winding numbers with a bound of their error, by a tree of dipoles.

Seen from afar, a patch of triangles is its area vector N at a centre c and the first moment M = Σ N_f ⊗ (g_f
− c) of its faces (g_f their centroids): with x = c − q and R = |x| it adds (N·x / R³ + tr M / R³ − 3 xᵀ M x
/ R⁵) / 4π to the winding number of q. The third derivatives of 1/|x| are at most 6/|x|⁴, so for a patch of
area A within r of c Taylor's remainder is at most 3 r² A / (4π (R − r)⁴). Near patches are opened, single
triangles are exact.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from scorer.geometry.box_tree import LEAF, box_tree, morton_order, triangle_boxes

_ROUNDING = 1e-7
_STACK = 64
# Columns of a node: centre, radius, area, area vector, first moment.
_RADIUS, _AREA, _VECTOR, _MOMENT, _COLUMNS = 3, 4, 5, 8, 17


@njit(cache=True, nogil=True)
def dipole_tree(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes float64 (2 m, 17) of a complete binary tree, and corners float64 (T, 9) in its order.

    vertices : float32 (V, 3). faces : int (T, 3), at least one.
    """
    loose = np.empty((len(faces), 9))
    for f in range(len(faces)):
        for k in range(3):
            for axis in range(3):
                loose[f, 3 * k + axis] = vertices[faces[f, k], axis]
    loose_boxes = triangle_boxes(loose)
    order = morton_order(loose_boxes)
    corners = loose[order]
    boxes, leaves = box_tree(loose_boxes[order])
    nodes = np.zeros((2 * leaves, _COLUMNS))
    for node in range(2 * leaves - 1, 0, -1):
        if boxes[node, 0] > boxes[node, 3]:
            continue
        row = nodes[node]
        for axis in range(3):
            row[axis] = 0.5 * (np.float64(boxes[node, axis]) + np.float64(boxes[node, 3 + axis]))
        if node >= leaves:
            first = (node - leaves) * LEAF
            for f in range(first, min(first + LEAF, len(corners))):
                _add_triangle(row, corners[f])
        else:
            _add_node(row, nodes[2 * node])
            _add_node(row, nodes[2 * node + 1])
    return nodes, corners


@njit(cache=True, nogil=True)
def _add_triangle(row: np.ndarray, t: np.ndarray) -> None:
    ux, uy, uz = t[3] - t[0], t[4] - t[1], t[5] - t[2]
    vx, vy, vz = t[6] - t[0], t[7] - t[1], t[8] - t[2]
    vector = (0.5 * (uy * vz - uz * vy), 0.5 * (uz * vx - ux * vz), 0.5 * (ux * vy - uy * vx))
    row[_AREA] += math.sqrt(vector[0] ** 2 + vector[1] ** 2 + vector[2] ** 2)
    for k in range(3):
        x, y, z = t[3 * k] - row[0], t[3 * k + 1] - row[1], t[3 * k + 2] - row[2]
        row[_RADIUS] = max(row[_RADIUS], math.sqrt(x * x + y * y + z * z))
    for a in range(3):
        row[_VECTOR + a] += vector[a]
        for b in range(3):
            row[_MOMENT + 3 * a + b] += vector[a] * ((t[b] + t[3 + b] + t[6 + b]) / 3.0 - row[b])


@njit(cache=True, nogil=True)
def _add_node(row: np.ndarray, child: np.ndarray) -> None:
    if child[_AREA] == 0.0:
        return
    x, y, z = child[0] - row[0], child[1] - row[1], child[2] - row[2]
    row[_RADIUS] = max(row[_RADIUS], math.sqrt(x * x + y * y + z * z) + child[_RADIUS])
    row[_AREA] += child[_AREA]
    for a in range(3):
        row[_VECTOR + a] += child[_VECTOR + a]
        for b in range(3):
            shift = child[_VECTOR + a] * (child[b] - row[b])
            row[_MOMENT + 3 * a + b] += child[_MOMENT + 3 * a + b] + shift


@njit(cache=True, nogil=True)
def winding_with_bound(
    nodes: np.ndarray, corners: np.ndarray, x: float, y: float, z: float, far: float
) -> tuple[float, float]:
    """Winding number of (x, y, z), and how far from the exact one it can be.

    far : a patch is taken as a whole from this many of its radii on, more than 1; the bound shrinks with
        far².
    """
    leaves = len(nodes) // 2
    total = 0.0
    error = 0.0
    stack = np.empty(_STACK, dtype=np.int64)
    stack[0] = 1
    height = 1
    while height > 0:
        height -= 1
        node = stack[height]
        row = nodes[node]
        if row[_AREA] == 0.0:
            continue
        dx, dy, dz = row[0] - x, row[1] - y, row[2] - z
        distance = math.sqrt(dx * dx + dy * dy + dz * dz)
        if distance > far * row[_RADIUS]:
            total += _far_field(row, dx, dy, dz, distance)
            gap = (distance - row[_RADIUS]) ** 2
            error += 3.0 * row[_RADIUS] ** 2 * row[_AREA] / (gap * gap)
        elif node < leaves:
            stack[height] = 2 * node
            stack[height + 1] = 2 * node + 1
            height += 2
        else:
            first = (node - leaves) * LEAF
            for f in range(first, min(first + LEAF, len(corners))):
                total += _solid_angle(corners[f], x, y, z)
    return total / (4.0 * math.pi), error / (4.0 * math.pi) + _ROUNDING


@njit(cache=True, nogil=True)
def _far_field(row: np.ndarray, x: float, y: float, z: float, distance: float) -> float:
    dipole = row[_VECTOR] * x + row[_VECTOR + 1] * y + row[_VECTOR + 2] * z
    m = row[_MOMENT : _MOMENT + 9]
    trace = m[0] + m[4] + m[8]
    form = x * (m[0] * x + m[1] * y + m[2] * z)
    form += y * (m[3] * x + m[4] * y + m[5] * z)
    form += z * (m[6] * x + m[7] * y + m[8] * z)
    square = distance * distance
    return float((dipole + trace - 3.0 * form / square) / (square * distance))


@njit(cache=True, nogil=True)
def _solid_angle(t: np.ndarray, x: float, y: float, z: float) -> float:
    """Signed solid angle of one triangle; 0 from its plane and from its corners, as in ``winding_number``."""
    ax, ay, az = t[0] - x, t[1] - y, t[2] - z
    bx, by, bz = t[3] - x, t[4] - y, t[5] - z
    cx, cy, cz = t[6] - x, t[7] - y, t[8] - z
    a = math.sqrt(ax * ax + ay * ay + az * az)
    b = math.sqrt(bx * bx + by * by + bz * bz)
    c = math.sqrt(cx * cx + cy * cy + cz * cz)
    ux, uy, uz = bx - ax, by - ay, bz - az
    vx, vy, vz = cx - ax, cy - ay, cz - az
    sine = ax * (uy * vz - uz * vy) + ay * (uz * vx - ux * vz) + az * (ux * vy - uy * vx)
    if sine == 0.0 or a == 0.0 or b == 0.0 or c == 0.0:
        return 0.0
    cosine = a * b * c + (ax * bx + ay * by + az * bz) * c + (bx * cx + by * cy + bz * cz) * a
    cosine += (cx * ax + cy * ay + cz * az) * b
    return 2.0 * math.atan2(sine, cosine)
