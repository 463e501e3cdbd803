"""Whether a triangle mesh intersects itself: a box tree finds candidate pairs, exact tests judge them."""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.box_tree import LEAF, apart, box_tree, morton_order, triangle_boxes
from scorer.geometry.triangle_pairs import ROW, triangles_intersect, write_row

_ALL_PAIRS = 16
"""Components up to this size are compared pair by pair."""
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
def _all_pairs(corners: np.ndarray) -> bool:
    boxes = triangle_boxes(corners)
    for i in range(len(corners)):
        for j in range(i + 1, len(corners)):
            if not apart(boxes, i, boxes, j) and triangles_intersect(corners, i, j):
                return True
    return False


@njit(cache=True, nogil=True)
def _tree_pairs(unsorted: np.ndarray) -> bool:
    """Descend the tree against itself; both nodes of a pair are always on one level."""
    loose = triangle_boxes(unsorted)
    order = morton_order(loose)
    corners = unsorted[order]
    boxes = loose[order]
    nodes, leaves = box_tree(boxes)
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
                if not apart(nodes, first, nodes, second):
                    stack[height, 0] = first
                    stack[height, 1] = second
                    height += 1
    return False


@njit(cache=True, nogil=True)
def _leaf_pairs(corners: np.ndarray, boxes: np.ndarray, a: int, b: int) -> bool:
    for i in range(a * LEAF, min((a + 1) * LEAF, len(corners))):
        for j in range(i + 1 if a == b else b * LEAF, min((b + 1) * LEAF, len(corners))):
            if not apart(boxes, i, boxes, j) and triangles_intersect(corners, i, j):
                return True
    return False
