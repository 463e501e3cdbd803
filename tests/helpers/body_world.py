"""A world of bodies in memory, and ways to move, spoil and thin it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from raster_scenes import grid, random_rotation, sphere

from world.camera import look_at

NOTHING = (np.empty((0, 3), np.float32), np.empty((0, 3), np.int32))


@dataclass(frozen=True)
class Body:
    """vertices : (F, V, 3). faces : (T, 3). moving : a dynamics archive names it."""

    vertices: np.ndarray
    faces: np.ndarray
    moving: bool = False


@dataclass
class BodyWorld:
    """What the registration reads of a world."""

    bodies: dict[int, Body]
    frames: int = 6
    height: int = 90
    width: int = 120
    intrinsics: np.ndarray = field(
        default_factory=lambda: np.array([[110.0, 0, 60], [0, 110, 45], [0, 0, 1]])
    )
    extrinsic: np.ndarray = field(default_factory=lambda: look_at((-0.5, -4, 2.2), (0.3, 0, 0.4)))
    path: Path = Path("world")

    @property
    def dynamic_ids(self) -> tuple[int, ...]:
        return tuple(sorted(number for number, body in self.bodies.items() if body.moving))

    def object_mesh(self, number: int, frame: int) -> tuple[np.ndarray, np.ndarray]:
        body = self.bodies.get(number)
        if body is None or frame >= len(body.vertices):
            return NOTHING
        return body.vertices[frame].astype(np.float32), body.faces.astype(np.int32)

    def soup(self, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        verts, faces, owner, start = [NOTHING[0]], [NOTHING[1]], [np.empty(0, np.int32)], 0
        for number in sorted(self.bodies):
            v, f = self.object_mesh(number, frame)
            if len(f):
                verts, faces = [*verts, v], [*faces, f + np.int32(start)]
                owner.append(np.full(len(f), number, np.int32))
                start += len(v)
        return np.concatenate(verts), np.concatenate(faces), np.concatenate(owner)


def mini_world(frames: int = 6, **changes) -> BodyWorld:
    """A floor of 4 m and two bodies that move over it: a ball in x, a slab that turns and rises."""
    flat, cells = grid(1, 1)
    floor = np.column_stack([2 * flat, np.zeros(len(flat))])
    ball, ball_faces = sphere(16, 24)
    slab, slab_faces = sphere(10, 14)
    t = np.linspace(0, 1, frames)
    balls = np.stack([0.4 * ball + (-0.8 + 1.4 * s, 0.3, 0.45) for s in t])
    slabs = np.stack([(slab * (0.5, 0.25, 0.1)) @ turn(1.5 * s).T + (0.9, -0.6, 0.4 + 0.5 * s) for s in t])
    return BodyWorld(
        {
            1: Body(np.repeat(floor[None], frames, axis=0), cells),
            2: Body(balls, ball_faces, moving=True),
            10: Body(slabs, slab_faces, moving=True),
        },
        frames=frames,
        **changes,
    )


def turn(angle: float) -> np.ndarray:
    """Rotation about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


def deformed(world: BodyWorld, change: Callable[[np.ndarray], np.ndarray]) -> BodyWorld:
    """The same bodies with ``change`` applied to all vertices (F, V, 3)."""
    bodies = {
        number: replace(body, vertices=change(body.vertices.astype(np.float64)))
        for number, body in world.bodies.items()
    }
    return replace(world, bodies=bodies)


def transformed(
    world: BodyWorld, scale: float, rotation: np.ndarray, offset: np.ndarray, *, camera: bool = True
) -> BodyWorld:
    """The world under x ↦ scale · rotation x + offset, the camera with it unless told otherwise."""
    moved = deformed(world, lambda points: scale * points @ rotation.T + offset)
    if not camera:
        return moved
    extrinsic = np.eye(4)
    extrinsic[:3, :3] = rotation @ world.extrinsic[:3, :3]
    extrinsic[:3, 3] = scale * rotation @ world.extrinsic[:3, 3] + offset
    return replace(moved, extrinsic=extrinsic)


def noisy(world: BodyWorld, amount: float, seed: int = 0) -> BodyWorld:
    """Every vertex shifted by normal noise of ``amount`` metres, the same at all frames."""
    rng = np.random.default_rng(seed)
    shifts = {number: rng.normal(size=body.vertices.shape[1:]) for number, body in world.bodies.items()}
    bodies = {
        number: replace(body, vertices=body.vertices + amount * shifts[number])
        for number, body in world.bodies.items()
    }
    return replace(world, bodies=bodies)


def random_similarity(rng: np.random.Generator) -> tuple[float, np.ndarray, np.ndarray]:
    return float(np.exp(rng.uniform(-1.5, 1.5))), random_rotation(rng), rng.normal(size=3) * 3
