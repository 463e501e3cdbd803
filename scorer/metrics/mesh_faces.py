"""Clean faces: no corner welded to another, no face twice, none without area."""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.self_intersection import cross_product

WELD = 1e8
"""Vertices weld when their coordinates agree after rounding to 1 / WELD metres, half to even."""
_INT64_EDGE = 2.0**63
_LOWEST = np.int64(-(2**63))
_PRIMES = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


@njit(cache=True, nogil=True)
def clean_faces(
    vertices: np.ndarray, faces: np.ndarray, start: np.ndarray, used: np.ndarray, used_start: np.ndarray
) -> bool:
    """Whether every component is clean, each welded on its own; stops at the first fault.

    vertices : float32 (V, 3). faces : int32 (N, 3) grouped by component with starts (C + 1,).
    used : int32, each component's vertices in ascending order with starts (C + 1,).

    A face's area is that of the first vertices of its weld groups.
    """
    largest = 1
    for c in range(len(start) - 1):
        largest = max(largest, used_start[c + 1] - used_start[c], start[c + 1] - start[c])
    table = np.empty(_table_size(largest), dtype=np.int64)
    # Only entries that a component uses are ever read.
    weld = np.empty(len(vertices), dtype=np.int64)
    cells = np.empty((len(vertices), 3), dtype=np.int64)
    for c in range(len(start) - 1):
        _weld(vertices, used[used_start[c] : used_start[c + 1]], cells, weld, table)
        if not _clean(vertices, faces[start[c] : start[c + 1]], weld, table):
            return False
    return True


@njit(cache=True, nogil=True)
def _table_size(entries: int) -> int:
    size = 4
    while size < 2 * entries:
        size *= 2
    return size


@njit(cache=True, nogil=True)
def _cell(value: float) -> np.int64:
    """Rounded multiple of 1 / WELD; what does not fit int64 becomes its lowest value, as x86 conversion
    does.
    """
    scaled = np.rint(np.float64(value) * WELD)
    if -_INT64_EDGE <= scaled < _INT64_EDGE:
        return np.int64(scaled)
    return _LOWEST


@njit(cache=True, nogil=True)
def _hash(a: int | np.int64, b: int | np.int64, c: int | np.int64) -> np.int64:
    key = np.uint64(a) * _PRIMES[0] + np.uint64(b) * _PRIMES[1] + np.uint64(c) * _PRIMES[2]
    key ^= key >> np.uint64(32)
    key *= _PRIMES[0]
    return np.int64(key >> np.uint64(20))


@njit(cache=True, nogil=True)
def _weld(
    vertices: np.ndarray, used: np.ndarray, cells: np.ndarray, weld: np.ndarray, table: np.ndarray
) -> None:
    """Set ``weld`` of each used vertex to the first vertex in the same cell."""
    size = _table_size(len(used))
    table[:size] = -1
    for vertex in used:
        x, y, z = _cell(vertices[vertex, 0]), _cell(vertices[vertex, 1]), _cell(vertices[vertex, 2])
        cells[vertex, 0], cells[vertex, 1], cells[vertex, 2] = x, y, z
        at = _hash(x, y, z) & (size - 1)
        while True:
            other = table[at]
            if other < 0:
                table[at] = vertex
                weld[vertex] = vertex
                break
            if cells[other, 0] == x and cells[other, 1] == y and cells[other, 2] == z:
                weld[vertex] = other
                break
            at = (at + 1) & (size - 1)


@njit(cache=True, nogil=True)
def _triple(face: np.ndarray, weld: np.ndarray) -> tuple[int, int, int]:
    """Welded corners in ascending order."""
    a, b, c = weld[face[0]], weld[face[1]], weld[face[2]]
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    if a > b:
        a, b = b, a
    return a, b, c


@njit(cache=True, nogil=True)
def _clean(vertices: np.ndarray, faces: np.ndarray, weld: np.ndarray, table: np.ndarray) -> bool:
    size = _table_size(len(faces))
    table[:size] = -1
    for f in range(len(faces)):
        a, b, c = _triple(faces[f], weld)
        if a == b or b == c:
            return False
        x, y, z = cross_product(vertices, weld[faces[f, 0]], weld[faces[f, 1]], weld[faces[f, 2]])
        if x == 0.0 and y == 0.0 and z == 0.0:
            return False
        at = _hash(a, b, c) & (size - 1)
        while table[at] >= 0:
            other_a, other_b, other_c = _triple(faces[table[at]], weld)
            if other_a == a and other_b == b and other_c == c:
                return False
            at = (at + 1) & (size - 1)
        table[at] = f
    return True
