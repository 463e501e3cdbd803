"""The boundary of a surface: the edges that its faces run through more often one way than the other.

A surface without boundary need not be manifold (an edge may have four sides, shells may touch), but its
winding numbers are whole.
"""

from __future__ import annotations

import numpy as np
from numba import njit


def boundary_edges(faces: np.ndarray) -> np.ndarray:
    """Directed edges int64 (k, 2), as often as they are run through more this way than that.

    faces : int (T, 3), at least one, not negative.
    """
    vertex_count = int(faces.max()) + 1
    keys = _directed_edges(faces, vertex_count)
    keys.sort()
    return _unbalanced(keys, vertex_count)


def boundary_in_space(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """The same with vertices at one place (float32 (V, 3)) taken as one, as unwelded triangles have them."""
    # Adding zero turns −0 into 0, so that equal numbers are equal bits.
    places = same_place(np.ascontiguousarray(vertices + np.float32(0.0)).view(np.uint32))
    return boundary_edges(places[faces])


@njit(cache=True, nogil=True)
def same_place(bits: np.ndarray) -> np.ndarray:
    """For each row of uint32 (V, 3) the lowest index of an equal row; int64 (V,)."""
    size = 16
    while size < 2 * len(bits):
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    first = np.empty(len(bits), dtype=np.int64)
    for i in range(len(bits)):
        mixed = np.uint64(bits[i, 0]) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ np.uint64(bits[i, 1])) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ np.uint64(bits[i, 2])) * np.uint64(0x165667B19E3779F9)
        slot = np.int64((mixed >> np.uint64(20)) & np.uint64(size - 1))
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = i
                first[i] = i
                break
            if bits[other, 0] == bits[i, 0] and bits[other, 1] == bits[i, 1] and bits[other, 2] == bits[i, 2]:
                first[i] = other
                break
            slot = (slot + 1) & (size - 1)
    return first


@njit(cache=True, nogil=True)
def _directed_edges(faces: np.ndarray, vertex_count: int) -> np.ndarray:
    """A number for each side of each face, int64 (3 T,): equal for equal edges but for the last bit, which
    is the direction. −1 for a side from a vertex to itself.
    """
    keys = np.empty(3 * len(faces), dtype=np.int64)
    for f in range(len(faces)):
        for k in range(3):
            a, b = np.int64(faces[f, k]), np.int64(faces[f, (k + 1) % 3])
            low, high = min(a, b), max(a, b)
            keys[3 * f + k] = -1 if a == b else 2 * (low * vertex_count + high) + (1 if a < b else 0)
    return keys


@njit(cache=True, nogil=True)
def _unbalanced(keys: np.ndarray, vertex_count: int) -> np.ndarray:
    """Edges of the sorted numbers that occur more often in one direction, that often."""
    edges = np.empty((len(keys), 2), dtype=np.int64)
    count = 0
    i = 0
    while i < len(keys) and keys[i] < 0:
        i += 1
    while i < len(keys):
        edge = keys[i] >> 1
        balance = 0
        while i < len(keys) and keys[i] >> 1 == edge:
            balance += 1 if keys[i] & 1 else -1
            i += 1
        low, high = edge // vertex_count, edge % vertex_count
        for _ in range(abs(balance)):
            edges[count, 0] = low if balance > 0 else high
            edges[count, 1] = high if balance > 0 else low
            count += 1
    return edges[:count].copy()
