"""Samples of a tetrahedral material: cells whose middle lies in a tetrahedron, barycentric weights.

Source: protocol 4dcb-1, tetrahedra.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scorer.geometry.sampling.voxels import Box, cells, centres, jittered

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

TOLERANCE = 1e-9


def tet_samples(
    positions: Doubles, tets: NDArray[np.integer], box: Box, h: float, rng: np.random.Generator
) -> tuple[Doubles, Longs, Floats]:
    """Points float64 (S, 3), their columns int64 (S, 4) and weights float32 (S, 4), in the order of cells.

    positions : float64 (N, 3), finite where a tetrahedron uses them. tets : int (K, 4). box : around every
    finite column. A cell goes to the first tetrahedron that holds its middle; the sample is its jittered
    point, which may lie outside.
    """
    number = box.probe(rng)
    probed = box.cells(number)
    corners = positions[tets]
    edges = corners[:, 1:] - corners[:, :1]
    kept = np.abs(_determinants(edges)) > TOLERANCE * h**3
    low = cells(corners.min(axis=1), h) - box.base
    high = cells(corners.max(axis=1), h) - box.base
    low, high = np.maximum(low, 0), np.minimum(high, box.counts - 1)
    owner = _owners(corners, kept, low, high, box.counts, number, probed - box.base, centres(probed, h))
    inside = np.flatnonzero(owner >= 0)
    points = jittered(probed[inside], h)
    chosen = owner[inside]
    return points, tets[chosen].astype(np.int64), _weights(corners, chosen, points)


def _determinants(edges: Doubles) -> Doubles:
    """det of each of ``edges`` (K, 3, 3)."""
    a, b, c = edges[:, 0], edges[:, 1], edges[:, 2]
    found: Doubles = np.einsum("ki,ki->k", a, np.cross(b, c))
    return found


@njit(cache=True, nogil=True)
def _solve(corners: np.ndarray, x: float, y: float, z: float, out: np.ndarray) -> None:
    """``out`` (3,) becomes the barycentric coordinates of (x, y, z) for corners 1, 2 and 3 of ``corners``
    (4, 3): Gaussian elimination with the largest pivot.
    """
    m = np.empty((3, 4))
    for row in range(3):
        for k in range(3):
            m[row, k] = corners[k + 1, row] - corners[0, row]
    m[0, 3], m[1, 3], m[2, 3] = x - corners[0, 0], y - corners[0, 1], z - corners[0, 2]
    for k in range(3):
        pivot = k
        for row in range(k + 1, 3):
            if abs(m[row, k]) > abs(m[pivot, k]):
                pivot = row
        if pivot != k:
            for column in range(4):
                m[k, column], m[pivot, column] = m[pivot, column], m[k, column]
        for row in range(k + 1, 3):
            factor = m[row, k] / m[k, k]
            for column in range(k + 1, 4):
                m[row, column] -= factor * m[k, column]
    for k in range(2, -1, -1):
        value = m[k, 3]
        for column in range(k + 1, 3):
            value -= m[k, column] * out[column]
        out[k] = value / m[k, k]


@njit(cache=True, nogil=True)
def _holds(corners: np.ndarray, point: np.ndarray, scratch: np.ndarray) -> Any:
    _solve(corners, point[0], point[1], point[2], scratch)
    b1, b2, b3 = scratch[0], scratch[1], scratch[2]
    return min(b1, b2, b3) >= -TOLERANCE and b1 + b2 + b3 <= 1.0 + TOLERANCE


@njit(cache=True, nogil=True)
def _owners(
    corners: np.ndarray,
    kept: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    counts: np.ndarray,
    number: np.ndarray,
    cell: np.ndarray,
    middle: np.ndarray,
) -> np.ndarray:
    """First tetrahedron int64 (Q,) that holds each probed cell's ``middle`` (Q, 3), −1 for none.

    low, high : int64 (K, 3), boxes of the tetrahedra, and cell : int64 (Q, 3), all relative to the probed
    box.
    """
    owner = np.full(len(number), -1, np.int64)
    scratch = np.empty(3)
    for tet in range(len(corners)):
        if not kept[tet]:
            continue
        x0, y0, z0 = low[tet, 0], low[tet, 1], low[tet, 2]
        x1, y1, z1 = high[tet, 0], high[tet, 1], high[tet, 2]
        if (x1 - x0 + 1.0) * (y1 - y0 + 1.0) > len(number):
            for q in range(len(number)):
                x, y, z = cell[q, 0], cell[q, 1], cell[q, 2]
                within = x0 <= x <= x1 and y0 <= y <= y1 and z0 <= z <= z1
                if within and owner[q] < 0 and _holds(corners[tet], middle[q], scratch):
                    owner[q] = tet
            continue
        for x in range(x0, x1 + 1):
            for y in range(y0, y1 + 1):
                line = (x * counts[1] + y) * counts[2]
                q = np.searchsorted(number, line + z0)
                while q < len(number) and number[q] <= line + z1:
                    if owner[q] < 0 and _holds(corners[tet], middle[q], scratch):
                        owner[q] = tet
                    q += 1
    return owner


@njit(cache=True, nogil=True)
def _weights(corners: np.ndarray, chosen: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Barycentric weights float32 (S, 4) of ``points`` (S, 3) in the tetrahedra ``chosen`` (S,)."""
    weights = np.empty((len(points), 4), np.float32)
    b = np.empty(3)
    for i in range(len(points)):
        _solve(corners[chosen[i]], points[i, 0], points[i, 1], points[i, 2], b)
        weights[i, 0] = 1.0 - (b[0] + b[1] + b[2])
        for k in range(3):
            weights[i, k + 1] = b[k]
    return weights
