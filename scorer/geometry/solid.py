"""One object at one frame as others may be buried in it: bounds, volume, and what is inside, each found on
first use.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TypeVar

import numpy as np
from numba import njit

from scorer.geometry.boundary import boundary_edges, boundary_in_space
from scorer.geometry.box_tree import box_tree, morton_order, triangle_boxes
from scorer.geometry.fast_winding import wound_points
from scorer.geometry.point_mesh_distance import clear_of_surface

T = TypeVar("T")
Tree = tuple[np.ndarray, np.ndarray]


class Lazy:
    """Values that are made once, whichever thread asks first; a lock an object, not one for all."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[str, object] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._values:
                self._values[name] = make()
            return self._values[name]  # type: ignore[return-value]


class Connectivity(Lazy):
    """Faces int (T, 3), at least one; shared by the frames at which they stay the same."""

    def __init__(self, faces: np.ndarray) -> None:
        super().__init__()
        self.faces = faces

    @property
    def boundary(self) -> np.ndarray:
        """Directed boundary edges int64 (k, 2), by vertex numbers."""
        return self.once("boundary", lambda: boundary_edges(self.faces))


class Solid(Lazy):
    """vertices : float32 (V, 3). connectivity : at least one face."""

    def __init__(self, vertices: np.ndarray, connectivity: Connectivity) -> None:
        super().__init__()
        self.vertices = vertices
        self.connectivity = connectivity

    @property
    def faces(self) -> np.ndarray:
        return self.connectivity.faces

    @property
    def extents(self) -> np.ndarray:
        """float64 (4, 3): low and high corner of the vertices that faces name (NaN when one is not finite),
        low and high corner of all finite vertices.
        """
        return self.once("extents", lambda: mesh_extents(self.vertices, self.faces))

    @property
    def span(self) -> float:
        """Diagonal of the bounding box of the vertices that faces name."""
        return float(np.linalg.norm(self.extents[1] - self.extents[0]))

    @property
    def finite_count(self) -> int:
        """Vertices that are finite, named by faces or not."""
        return self.once("finite", lambda: int(np.isfinite(self.vertices).all(axis=1).sum()))

    @property
    def has_volume(self) -> bool:
        """Whether the volume that a surface integral gives is finite and not zero; rounding decides, so the
        terms are those of the integral of 1 = ∂x/∂x over each triangle, summed pairwise.
        """
        return self.once("volume", self._has_volume)

    def _has_volume(self) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            volume = volume_terms(self.vertices, self.faces).sum() / 6.0
        return bool(np.isfinite(volume) and volume != 0.0)

    @property
    def boundary(self) -> np.ndarray:
        """Directed boundary edges int64 (k, 2), vertices at one place taken as one."""
        by_number = self.connectivity.boundary
        if not len(by_number):
            return by_number
        return self.once("boundary", lambda: boundary_in_space(self.vertices, self.faces))

    @property
    def tree(self) -> Tree:
        """Boxes float32 (2 m, 6) from ``box_tree`` and corners float64 (T, 9) in the tree's order."""
        return self.once("tree", self._tree)

    def _tree(self) -> Tree:
        order = morton_order(triangle_boxes(triangle_corners(self.vertices, self.faces)))
        corners = triangle_corners(self.vertices, self.faces[order])
        return box_tree(triangle_boxes(corners))[0], corners

    def buries(self, points: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
        """Whether points are farther from the surface than their tolerances and their winding number is
        above one half in absolute value; bool (P,).

        points : float64 (P, 3). tolerances : float64 (P,).
        """
        buried = np.zeros(len(points), dtype=bool)
        left = np.arange(len(points))
        if not len(self.boundary):
            # A point that a closed surface goes around has the surface on all sides, farther than tolerated.
            low, high = self.extents[0], self.extents[1]
            room = np.minimum(points - low, high - points).min(axis=1)
            left = np.flatnonzero(room >= tolerances)
        if len(left):
            left = left[clear_of_surface(*self.tree, points[left], tolerances[left])]
        if len(left):
            buried[left] = wound_points(self.vertices, self.faces, points[left], self.boundary, *self.tree)
        return buried


@njit(cache=True, nogil=True)
def mesh_extents(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """See ``Solid.extents``."""
    extents = np.empty((4, 3))
    extents[0::2] = np.inf
    extents[1::2] = -np.inf
    for f in range(len(faces)):
        for k in range(3):
            vertex = faces[f, k]
            for axis in range(3):
                value = np.float64(vertices[vertex, axis])
                if not np.isfinite(value):
                    extents[:2] = np.nan
                extents[0, axis] = min(extents[0, axis], value)
                extents[1, axis] = max(extents[1, axis], value)
    for i in range(len(vertices)):
        x, y, z = vertices[i, 0], vertices[i, 1], vertices[i, 2]
        if np.isfinite(x) and np.isfinite(y) and np.isfinite(z):
            for axis in range(3):
                value = np.float64(vertices[i, axis])
                extents[2, axis] = min(extents[2, axis], value)
                extents[3, axis] = max(extents[3, axis], value)
    return extents


@njit(cache=True, nogil=True)
def triangle_corners(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Corners of each face in a row, float64 (T, 9)."""
    corners = np.empty((len(faces), 9))
    for f in range(len(faces)):
        for k in range(3):
            for axis in range(3):
                corners[f, 3 * k + axis] = vertices[faces[f, k], axis]
    return corners


@njit(cache=True, nogil=True)
def volume_terms(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """x of the edges' cross product times the sum of the corners' x, for every face; float64 (T,)."""
    terms = np.empty(len(faces))
    for f in range(len(faces)):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ay, by, cy = np.float64(vertices[a, 1]), np.float64(vertices[b, 1]), np.float64(vertices[c, 1])
        az, bz, cz = np.float64(vertices[a, 2]), np.float64(vertices[b, 2]), np.float64(vertices[c, 2])
        cross = (by - ay) * (cz - bz) - (bz - az) * (cy - by)
        total = np.float64(vertices[a, 0]) + np.float64(vertices[b, 0]) + np.float64(vertices[c, 0])
        terms[f] = cross * total
    return terms
