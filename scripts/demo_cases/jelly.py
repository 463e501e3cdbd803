"""`demo_jelly`: two blocks of jelly fall, wobble and bounce. Neo-Hookean tetrahedra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from demo_cases.rigid import floor
from demo_cases.rigid_body import rotation
from demo_cases.scene import (
    CONTACT_MARGIN,
    FPS,
    FRAMES,
    GRAVITY,
    Array,
    Body,
    Faces,
    Material,
    Scene,
    look_at,
    moving,
)

SUBSTEPS = 100
YOUNG, POISSON, DENSITY = 3e4, 0.40, 400.0
"""Pascal, –, kg/m³: a soft foam."""
SHEAR = YOUNG / (2.0 * (1.0 + POISSON))
LAMBDA = YOUNG * POISSON / ((1.0 + POISSON) * (1.0 - 2.0 * POISSON)) + SHEAR
"""Lamé's constants µ and, as the stable neo-Hookean energy wants it, λ + µ; pascal."""
VISCOSITY = 35.0
"""Pascal seconds."""
FRICTION = 0.4


@dataclass(frozen=True)
class Solid:
    """A tetrahedral body at rest: nodes (N,3) in metres, tets (K,4) of positive volume."""

    nodes: Array
    tets: Faces


def brick(half: tuple[float, float, float], cells: tuple[int, int, int], roundness: float = 0.0) -> Solid:
    """A grid of cells, each cut into five tetrahedra in alternating ways.

    ``roundness`` 1 would push the block out to a ball, with slivers at the corners; 0 leaves it.
    """
    axes = [np.linspace(-1.0, 1.0, n + 1) for n in cells]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    y2, z2 = nodes[:, [1, 2, 0]] ** 2, nodes[:, [2, 0, 1]] ** 2
    # Shells of the cube become spheres: x·sqrt(1 − y²/2 − z²/2 + y²z²/3).
    nodes = nodes * (1.0 + roundness * (np.sqrt(1.0 - (y2 + z2) / 2.0 + y2 * z2 / 3.0) - 1.0))
    index = np.arange(len(nodes)).reshape([n + 1 for n in cells])
    even = ((0, 3, 5, 6), (1, 0, 3, 5), (2, 3, 0, 6), (4, 0, 5, 6), (7, 3, 5, 6))
    odd = ((1, 2, 4, 7), (0, 1, 2, 4), (3, 1, 2, 7), (5, 1, 4, 7), (6, 2, 4, 7))
    tets = []
    for i, j, k in np.ndindex(*cells):
        corner = index[i : i + 2, j : j + 2, k : k + 2].ravel()
        tets += [corner[list(four)] for four in (even if (i + j + k) % 2 == 0 else odd)]
    cut = np.array(tets)
    nodes = nodes * half
    edges = nodes[cut[:, 1:]] - nodes[cut[:, :1]]
    inverted = np.linalg.det(edges) < 0.0
    cut[inverted] = cut[inverted][:, [0, 2, 1, 3]]
    return Solid(nodes, cut.astype(np.int32))


def surface(tets: Faces) -> Faces:
    """Faces that belong to one tetrahedron only, wound outwards."""
    sides = tets[:, [[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]]].reshape(-1, 3)
    _, first, count = np.unique(np.sort(sides, axis=1), axis=0, return_index=True, return_counts=True)
    return np.asarray(sides[np.sort(first[count == 1])], np.int32)


def fall(solid: Solid, place: Array, turn: Array, spin: Array, frames: int = FRAMES, fps: int = FPS) -> Array:
    """Node history (F,N,3) of the body let go at ``place``, turned and spinning (rad, rad/s)."""
    tets = solid.tets
    inverse, volume = rest_state(solid)
    mass = np.bincount(tets.ravel(), np.repeat(volume * DENSITY / 4.0, 4), minlength=len(solid.nodes))
    x = solid.nodes @ rotation(turn[None])[0].T + place
    v = np.cross(spin, x - place)
    history = [x.copy()]
    for _ in range(frames - 1):
        _advance(x, v, mass, tets, inverse, volume, SUBSTEPS, 1.0 / (fps * SUBSTEPS))
        history.append(x.copy())
    return np.stack(history)


def rest_state(solid: Solid) -> tuple[Array, Array]:
    """Inverse edge matrices (K,3,3) and volumes (K,) of the tetrahedra at rest."""
    rest = (solid.nodes[solid.tets[:, 1:]] - solid.nodes[solid.tets[:, :1]]).transpose(0, 2, 1)
    return np.ascontiguousarray(np.linalg.inv(rest)), np.asarray(np.linalg.det(rest) / 6.0)


