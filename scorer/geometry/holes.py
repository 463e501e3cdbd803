"""Closing the holes of three or four boundary edges.

Holes are the cycles of a basis of the boundary graph. Which basis matters when boundary loops touch, so the
walk is that of networkx's ``cycle_basis`` on the edges sorted by (larger, smaller) vertex, and triangles are
laid and wound as trimesh's ``fill_holes`` (4.11) does. The code is our own: cycles longer than four are
given up as soon as they are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from scorer.geometry.components import Components
from scorer.geometry.sorting import sort

MIN_FACES = 4
"""Components of fewer faces are left open."""
MIN_BOUNDARY = 3
"""Fewer boundary edges than this cannot be a hole."""
MAX_CYCLE = 4
FLAT = 1e-13
"""A filling triangle whose cross product is not longer than this (m²) is dropped."""


def fillings(parts: Components) -> tuple[np.ndarray, np.ndarray]:
    """Triangles that close the small holes of every open component.

    Returns int32 (K, 3) triangles, in component order, and int64 (C + 1,) where each component's begin. Only
    topology is looked at: the caller drops triangles that are flat (``FLAT``) in the frame at hand.
    """
    return _fillings(parts.start, parts.boundary, parts.boundary_start)


@njit(cache=True, nogil=True)
def _fillings(
    start: np.ndarray, boundary: np.ndarray, boundary_start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    count = len(start) - 1
    # A cycle needs an edge outside the spanning forest, and yields at most two triangles.
    triangles = np.empty((2 * len(boundary), 3), dtype=np.int32)
    offset = np.zeros(count + 1, dtype=np.int64)
    total = 0
    for c in range(count):
        edges = boundary[boundary_start[c] : boundary_start[c + 1]]
        if start[c + 1] - start[c] >= MIN_FACES and len(edges) >= MIN_BOUNDARY:
            total = _fill(edges, triangles, total)
        offset[c + 1] = total
    return triangles[:total].copy(), offset


@njit(cache=True, nogil=True)
def _fill(edges: np.ndarray, triangles: np.ndarray, total: int) -> int:
    """Write the triangles of one component's small cycles; returns the new number of triangles."""
    names, graph, neighbour, twin, edge_of = _graph(edges)
    count = len(names)
    # used[slot]: the slot's neighbour is in the node's "used" set; parent as in a spanning forest.
    used = np.zeros(len(neighbour), dtype=np.bool_)
    parent = np.full(count, -1, dtype=np.int64)
    stack = np.empty(count, dtype=np.int64)
    cycle = np.empty(MAX_CYCLE, dtype=np.int64)
    # The walk starts from the node that entered the graph last.
    for root in range(count - 1, -1, -1):
        if parent[root] >= 0:
            continue
        parent[root] = root
        stack[0] = root
        height = 1
        while height > 0:
            height -= 1
            node = stack[height]
            for slot in range(graph[node], graph[node + 1]):
                other = neighbour[slot]
                if parent[other] < 0:
                    parent[other] = node
                    stack[height] = other
                    height += 1
                    used[twin[slot]] = True
                elif other != node and not used[slot]:
                    length = _close(graph, neighbour, twin, used, parent, other, node, cycle)
                    if length > 0:
                        total = _lay(
                            cycle[:length], names, graph, neighbour, twin, edge_of, edges, triangles, total
                        )
                    used[twin[slot]] = True
    return total


@njit(cache=True, nogil=True)
def _graph(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Undirected graph of the edges: nodes numbered by first appearance, neighbours in order of edge.

    Returns vertex of each node, row starts, and for each slot of a row its neighbour, the slot that points
    back, its edge.
    """
    ends = edges.ravel()
    keys = np.empty(len(ends), dtype=np.int64)
    for i in range(len(ends)):
        keys[i] = np.int64(ends[i]) * len(ends) + i
    sort(keys)
    first_seen = np.empty(len(ends), dtype=np.int64)
    head = 0
    for i in range(len(ends)):
        if i > 0 and keys[i] // len(ends) != keys[i - 1] // len(ends):
            head = i
        first_seen[keys[i] % len(ends)] = keys[head] % len(ends)
    node_at = np.empty(len(ends), dtype=np.int64)
    names = np.empty(len(ends), dtype=np.int64)
    count = 0
    for i in range(len(ends)):
        if first_seen[i] == i:
            node_at[i] = count
            names[count] = ends[i]
            count += 1
        else:
            node_at[i] = node_at[first_seen[i]]
    graph = np.zeros(count + 1, dtype=np.int64)
    for i in range(len(edges)):
        a, b = node_at[2 * i], node_at[2 * i + 1]
        graph[a + 1] += 1
        if a != b:
            graph[b + 1] += 1
    for node in range(count):
        graph[node + 1] += graph[node]
    neighbour = np.empty(graph[count], dtype=np.int64)
    twin = np.empty(graph[count], dtype=np.int64)
    edge_of = np.empty(graph[count], dtype=np.int64)
    cursor = graph[:-1].copy()
    for i in range(len(edges)):
        a, b = node_at[2 * i], node_at[2 * i + 1]
        there, back = cursor[a], cursor[b]
        neighbour[there], neighbour[back] = b, a
        twin[there], twin[back] = back, there
        edge_of[there], edge_of[back] = i, i
        cursor[a] += 1
        if a != b:
            cursor[b] += 1
    return names[:count], graph, neighbour, twin, edge_of


@njit(cache=True, nogil=True)
def _slot(graph: np.ndarray, neighbour: np.ndarray, twin: np.ndarray, node: int, other: int) -> int:
    """Where ``other`` stands in the row of ``node``, by way of the shorter row; −1 if nowhere."""
    if graph[node + 1] - graph[node] > graph[other + 1] - graph[other]:
        for slot in range(graph[other], graph[other + 1]):
            if neighbour[slot] == node:
                return int(twin[slot])
        return -1
    for slot in range(graph[node], graph[node + 1]):
        if neighbour[slot] == other:
            return slot
    return -1


@njit(cache=True, nogil=True)
def _close(
    graph: np.ndarray, neighbour: np.ndarray, twin: np.ndarray, used: np.ndarray, parent: np.ndarray,
    other: int, node: int, cycle: np.ndarray,
) -> int:  # fmt: skip
    """Follow parents from ``node`` to one that ``other`` has used; the cycle's length, 0 if too long."""
    cycle[0] = other
    cycle[1] = node
    at = parent[node]
    for length in range(2, MAX_CYCLE):
        cycle[length] = at
        slot = _slot(graph, neighbour, twin, other, at)
        if slot >= 0 and used[slot]:
            return length + 1
        at = parent[at]
    return 0


@njit(cache=True, nogil=True)
def _lay(
    cycle: np.ndarray, names: np.ndarray, graph: np.ndarray, neighbour: np.ndarray, twin: np.ndarray,
    edge_of: np.ndarray, edges: np.ndarray, triangles: np.ndarray, total: int,
) -> int:  # fmt: skip
    """One triangle for three nodes, two for four, each wound against the boundary edge it begins with."""
    for k in range(0, len(cycle) - 2):
        a, b, c = (cycle[0], cycle[1], cycle[2]) if k == 0 else (cycle[2], cycle[3], cycle[0])
        edge = edge_of[_slot(graph, neighbour, twin, a, b)]
        keep = names[a] == edges[edge, 1]
        triangles[total, 0] = names[a] if keep else names[c]
        triangles[total, 1] = names[b]
        triangles[total, 2] = names[c] if keep else names[a]
        total += 1
    return total
