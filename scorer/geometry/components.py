"""Edge-connected components of a triangle mesh.

Two faces are linked when they share an undirected edge that occurs exactly twice in the whole mesh; an edge
of one, three or more face sides links nothing. Everything here is topology: it depends on the face indices
alone and can be reused for every frame in which they do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from scorer.geometry.sorting import sort


@dataclass(frozen=True)
class Components:
    """Faces grouped by component, components in order of their lowest face.

    faces : int32 (T, 3), grouped by component, in ascending face index inside one.
    start : int64 (C + 1,), component c owns faces ``start[c]:start[c + 1]``.
    vertices, vertex_start : int32 (Σ,) and int64 (C + 1,), the vertices each component uses, ascending.
    single : int64 (C,), undirected edges with exactly one face side inside the component.
    over : int64 (C,), undirected edges with more than two.
    boundary, boundary_start : int32 (B, 2) and int64 (C + 1,), the single edges of each component, directed
        as in their face and sorted by (larger, smaller) vertex.
    """

    faces: np.ndarray
    start: np.ndarray
    vertices: np.ndarray
    vertex_start: np.ndarray
    single: np.ndarray
    over: np.ndarray
    boundary: np.ndarray
    boundary_start: np.ndarray

    @property
    def count(self) -> int:
        return len(self.start) - 1


def components(faces: np.ndarray, vertex_count: int) -> Components:
    """Split ``faces`` (int, (T, 3), indices below ``vertex_count``) into components."""
    faces = np.ascontiguousarray(faces, dtype=np.int32)
    edges = sorted_edges(faces, vertex_count)
    labels, count = _label(faces, edges)
    start, order = _group(labels, count)
    single, over, boundary, boundary_start = _edge_uses(faces, edges, labels, count)
    grouped = faces[order]
    vertices, vertex_start = _vertices(grouped, start, vertex_count)
    return Components(grouped, start, vertices, vertex_start, single, over, boundary, boundary_start)


@njit(cache=True, nogil=True)
def _ends(faces: np.ndarray, edge: int) -> tuple[int, int]:
    """(larger, smaller) vertex of side ``edge`` = 3·face + corner."""
    face = edge // 3
    corner = edge - 3 * face
    a = faces[face, corner]
    b = faces[face, corner + 1 if corner < 2 else 0]
    return (a, b) if a > b else (b, a)


@njit(cache=True, nogil=True)
def sorted_edges(faces: np.ndarray, vertex_count: int) -> np.ndarray:
    """Sides 3·face + corner as int64 (3 T,), sorted by (larger vertex, smaller vertex, side)."""
    total = 3 * len(faces)
    offset = np.zeros(vertex_count + 1, dtype=np.int64)
    for edge in range(total):
        offset[_ends(faces, edge)[0] + 1] += 1
    for i in range(vertex_count):
        offset[i + 1] += offset[i]
    # Key = smaller vertex · total + side; within one bucket that is the wanted order.
    keys = np.empty(total, dtype=np.int64)
    cursor = offset[:-1].copy()
    for edge in range(total):
        high, low = _ends(faces, edge)
        keys[cursor[high]] = np.int64(low) * total + edge
        cursor[high] += 1
    for i in range(vertex_count):
        sort(keys[offset[i] : offset[i + 1]])
    for j in range(total):
        keys[j] %= total
    return keys


@njit(cache=True, nogil=True)
def _root(parent: np.ndarray, face: int) -> int:
    while parent[face] != face:
        parent[face] = parent[parent[face]]
        face = parent[face]
    return face


@njit(cache=True, nogil=True)
def _next_group(faces: np.ndarray, edges: np.ndarray, first: int) -> int:
    """Position after the run of sides that lie on the same undirected edge as ``edges[first]``."""
    high, low = _ends(faces, edges[first])
    last = first + 1
    while last < len(edges):
        other_high, other_low = _ends(faces, edges[last])
        if other_high != high or other_low != low:
            break
        last += 1
    return last


@njit(cache=True, nogil=True)
def _label(faces: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, int]:
    """Component of each face, int64 (T,), numbered by lowest face, and their number."""
    parent = np.arange(len(faces))
    first = 0
    while first < len(edges):
        last = _next_group(faces, edges, first)
        if last - first == 2:
            a = _root(parent, edges[first] // 3)
            b = _root(parent, edges[first + 1] // 3)
            if a < b:
                parent[b] = a
            else:
                parent[a] = b
        first = last
    labels = np.empty(len(faces), dtype=np.int64)
    count = 0
    for face in range(len(faces)):
        root = _root(parent, face)
        if root == face:
            labels[face] = count
            count += 1
        else:
            labels[face] = labels[root]
    return labels, count


@njit(cache=True, nogil=True)
def _group(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Counting sort of the faces by label: starts (C + 1,) and the stable order (T,)."""
    start = np.zeros(count + 1, dtype=np.int64)
    for label in labels:
        start[label + 1] += 1
    for c in range(count):
        start[c + 1] += start[c]
    order = np.empty(len(labels), dtype=np.int64)
    cursor = start[:-1].copy()
    for face in range(len(labels)):
        order[cursor[labels[face]]] = face
        cursor[labels[face]] += 1
    return start, order


