"""Whether a triangle mesh intersects itself: a box tree finds candidate pairs, exact tests judge them."""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.triangle_pairs import ROW, triangles_intersect, write_row

LEAF = 4
"""Triangles in a leaf of the box tree."""
_ALL_PAIRS = 16
"""Components up to this size are compared pair by pair."""
_CELLS = 1024
"""Cells an axis for ordering triangles along a Morton curve."""
_STACK = 256
"""Four pushes a level, at most 30 levels."""


def intersects_itself(vertices: np.ndarray, faces: np.ndarray) -> bool:
    """Whether any two faces of one mesh intersect (rule in ``triangle_pairs``).

    vertices : float32 (V, 3), finite. faces : int (T, 3).

    Faces whose area is zero in float64, or exactly, take no part.
    """
    start = np.array([0, len(faces)], dtype=np.int64)
    return bool(any_component_intersects(_float32(vertices), np.ascontiguousarray(faces, np.int32), start))


def _float32(vertices: np.ndarray) -> np.ndarray:
    if vertices.dtype != np.float32:
        raise TypeError(f"exact tests need float32 vertices, got {vertices.dtype}")
    return np.ascontiguousarray(vertices)


@njit(cache=True, nogil=True)
def any_component_intersects(vertices: np.ndarray, faces: np.ndarray, start: np.ndarray) -> bool:
    """Whether any component, taken alone, intersects itself; stops at the first intersection.

    vertices : float32 (V, 3). faces : int32 (T, 3). start : int64 (C + 1,), component c is
        ``faces[start[c]:start[c + 1]]``.
    """
    largest = 0
    for c in range(len(start) - 1):
        largest = max(largest, start[c + 1] - start[c])
    corners = np.empty((largest, ROW))
    for c in range(len(start) - 1):
        if start[c + 1] - start[c] < 2:
            continue
        count = _gather(vertices, faces[start[c] : start[c + 1]], corners)
        if count <= _ALL_PAIRS:
            found = _all_pairs(corners[:count])
        else:
            found = _tree_pairs(corners[:count])
        if found:
            return True
    return False


@njit(cache=True, nogil=True)
def cross_product(vertices: np.ndarray, a: int, b: int, c: int) -> tuple[float, float, float]:
    """(v_b − v_a) × (v_c − v_b) in float64; vertices float32 (V, 3). Zero vector = zero area."""
    ax, ay, az = np.float64(vertices[a, 0]), np.float64(vertices[a, 1]), np.float64(vertices[a, 2])
    bx, by, bz = np.float64(vertices[b, 0]), np.float64(vertices[b, 1]), np.float64(vertices[b, 2])
    ux, uy, uz = bx - ax, by - ay, bz - az
    vx = np.float64(vertices[c, 0]) - bx
    vy = np.float64(vertices[c, 1]) - by
    vz = np.float64(vertices[c, 2]) - bz
    return uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx


@njit(cache=True, nogil=True)
def _gather(vertices: np.ndarray, faces: np.ndarray, corners: np.ndarray) -> int:
    """Write a row of ``corners`` for each face with area; returns how many."""
    count = 0
    for f in range(len(faces)):
        x, y, z = cross_product(vertices, faces[f, 0], faces[f, 1], faces[f, 2])
        if x == 0.0 and y == 0.0 and z == 0.0:
            continue
        # A rounded cross product can be non-zero for corners exactly on one line.
        if write_row(vertices, faces[f], corners[count]):
            count += 1
    return count


@njit(cache=True, nogil=True)
def _boxes(corners: np.ndarray) -> np.ndarray:
    """Bounding boxes float32 (n, 6), low then high; exact, since the corners are float32 values."""
    boxes = np.empty((len(corners), 6), dtype=np.float32)
    for i in range(len(corners)):
        for axis in range(3):
            a, b, c = corners[i, axis], corners[i, 3 + axis], corners[i, 6 + axis]
            boxes[i, axis] = min(a, b, c)
            boxes[i, 3 + axis] = max(a, b, c)
    return boxes


