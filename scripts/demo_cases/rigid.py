"""`demo_rigid`: boxes and balls fall onto a chequered floor, bounce, and run into each other."""

from __future__ import annotations

import numpy as np

from demo_cases.rigid_body import Motion, Solid, simulate
from demo_cases.scene import Array, Body, Faces, Material, Scene, look_at, moving, still
from demo_cases.shapes import box, checker, octasphere, slab

SOLIDS = (
    Solid((0.22, 0.22, 0.22), (-0.75, 0.15, 1.05), turn=(0.5, 0.35, 0.2), spin=(0.5, 1.0, 0.3)),
    Solid((0.30, 0.18, 0.12), (0.55, 0.35, 0.75), turn=(0.15, -0.3, 0.6), spin=(1.5, -0.5, 0.0)),
    Solid((0.16, 0.16, 0.34), (0.05, -0.30, 0.343)),
    Solid((0.20,) * 3, (0.62, 0.30, 1.55), ball=True, density=500.0),
    Solid((0.17,) * 3, (-1.75, -0.55, 0.60), ball=True, velocity=(2.6, 0.35, 0.6), density=900.0),
    Solid((0.14,) * 3, (-0.65, 0.10, 1.75), ball=True, density=300.0),
)
_PAINT = (
    (0.75, 0.12, 0.08),
    (0.08, 0.30, 0.62),
    (0.85, 0.55, 0.06),
    (0.10, 0.50, 0.22),
    (0.04, 0.38, 0.42),
    (0.45, 0.12, 0.50),
)


def meshes(solids: tuple[Solid, ...], motion: Motion) -> list[tuple[Array, Faces]]:
    """Vertex history (F,V,3) and faces of every body."""
    shapes = [octasphere(s.half[0], 3) if s.ball else box(s.half) for s in solids]
    turned = [
        np.einsum("fij,vj->fvi", motion.rotations[:, k], vertices) + motion.positions[:, k, None]
        for k, (vertices, _) in enumerate(shapes)
    ]
    return [(history, faces) for history, (_, faces) in zip(turned, shapes, strict=True)]


def paint(solid: Solid, faces: Faces, vertices: Array, colour: tuple[float, float, float]) -> Array:
    """Face colours: balls have two pale quarters, boxes differ a little by side, so that turning shows."""
    colours = np.tile(np.asarray(colour, float), (len(faces), 1))
    centres = vertices[faces].mean(axis=1)
    if solid.ball:
        colours[centres[:, 0] * centres[:, 1] > 0.0] = 0.35 * np.asarray(colour) + 0.55
        return colours
    side = np.argmax(np.abs(centres) / solid.half, axis=1)
    return np.asarray(np.clip(colours * np.array([1.0, 0.8, 1.15])[side, None], 0.0, 1.0))


def floor(
    light: tuple[float, float, float], dark: tuple[float, float, float], tiles: int = 14, size: float = 5.6
) -> Body:
    """The floor of the demo scenes: body 1, a chequered slab."""
    shape = slab((size, size), (tiles, tiles), 0.12)
    return still(1, shape, checker((tiles, tiles), len(shape[1]), light, dark))


def build() -> Scene:
    """Simulate the case (no randomness: the layout is fixed)."""
    motion = simulate(SOLIDS)
    bodies = [floor((0.55, 0.52, 0.47), (0.22, 0.23, 0.25))]
    materials = []
    for number, (solid, (history, faces)) in enumerate(zip(SOLIDS, meshes(SOLIDS, motion), strict=True)):
        name, id = f"{'ball' if solid.ball else 'box'}_{number + 1}", number + 2
        rest = octasphere(solid.half[0], 3)[0] if solid.ball else box(solid.half)[0]
        colours = paint(solid, faces, rest, _PAINT[number])
        bodies.append(
            moving(id, history, faces, colours, smooth=solid.ball, gloss=0.35 if solid.ball else 0.1)
        )
        materials.append(Material(name, history, (id,), faces=faces))
    return Scene(
        "demo_rigid", look_at((0.3, -4.3, 1.75), (-0.05, 0.0, 0.42), 1.15), tuple(bodies), tuple(materials)
    )
