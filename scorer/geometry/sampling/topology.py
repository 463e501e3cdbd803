"""Connected components of a shell, with their rims, as arrays that numba can walk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Shells:
    """Faces grouped by connected component (faces that share a column), components in the order of their
    lowest column.

    vertex_start : int64 (C + 1,). vertices : int64 (U,), the columns of component c ascending at
    ``vertex_start[c]:vertex_start[c + 1]``. face_start : int64 (C + 1,). faces : int32 (T, 3), faces of
    component c in archive order at ``face_start[c]:face_start[c + 1]``, numbered within the component's
    vertices.
    """

    vertex_start: Longs
    vertices: Longs
    face_start: Longs
    faces: Ints

    @classmethod
    def of(cls, faces: NDArray[np.integer], columns: int) -> Shells:
        """faces : int (T, 3), indices below ``columns``, T ≥ 1."""
        used = np.zeros(columns, np.bool_)
        used[faces.reshape(-1)] = True
        vertices = np.flatnonzero(used)
        compact = (np.cumsum(used) - 1)[faces]
        a, b, c = compact.T
        ones = np.ones(2 * len(a), np.bool_)
        graph = coo_matrix((ones, (np.concatenate([a, b]), np.concatenate([b, c]))), (len(vertices),) * 2)
        count, label = connected_components(graph, directed=False)
        lowest = np.unique(label, return_index=True)[1]  # labels are ours to order: by lowest column
        rank = np.empty(count, np.int64)
        rank[np.argsort(lowest)] = np.arange(count)
        label = rank[label]
        order = np.argsort(label, kind="stable")
        vertex_start = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=count))])
        place = np.empty(len(vertices), np.int64)
        place[order] = np.arange(len(vertices)) - vertex_start[label[order]]
        owner = label[a]
        by_owner = np.argsort(owner, kind="stable")
        face_start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
        local = place[compact[by_owner]].astype(np.int32)
        return cls(vertex_start, vertices[order], face_start, local)

    @property
    def count(self) -> int:
        return len(self.face_start) - 1

    @property
    def sizes(self) -> Longs:
        """Faces int64 (C,) of each component."""
        return np.diff(self.face_start)

    @cached_property
    def global_faces(self) -> Longs:
        """int64 (T, 3), grouped as ``faces``, numbered within ``vertices``."""
        found: Longs = self.faces + np.repeat(self.vertex_start[:-1], self.sizes)[:, None]
        return found

    @cached_property
    def rim(self) -> Longs:
        """Directed edges int64 (R, 2), numbered within ``vertices``, that are left when every edge is
        cancelled against its reverse; an edge left n times is listed n times. Empty for a closed shell.
        """
        ends = self.global_faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
        return _uncancelled(ends, len(self.vertices))

    def rims(self, positions: Doubles) -> tuple[Longs, Ints]:
        """Start int64 (C + 1,) and directed edges int32 (R, 2), numbered within each component, of the rims
        that are left when vertices of one component that share a place count as one.

        positions : float64 (U, 3), places of ``vertices``. A seam of doubled vertices is no rim.
        """
        rim = self.rim
        if len(rim):
            ends, number = np.unique(rim, return_inverse=True)
            shell = np.searchsorted(self.vertex_start, ends, side="right") - 1
            keys = np.column_stack([shell, positions[ends]])
            order = np.lexsort(keys.T[::-1])
            fresh = np.concatenate([[True], np.any(keys[order][1:] != keys[order][:-1], axis=1)])
            first = np.empty(len(ends), np.int64)
            first[order] = ends[order[np.flatnonzero(fresh)]][np.cumsum(fresh) - 1]
            rim = _uncancelled(first[number.reshape(rim.shape)], len(self.vertices))
        owner = np.searchsorted(self.vertex_start, rim[:, 0], side="right") - 1
        by_owner = np.argsort(owner, kind="stable")
        rim, owner = rim[by_owner], owner[by_owner]
        start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=self.count))])
        return start, (rim - self.vertex_start[owner][:, None]).astype(np.int32)


def _uncancelled(edges: Longs, vertices: int) -> Longs:
    """``edges`` (E, 2) less those that an edge the other way round cancels."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    key, index = np.unique(low * vertices + high, return_inverse=True)
    net = np.bincount(index, np.where(edges[:, 0] < edges[:, 1], 1.0, -1.0), len(key)).astype(np.int64)
    net[key // max(1, vertices) == key % max(1, vertices)] = 0
    left = np.flatnonzero(net)
    ends = np.column_stack([key[left] // max(1, vertices), key[left] % max(1, vertices)])
    ends[net[left] < 0] = ends[net[left] < 0][:, ::-1]
    return np.repeat(ends, np.abs(net[left]), axis=0)
