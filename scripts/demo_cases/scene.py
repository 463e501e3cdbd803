"""What a simulation hands over: bodies by frame, the material behind them, and one fixed camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import world.camera

FRAMES, FPS = 60, 24
WIDTH, HEIGHT = 480, 270
GRAVITY = -9.81
"""Metres per second squared along +Z."""
CONTACT_MARGIN = 0.003
"""Bodies rest this far above the floor (metres), so that no two surfaces coincide in the depth buffer."""

Array = NDArray[np.float64]
Faces = NDArray[np.int32]


@dataclass(frozen=True)
class Camera:
    """A fixed pinhole: K in pixels, pose camera-to-world in metres (+x right, +y down, +z forward)."""

    intrinsics: Array
    extrinsic: Array
    height: int
    width: int


def look_at(
    eye: Sequence[float],
    target: Sequence[float],
    focal: float,
    *,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Camera:
    """A level camera (+Z up) at ``eye`` whose optical axis meets ``target``; ``focal`` in image widths."""
    pixels = focal * width
    intrinsics = np.array([[pixels, 0.0, width / 2], [0.0, pixels, height / 2], [0.0, 0.0, 1.0]])
    return Camera(intrinsics, world.camera.look_at(eye, target), height, width)


@dataclass(frozen=True)
class Body:
    """One rendered object.

    vertices, faces : one float ``(V,3)`` in metres and one int32 ``(T,3)`` per frame.
    colours : linear RGB in [0,1] per face, ``(>=T,3)``; a frame with T faces wears the first T of them.
    smooth : interpolate vertex normals instead of showing the facets.
    gloss : strength of the highlight.
    """

    id: int
    vertices: Sequence[Array]
    faces: Sequence[Faces]
    colours: Array
    smooth: bool = False
    gloss: float = 0.15


@dataclass(frozen=True)
class Material:
    """One piece of moving matter: ``pos`` float ``(F,N,3)``, NaN while a column does not exist yet."""

    name: str
    pos: Array
    ids: tuple[int, ...]
    faces: Faces | None = None
    tets: Faces | None = None


@dataclass(frozen=True)
class Scene:
    """A finished simulation, ready to be written and rendered."""

    name: str
    camera: Camera
    bodies: tuple[Body, ...]
    materials: tuple[Material, ...]
    frames: int = FRAMES
    fps: int = FPS
    light: tuple[float, float, float] = field(default=(-1.6, -2.2, 4.2))
    """Position of the lamp, metres."""


def still(
    id: int, shape: tuple[Array, Faces], colours: Array, frames: int = FRAMES, *, smooth: bool = False
) -> Body:
    """A body that never moves, present for the whole take."""
    vertices, faces = shape
    return Body(id, [vertices] * frames, [faces] * frames, colours, smooth)


def moving(
    id: int, pos: Array, faces: Faces, colours: Array, *, smooth: bool = False, gloss: float = 0.15
) -> Body:
    """A body of fixed topology from its vertex history ``(F,V,3)``."""
    return Body(id, list(pos), [faces] * len(pos), colours, smooth, gloss)