@njit(cache=True, nogil=True)
def _edge_uses(
    faces: np.ndarray, edges: np.ndarray, labels: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges used once or more than twice inside each component, and the once-used ones as lists."""
    single = np.zeros(count, dtype=np.int64)
    over = np.zeros(count, dtype=np.int64)
    # Sides used once inside their component, in edge order; the component of each follows from its face.
    lone = np.empty(len(edges), dtype=np.int64)
    lone_count = 0
    first = 0
    while first < len(edges):
        last = _next_group(faces, edges, first)
        # Group the run by component (a run of two is one component already, or one face twice).
        run = edges[first:last].copy()
        if last - first > 2:
            for i in range(last - first):
                run[i] += labels[run[i] // 3] * len(edges)
            sort(run)
            run %= len(edges)
        i = 0
        while i < len(run):
            owner = labels[run[i] // 3]
            j = i + 1
            while j < len(run) and labels[run[j] // 3] == owner:
                j += 1
            if j - i == 1:
                single[owner] += 1
                lone[lone_count] = run[i]
                lone_count += 1
            elif j - i > 2:
                over[owner] += 1
            i = j
        first = last
    start = np.zeros(count + 1, dtype=np.int64)
    for c in range(count):
        start[c + 1] = start[c] + single[c]
    boundary = np.empty((lone_count, 2), dtype=np.int32)
    cursor = start[:-1].copy()
    for i in range(lone_count):
        face = lone[i] // 3
        corner = lone[i] - 3 * face
        at = cursor[labels[face]]
        boundary[at, 0] = faces[face, corner]
        boundary[at, 1] = faces[face, (corner + 1) % 3]
        cursor[labels[face]] += 1
    return single, over, boundary, start


@njit(cache=True, nogil=True)
def _vertices(grouped: np.ndarray, start: np.ndarray, vertex_count: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices used by each component, ascending."""
    seen = np.full(vertex_count, -1, dtype=np.int64)
    found = np.empty(3 * len(grouped), dtype=np.int64)
    offset = np.zeros(len(start), dtype=np.int64)
    total = 0
    for c in range(len(start) - 1):
        for face in range(start[c], start[c + 1]):
            for corner in range(3):
                vertex = grouped[face, corner]
                if seen[vertex] != c:
                    seen[vertex] = c
                    found[total] = vertex
                    total += 1
        sort(found[offset[c] : total])
        offset[c + 1] = total
    return found[:total].astype(np.int32), offset


@njit(cache=True, nogil=True)
def edge_uses(faces: np.ndarray, vertex_count: int) -> tuple[int, int]:
    """Undirected edges of ``faces`` (int32 (T, 3)) with exactly one side, and with more than two."""
    total = 3 * len(faces)
    keys = np.empty(total, dtype=np.int64)
    for edge in range(total):
        high, low = _ends(faces, edge)
        keys[edge] = np.int64(high) * vertex_count + low
    sort(keys)
    single = 0
    over = 0
    i = 0
    while i < total:
        j = i + 1
        while j < total and keys[j] == keys[i]:
            j += 1
        if j - i == 1:
            single += 1
        elif j - i > 2:
            over += 1
        i = j
    return single, over
