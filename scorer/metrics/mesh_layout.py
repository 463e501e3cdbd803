"""What the mesh checks need to know of an object's faces, computed once for as long as the faces do not
change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from scorer.geometry.components import Components, components, edge_uses
from scorer.geometry.holes import FLAT, MAX_CYCLE, MIN_BOUNDARY, MIN_FACES, fillings
from scorer.geometry.self_intersection import cross_product

_SMALL = 5
"""Components of two to this many faces draw nothing from the generator, with exceptions (``_draws``)."""


@dataclass(frozen=True)
class Layout:
    """Components of an object with their small holes filled.

    faces : int32 (N, 3), grouped by component: its own faces, then the triangles that fill its holes.
    start : int64 (C + 1,).
    own : int64 (C,), faces of each component that are its own.
    vertices, vertex_start : vertices used by each component, see ``Components``.
    single, over : int64 (C,), edges with one side, and with more than two, after filling.
    draws : bool (C,), whether the component takes from the frame's generator when it is not watertight.
    """

    faces: np.ndarray
    start: np.ndarray
    own: np.ndarray
    vertices: np.ndarray
    vertex_start: np.ndarray
    single: np.ndarray
    over: np.ndarray
    draws: np.ndarray

    @property
    def has_fillings(self) -> bool:
        return len(self.faces) > int(self.own.sum())


def layout(faces: np.ndarray, vertex_count: int) -> Layout:
    """Layout of int (T, 3) faces over ``vertex_count`` vertices."""
    parts = components(faces, vertex_count)
    triangles, offset = fillings(parts)
    draws = _draws(parts.start, parts.boundary, parts.boundary_start)
    if len(triangles) == 0:
        return _unfilled(parts, draws)
    filled, start = _interleave(parts.faces, parts.start, triangles, offset)
    single, over = parts.single.copy(), parts.over.copy()
    _recount(filled, start, np.diff(offset) > 0, vertex_count, single, over)
    return Layout(
        filled, start, np.diff(parts.start), parts.vertices, parts.vertex_start, single, over, draws
    )


def _unfilled(parts: Components, draws: np.ndarray) -> Layout:
    return Layout(
        parts.faces, parts.start, np.diff(parts.start), parts.vertices, parts.vertex_start,
        parts.single, parts.over, draws,
    )  # fmt: skip


def without_flat_fillings(plan: Layout, vertices: np.ndarray) -> Layout:
    """``plan`` less the filling triangles that have no area at these vertices (float32 (V, 3)); often
    ``plan`` itself.
    """
    if not plan.has_fillings:
        return plan
    keep, touched = _flat_fillings(vertices, plan.faces, plan.start, plan.own)
    if not touched.any():
        return plan
    start = np.concatenate(([0], np.cumsum(keep)))[plan.start]
    faces = plan.faces[keep]
    single, over = plan.single.copy(), plan.over.copy()
    _recount(faces, start, touched, len(vertices), single, over)
    return replace(plan, faces=faces, start=start, single=single, over=over)


@njit(cache=True, nogil=True)
def _interleave(
    faces: np.ndarray, start: np.ndarray, triangles: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each component's faces followed by its filling triangles."""
    filled = np.empty((len(faces) + len(triangles), 3), dtype=np.int32)
    filled_start = start + offset
    for c in range(len(start) - 1):
        own = start[c + 1] - start[c]
        filled[filled_start[c] : filled_start[c] + own] = faces[start[c] : start[c + 1]]
        filled[filled_start[c] + own : filled_start[c + 1]] = triangles[offset[c] : offset[c + 1]]
    return filled, filled_start


@njit(cache=True, nogil=True)
def _recount(
    faces: np.ndarray, start: np.ndarray, changed: np.ndarray, vertex_count: int,
    single: np.ndarray, over: np.ndarray,
) -> None:  # fmt: skip
    """Count the edge uses of the changed components again."""
    for c in range(len(start) - 1):
        if changed[c]:
            single[c], over[c] = edge_uses(faces[start[c] : start[c + 1]], vertex_count)


@njit(cache=True, nogil=True)
def _flat_fillings(
    vertices: np.ndarray, faces: np.ndarray, start: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Faces to keep, bool (N,), and components that lose some, bool (C,)."""
    keep = np.ones(len(faces), dtype=np.bool_)
    touched = np.zeros(len(own), dtype=np.bool_)
    for c in range(len(own)):
        for f in range(start[c] + own[c], start[c + 1]):
            x, y, z = cross_product(vertices, faces[f, 0], faces[f, 1], faces[f, 2])
            if not np.sqrt(x * x + y * y + z * z) > FLAT:
                keep[f] = False
                touched[c] = True
    return keep, touched


@njit(cache=True, nogil=True)
def _draws(start: np.ndarray, boundary: np.ndarray, boundary_start: np.ndarray) -> np.ndarray:
    """Whether each component, should it not be watertight, takes its probes from the generator.

    Components of two to five faces do not, unless they could have a hole to fill or a boundary that is no
    set of plain loops.
    """
    draws = np.ones(len(start) - 1, dtype=np.bool_)
    for c in range(len(start) - 1):
        own = start[c + 1] - start[c]
        edges = boundary[boundary_start[c] : boundary_start[c + 1]]
        if 2 <= own <= _SMALL:
            draws[c] = own >= MIN_FACES and len(edges) >= MIN_BOUNDARY and not _long_loops(edges)
    return draws


@njit(cache=True, nogil=True)
def _long_loops(edges: np.ndarray) -> bool:
    """Whether the edges (int32 (n, 2), n ≤ 15) are disjoint loops of more than MAX_CYCLE vertices each."""
    ends = edges.ravel()
    for vertex in ends:
        if np.sum(ends == vertex) != 2:
            return False
    walked = np.zeros(len(edges), dtype=np.bool_)
    for first in range(len(edges)):
        if walked[first]:
            continue
        walked[first] = True
        length = 1
        at = edges[first, 1]
        while at != edges[first, 0]:
            for i in range(len(edges)):
                if not walked[i] and (edges[i, 0] == at or edges[i, 1] == at):
                    walked[i] = True
                    length += 1
                    at = edges[i, 1] if edges[i, 0] == at else edges[i, 0]
                    break
        if length <= MAX_CYCLE:
            return False
    return True
