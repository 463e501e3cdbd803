"""A tree of bounding boxes over triangles in the order of a Morton curve."""

from __future__ import annotations

import numpy as np
from numba import njit

LEAF = 4
"""Triangles in a leaf of the box tree."""
_CELLS = 1024
"""Cells an axis for ordering triangles along a Morton curve."""


@njit(cache=True, nogil=True)
def triangle_boxes(corners: np.ndarray) -> np.ndarray:
    """Bounding boxes float32 (n, 6), low then high; exact, since the corners are float32 values."""
    boxes = np.empty((len(corners), 6), dtype=np.float32)
    for i in range(len(corners)):
        for axis in range(3):
            a, b, c = corners[i, axis], corners[i, 3 + axis], corners[i, 6 + axis]
            boxes[i, axis] = min(a, b, c)
            boxes[i, 3 + axis] = max(a, b, c)
    return boxes


@njit(cache=True, nogil=True)
def apart(boxes: np.ndarray, i: int, others: np.ndarray, j: int) -> bool:
    # All six comparisons, without branches: which one fails first is not predictable.
    return bool(
        (boxes[i, 0] > others[j, 3]) | (others[j, 0] > boxes[i, 3])
        | (boxes[i, 1] > others[j, 4]) | (others[j, 1] > boxes[i, 4])
        | (boxes[i, 2] > others[j, 5]) | (others[j, 2] > boxes[i, 5])
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _spread(value: int) -> int:
    """Ten bits, each moved to every third place."""
    value = (value | (value << 16)) & 0x030000FF
    value = (value | (value << 8)) & 0x0300F00F
    value = (value | (value << 4)) & 0x030C30C3
    return (value | (value << 2)) & 0x09249249


@njit(cache=True, nogil=True)
def morton_order(boxes: np.ndarray) -> np.ndarray:
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
            key |= _spread(int((centre - low[axis]) * scale)) << axis
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
def box_tree(boxes: np.ndarray) -> tuple[np.ndarray, int]:
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