@njit(cache=True)
def _advance(
    x: Any, v: Any, mass: Any, tets: Any, inverse: Any, volume: Any, steps: int, step: float
) -> None:
    """Symplectic Euler in place.

    Energy density of the stable neo-Hookean solid of Smith, de Goes and Kim (2018) without its logarithm:
    ``µ/2 (|F|² − 3) + λ/2 (J − α)²`` with ``α = 1 + µ/λ``, whose rest state is F = I.
    """
    bulk = LAMBDA
    alpha = 1.0 + SHEAR / bulk
    force = np.empty_like(x)
    edges, rates, stretch, rate = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    minors, stress, strain = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    for _ in range(steps):
        force[:] = 0.0
        for k in range(len(tets)):
            for i in range(3):
                for c in range(3):
                    edges[c, i] = x[tets[k, i + 1], c] - x[tets[k, 0], c]
                    rates[c, i] = v[tets[k, i + 1], c] - v[tets[k, 0], c]
            for i in range(3):
                for j in range(3):
                    stretch[i, j] = rate[i, j] = 0.0
                    for m in range(3):
                        stretch[i, j] += edges[i, m] * inverse[k, m, j]
                        rate[i, j] += rates[i, m] * inverse[k, m, j]
            for i in range(3):
                p, q = (i + 1) % 3, (i + 2) % 3
                for j in range(3):
                    r, s = (j + 1) % 3, (j + 2) % 3
                    minors[i, j] = stretch[p, r] * stretch[q, s] - stretch[p, s] * stretch[q, r]
            swollen = -alpha
            for j in range(3):
                swollen += stretch[0, j] * minors[0, j]
            # The viscous part takes the symmetric rate only, so that turning as a whole is not braked.
            for i in range(3):
                for j in range(3):
                    strain[i, j] = 0.0
                    for m in range(3):
                        strain[i, j] += stretch[m, i] * rate[m, j] + stretch[m, j] * rate[m, i]
            for i in range(3):
                for j in range(3):
                    stress[i, j] = SHEAR * stretch[i, j] + bulk * swollen * minors[i, j]
                    for m in range(3):
                        stress[i, j] += VISCOSITY * stretch[i, m] * strain[m, j]
            for c in range(3):
                for i in range(3):
                    pull = 0.0
                    for m in range(3):
                        pull += stress[c, m] * inverse[k, i, m]
                    force[tets[k, i + 1], c] -= volume[k] * pull
                    force[tets[k, 0], c] += volume[k] * pull
        for n in range(len(x)):
            for c in range(3):
                v[n, c] += step * force[n, c] / mass[n]
            v[n, 2] += step * GRAVITY
            for c in range(3):
                x[n, c] += step * v[n, c]
            if x[n, 2] < CONTACT_MARGIN:
                x[n, 2] = CONTACT_MARGIN
                pressed = max(0.0, -v[n, 2])
                speed = np.sqrt(v[n, 0] ** 2 + v[n, 1] ** 2)
                keep = max(0.0, 1.0 - FRICTION * pressed / max(speed, 1e-9))
                v[n, 0] *= keep
                v[n, 1] *= keep
                v[n, 2] += pressed


def build() -> Scene:
    """Simulate the case (no randomness: the layout is fixed)."""
    cube = brick((0.30, 0.30, 0.24), (6, 6, 5))
    blob = brick((0.29, 0.29, 0.29), (6, 6, 6), roundness=0.7)
    drops = (
        ("cube", cube, (-0.45, 0.0, 0.72), (0.42, 0.16, 0.5), (0.0, -0.2, 0.0), (0.70, 0.10, 0.16)),
        ("blob", blob, (0.55, 0.15, 0.86), (0.3, 0.2, 0.3), (0.0, 0.0, 0.0), (0.14, 0.48, 0.20)),
    )
    bodies: list[Body] = [floor((0.62, 0.58, 0.52), (0.42, 0.30, 0.20))]
    materials = []
    for id, (name, solid, place, turn, spin, colour) in enumerate(drops, start=2):
        history = fall(solid, np.array(place), np.array(turn), np.array(spin))
        skin = surface(solid.tets)
        used, local = np.unique(skin, return_inverse=True)
        faces = local.reshape(-1, 3).astype(np.int32)
        colours = np.tile(np.array(colour), (len(faces), 1))
        bodies.append(moving(id, history[:, used], faces, colours, smooth=solid is blob, gloss=0.5))
        materials.append(Material(name, history, (id,), tets=solid.tets))
    return Scene(
        "demo_jelly", look_at((0.2, -3.7, 1.5), (0.0, 0.0, 0.5), 1.15), tuple(bodies), tuple(materials)
    )
