"""Open components: sheet or leaky solid, told by the winding number just behind the surface."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from scorer.geometry.holes import FLAT
from scorer.geometry.self_intersection import cross_product
from scorer.geometry.winding import winding_number
from scorer.geometry.winding_bounds import dipole_tree, winding_with_bound
from scorer.metrics.mesh_layout import Layout

PROBES = 200
"""Most faces of a component that are probed."""
DEPTH = 1e-3
"""Distance of a probe behind its face, in diagonals of the component's bounding box."""
SHEET = 0.75
"""A component whose median absolute winding number lies below is a sheet."""
_TREE_FACES = 1000
"""Larger components are probed by bounds first; only what these leave open is summed up exactly."""
_COARSE, _FINE = 6.0, 10.0
"""How far away patches are, in their radii, that the two bounds take as a whole."""


class ProbeFaces:
    """Which faces of a component are probed, from one generator for all objects of a frame.

    A draw from a component of up to ``PROBES`` faces takes all of them in some order, which decides nothing,
    so it is only made if a larger component comes later.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generator: np.random.Generator | None = None
        self._owed: list[int] = []

    def take(self, count: int) -> np.ndarray:
        """Indices of the probed faces among ``count``, int64; the generator moves on (or owes it)."""
        if count <= PROBES:
            self._owed.append(count)
            return np.arange(count)
        if self._generator is None:
            self._generator = np.random.default_rng(self._seed)
        for owed in self._owed:
            self._generator.choice(owed, owed, replace=False)
        self._owed.clear()
        return self._generator.choice(count, PROBES, replace=False)


def watertight(plan: Layout, vertices: np.ndarray, probe_faces: ProbeFaces) -> bool:
    """Whether every component is closed, a single face, or a sheet.

    plan : its ``single`` and ``over`` after filling holes. vertices : float32 (V, 3).
    """
    doubtful = _open_components(vertices, plan.faces, plan.start, plan.own, plan.single, plan.over)
    chosen: list[np.ndarray] = []
    leaking: list[int] = []
    for c in doubtful:
        count = int(plan.start[c + 1] - plan.start[c])
        faces = probe_faces.take(count) if plan.draws[c] else np.arange(count)
        # Without an edge of one side there is nothing to leak through, whatever the winding number.
        if plan.single[c] > 0:
            leaking.append(int(c))
            chosen.append(faces)
    return not leaking or not any_solid(plan, vertices, leaking, chosen)


def any_solid(plan: Layout, vertices: np.ndarray, which: Sequence[int], chosen: Sequence[np.ndarray]) -> bool:
    """Whether any of the components ``which``, probed at its ``chosen`` faces, is a solid rather than a
    sheet.
    """
    start = np.concatenate(([0], np.cumsum([len(faces) for faces in chosen])))
    return bool(
        _any_solid(
            vertices, plan.faces, plan.start, plan.vertices, plan.vertex_start,
            np.array(which, dtype=np.int64), np.concatenate(chosen).astype(np.int64), start.astype(np.int64),
        )
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _open_components(
    vertices: np.ndarray, faces: np.ndarray, start: np.ndarray, own: np.ndarray,
    single: np.ndarray, over: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Components that are neither closed nor one face with area, in order."""
    found = np.empty(len(own), dtype=np.int64)
    count = 0
    for c in range(len(own)):
        if single[c] == 0 and over[c] == 0:
            continue
        if own[c] == 1:
            f = start[c]
            x, y, z = cross_product(vertices, faces[f, 0], faces[f, 1], faces[f, 2])
            if x != 0.0 or y != 0.0 or z != 0.0:
                continue
        found[count] = c
        count += 1
    return found[:count].copy()