@njit(cache=True, nogil=True)
def _apart(boxes: np.ndarray, i: int, others: np.ndarray, j: int) -> bool:
    # All six comparisons, without branches: which one fails first is not predictable.
    return bool(
        (boxes[i, 0] > others[j, 3]) | (others[j, 0] > boxes[i, 3])
        | (boxes[i, 1] > others[j, 4]) | (others[j, 1] > boxes[i, 4])
        | (boxes[i, 2] > others[j, 5]) | (others[j, 2] > boxes[i, 5])
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _all_pairs(corners: np.ndarray) -> bool:
    boxes = _boxes(corners)
    for i in range(len(corners)):
        for j in range(i + 1, len(corners)):
            if not _apart(boxes, i, boxes, j) and triangles_intersect(corners, i, j):
                return True
    return False


@njit(cache=True, nogil=True)
def _spread(value: int) -> int:
    """Ten bits, each moved to every third place."""
    value = (value | (value << 16)) & 0x030000FF
    value = (value | (value << 8)) & 0x0300F00F
    value = (value | (value << 4)) & 0x030C30C3
    return (value | (value << 2)) & 0x09249249


@njit(cache=True, nogil=True)
def _morton_order(boxes: np.ndarray) -> np.ndarray:
    """Order of the triangles along a Morton curve through their box centres, by a stable radix sort."""
    count = len(boxes)
    low = np.full(3, np.inf)
    high = np.full(3, -np.inf)
    for i in range(count):
        for axis in range(3):
            centre = 0.5 * (np.float64(boxes[i, axis]) + np.float64(boxes[i, 3 + axis]))
            low[axis] = min(low[axis], centre)
            high[axis] = max(high[axis], centre)
    extent = max(high[0] - low[0], high[1] - low[1], high[2] - low[2])
    scale = (_CELLS - 1) / extent if extent > 0.0 else 0.0
    keys = np.empty(count, dtype=np.int64)
    for i in range(count):
        key = 0
        for axis in range(3):
            centre = 0.5 * (np.float64(boxes[i, axis]) + np.float64(boxes[i, 3 + axis]))
            key |= _spread(np.int64((centre - low[axis]) * scale)) << axis
        keys[i] = key
    order = np.arange(count)
    other = np.empty(count, dtype=np.int64)
    for shift in range(0, 30, 10):
        offset = np.zeros(1025, dtype=np.int64)
        for i in range(count):
            offset[((keys[i] >> shift) & 1023) + 1] += 1
        for k in range(1024):
            offset[k + 1] += offset[k]
        for i in range(count):
            digit = (keys[order[i]] >> shift) & 1023
            other[offset[digit]] = order[i]
            offset[digit] += 1
        order, other = other, order
    return order


@njit(cache=True, nogil=True)
def _tree(boxes: np.ndarray) -> tuple[np.ndarray, int]:
    """Complete binary tree of boxes over leaves of LEAF triangles; children of node k are 2 k and 2 k + 1.

    Returns float32 (2 m, 6) and m, the number of leaves rounded up to a power of two.
    """
    count = len(boxes)
    leaves = 1
    while leaves * LEAF < count:
        leaves *= 2
    nodes = np.empty((2 * leaves, 6), dtype=np.float32)
    nodes[:, :3] = np.inf
    nodes[:, 3:] = -np.inf
    for i in range(count):
        node = leaves + i // LEAF
        for axis in range(3):
            nodes[node, axis] = min(nodes[node, axis], boxes[i, axis])
            nodes[node, 3 + axis] = max(nodes[node, 3 + axis], boxes[i, 3 + axis])
    for node in range(leaves - 1, 0, -1):
        for axis in range(3):
            nodes[node, axis] = min(nodes[2 * node, axis], nodes[2 * node + 1, axis])
            nodes[node, 3 + axis] = max(nodes[2 * node, 3 + axis], nodes[2 * node + 1, 3 + axis])
    return nodes, leaves


@njit(cache=True, nogil=True)
def _tree_pairs(unsorted: np.ndarray) -> bool:
    """Descend the tree against itself; both nodes of a pair are always on one level."""
    loose = _boxes(unsorted)
    order = _morton_order(loose)
    corners = unsorted[order]
    boxes = loose[order]
    nodes, leaves = _tree(boxes)
    stack = np.empty((_STACK, 2), dtype=np.int64)
    stack[0] = 1
    height = 1
    while height > 0:
        height -= 1
        a, b = stack[height, 0], stack[height, 1]
        if a >= leaves:
            if _leaf_pairs(corners, boxes, a - leaves, b - leaves):
                return True
            continue
        for first in range(2 * a, 2 * a + 2):
            for second in range(first if a == b else 2 * b, 2 * b + 2):
                if not _apart(nodes, first, nodes, second):
                    stack[height, 0] = first
                    stack[height, 1] = second
                    height += 1
    return False


@njit(cache=True, nogil=True)
def _leaf_pairs(corners: np.ndarray, boxes: np.ndarray, a: int, b: int) -> bool:
    for i in range(a * LEAF, min((a + 1) * LEAF, len(corners))):
        for j in range(i + 1 if a == b else b * LEAF, min((b + 1) * LEAF, len(corners))):
            if not _apart(boxes, i, boxes, j) and triangles_intersect(corners, i, j):
                return True
    return False
