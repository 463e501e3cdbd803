"""Meshes of the scene: closed slabs for what stands still, closed pebbles for what moves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .camera import Array, Camera

Faces = npt.NDArray[np.int32]

RINGS = (0.75,)
"""Where the rings between a pebble's middle and its rim lie, as shares of the radius."""
WALL_DISTANCE = 20.0
"""How far ahead the wall stands, metres; everything that moves is nearer."""


@dataclass(frozen=True)
class Mesh:
    """``vertices`` float32 (V, 3) in metres, ``faces`` int32 (T, 3) wound counter-clockwise seen from
    outside.
    """

    vertices: npt.NDArray[np.float32]
    faces: Faces


def slab(low: tuple[float, float, float], high: tuple[float, float, float]) -> Mesh:
    """Closed box between two corners, 8 vertices and 12 faces."""
    corners = np.array([low, high], dtype=np.float64)
    picks = [(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    vertices = np.array(
        [[corners[pick[axis], axis] for axis in range(3)] for pick in picks], dtype=np.float32
    )
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))]
    return Mesh(vertices, np.array(faces, dtype=np.int32))


def ground() -> Mesh:
    """The floor from just in front of the camera to the wall; its top is at height 0."""
    return slab((-60.0, 0.4, -0.2), (60.0, WALL_DISTANCE, 0.0))


def wall() -> Mesh:
    """The wall behind everything."""
    return slab((-60.0, WALL_DISTANCE, -0.2), (60.0, WALL_DISTANCE + 0.5, 40.0))


def pebble_faces(corners: int) -> Faces:
    """Faces of a pebble with ``corners`` rim vertices, int32 (T, 3), vertices in the order of :func:`pebble`.

    Seen from the camera the rings run clockwise (angles grow from +x right to +y down), so faces take them
    backwards to point outwards.
    """
    here = np.arange(corners)
    after = (here + 1) % corners
    rings = [1 + index * corners for index in range(2 * len(RINGS) + 1)]
    front, back = np.zeros(corners, dtype=np.int64), np.full(corners, rings[-1] + corners)
    rows = [(front, rings[0] + after, rings[0] + here)]
    for inner, outer in pairwise(rings):
        rows.append((inner + here, inner + after, outer + after))
        rows.append((inner + here, outer + after, outer + here))
    rows.append((rings[-1] + here, rings[-1] + after, back))
    return np.concatenate([np.stack(row, axis=1) for row in rows]).astype(np.int32)


def pebble(
    camera: Camera, centres: Array, radii: Array, depth: float, half: float
) -> npt.NDArray[np.float32]:
    """Vertices of a pebble whose outline in the picture is exactly the given one.

    Every vertex lies on the ray of an image point inside the outline, nearer than the rim in front and
    farther behind, so the two skins meet at the rim alone: the mesh is closed and never cuts itself.

    Parameters
    ----------
    centres : (F, 2) column and row in pixels. radii : (F, A) pixels, > 0, at angles 2πk/A from +x towards +y.
    depth : camera depth of the rim, metres. half : how far the middle stands out in front and behind, metres.

    Returns float32 (F, N, 3), world metres: the front middle, the front rings from small to large, the rim,
    the back rings from large to small, the back middle.
    """
    frames, corners = radii.shape
    angles = 2 * np.pi * np.arange(corners) / corners
    rim = radii[:, :, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    shares = [0.0, *RINGS, 1.0, *reversed(RINGS), 0.0]
    sides = [-1.0] * (1 + len(RINGS)) + [1.0] * (2 + len(RINGS))
    points, depths = [], []
    for share, side in zip(shares, sides, strict=True):
        ring = share * rim if share else np.zeros((frames, 1, 2))
        points.append(ring + centres[:, None, :])
        depths.append(np.full(ring.shape[1], depth + side * half * np.sqrt(1.0 - share**2)))
    flat = np.concatenate(points, axis=1)
    distance = np.broadcast_to(np.concatenate(depths), flat.shape[:2])
    return camera.lift(flat[:, :, 0], flat[:, :, 1], distance).astype(np.float32)