@njit(cache=True, nogil=True)
def _any_solid(
    vertices: np.ndarray, faces: np.ndarray, start: np.ndarray, used: np.ndarray, used_start: np.ndarray,
    which: np.ndarray, chosen: np.ndarray, chosen_start: np.ndarray,
) -> bool:  # fmt: skip
    scratch = np.empty((len(vertices), 4))
    for k in range(len(which)):
        c = which[k]
        if not _is_sheet(
            vertices, faces[start[c] : start[c + 1]], used[used_start[c] : used_start[c + 1]],
            chosen[chosen_start[k] : chosen_start[k + 1]], scratch,
        ):  # fmt: skip
            return True
    return False


@njit(cache=True, nogil=True)
def _is_sheet(
    vertices: np.ndarray, faces: np.ndarray, used: np.ndarray, chosen: np.ndarray, scratch: np.ndarray
) -> bool:
    """Whether the median of |winding number| at the probes is below SHEET; stops once it is decided."""
    depth = DEPTH * _diagonal(vertices, used)
    if len(faces) > _TREE_FACES:
        below = _count_below(vertices, faces, used, chosen, depth, scratch)
        if 2 * below != len(chosen):
            return 2 * below > len(chosen)
    half = len(chosen) // 2
    below = 0
    above = 0
    highest_below = 0.0
    lowest_above = np.inf
    for f in chosen:
        x, y, z = _probe(vertices, faces[f], depth)
        number = abs(winding_number(vertices, faces, used, x, y, z, scratch))
        if number < SHEET:
            below += 1
            highest_below = max(highest_below, number)
        else:
            above += 1
            lowest_above = min(lowest_above, number)
        if below > half or above > half:
            return below > above
    # An even number, split evenly: the median is the mean of the two in the middle.
    return 0.5 * (highest_below + lowest_above) < SHEET


@njit(cache=True, nogil=True)
def _count_below(
    vertices: np.ndarray, faces: np.ndarray, used: np.ndarray, chosen: np.ndarray, depth: float,
    scratch: np.ndarray,
) -> int:  # fmt: skip
    """How many probes have |winding number| below SHEET: all are counted unless more than half lie on one
    side.
    """
    nodes, corners = dipole_tree(vertices, faces)
    half = len(chosen) // 2
    below = 0
    above = 0
    for f in chosen:
        x, y, z = _probe(vertices, faces[f], depth)
        number, error = winding_with_bound(nodes, corners, x, y, z, _COARSE)
        if abs(abs(number) - SHEET) <= error:
            number, error = winding_with_bound(nodes, corners, x, y, z, _FINE)
        if abs(abs(number) - SHEET) <= error:
            number = winding_number(vertices, faces, used, x, y, z, scratch)
        number = abs(number)
        if number < SHEET:
            below += 1
        else:
            above += 1
        if below > half:
            return len(chosen)
        if above > half:
            return 0
    return below


@njit(cache=True, nogil=True)
def _diagonal(vertices: np.ndarray, used: np.ndarray) -> float:
    total = 0.0
    for axis in range(3):
        low = np.inf
        high = -np.inf
        for vertex in used:
            low = min(low, np.float64(vertices[vertex, axis]))
            high = max(high, np.float64(vertices[vertex, axis]))
        total += (high - low) ** 2
    return math.sqrt(total)


@njit(cache=True, nogil=True)
def _probe(vertices: np.ndarray, face: np.ndarray, depth: float) -> tuple[float, float, float]:
    """Centroid of the face moved ``depth`` against its normal, or the centroid itself when the face is flat.

    Rounded to float32, the precision in which libigl's fast winding number works: on a small component far
    from the origin the rounding is no longer small beside the depth.
    """
    a, b, c = face[0], face[1], face[2]
    x, y, z = cross_product(vertices, a, b, c)
    length = math.sqrt(x * x + y * y + z * z)
    step = depth / length if length > FLAT else 0.0
    centre = np.empty(3)
    for axis in range(3):
        total = np.float64(vertices[a, axis]) + np.float64(vertices[b, axis])
        centre[axis] = (total + np.float64(vertices[c, axis])) / 3.0
    return (
        np.float64(np.float32(centre[0] - x * step)),
        np.float64(np.float32(centre[1] - y * step)),
        np.float64(np.float32(centre[2] - z * step)),
    )
