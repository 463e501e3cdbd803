"""Samples of the surface of open shells: area-weighted draws, barycentric weights.

Source: protocol 4dcb-1, surface sampling. Every component uses ``3 n`` numbers of the generator, n its number
of draws: which faces, then u, then v. A single face uses its first n numbers too, for nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.sampling.voxels import MAX_VOXELS, thin

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

DENSITY = 4.0
"""Draws for each h² of area."""
_DRAWS_AT_ONCE = 1 << 21


def areas(positions: Doubles, faces: Longs) -> Doubles:
    """float64 (T,) of ``faces`` (T, 3)."""
    a, b, c = (positions[faces[:, k]] for k in range(3))
    found: Doubles = 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)
    return found


def surface_samples(
    positions: Doubles,
    faces: Longs,
    area: Doubles,
    spans: list[tuple[int, int]],
    h: float,
    rng: np.random.Generator,
) -> tuple[Doubles, Longs, Floats, Longs]:
    """Points float64 (S, 3), faces int64 (S,), weights float32 (S, 3) and span numbers int64 (S,), ascending.

    positions : float64 (U, 3). faces : int (T, 3). area : float64 (T,). spans : the faces ``start:stop`` of
    each component, in the order in which they use the generator; one without area uses none.
    One sample a cell and component.
    """
    pieces = []
    plans = [_plan(area[start:stop], h) for start, stop in spans]
    first = 0
    while first < len(spans):
        last, draws = first, 0
        while last < len(spans) and (last == first or draws + plans[last] <= _DRAWS_AT_ONCE):
            draws += plans[last]
            last += 1
        if draws:
            part = slice(first, last)
            pieces.append(
                _drawn(positions, faces, area, spans[part], plans[part], first, rng.random(3 * draws), h)
            )
        first = last
    if not pieces:
        nothing = np.zeros((0, 3))
        return nothing, np.zeros(0, np.int64), nothing.astype(np.float32), np.zeros(0, np.int64)
    points, face, weights, owner = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return points, face, weights, owner


def _plan(area: Doubles, h: float) -> int:
    """Number of draws of a component."""
    total = float(area.sum())
    return int(min(MAX_VOXELS, max(1, DENSITY * total / h**2))) if total > 0.0 else 0


def _drawn(
    positions: Doubles,
    faces: Longs,
    area: Doubles,
    spans: list[tuple[int, int]],
    plans: list[int],
    first: int,
    uniform: Doubles,
    h: float,
) -> tuple[Doubles, Longs, Floats, Longs]:
    """The samples of some components from their uniforms."""
    many = len(uniform) // 3
    face, u, v = np.empty(many, np.int64), np.empty(many), np.empty(many)
    done = 0
    for (start, stop), draws in zip(spans, plans, strict=True):
        into = slice(done, done + draws)
        choice, u[into], v[into] = uniform[3 * done : 3 * (done + draws)].reshape(3, draws)
        face[into] = start
        if stop - start > 1 and draws:
            share = np.cumsum(area[start:stop] / area[start:stop].sum())
            share /= share[-1]
            face[into] += share.searchsorted(choice, side="right")
        done += draws
    folded = u + v > 1.0
    u[folded], v[folded] = 1.0 - u[folded], 1.0 - v[folded]
    weights = np.stack([1.0 - u - v, u, v], axis=1)
    points = np.zeros((len(face), 3))
    for k in range(3):
        points += weights[:, k, None] * positions[faces[face, k]]
    owner = np.repeat(np.arange(first, first + len(spans), dtype=np.int64), plans)
    kept = thin(points, h, owner)
    return points[kept], face[kept], weights[kept].astype(np.float32), owner[kept]
