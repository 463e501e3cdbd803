"""Pictures of a scene: our rasteriser for what is seen and for shadows, one lamp, light from above.

Every picture is drawn at twice its size and averaged down in linear light. A surface point sends back

    colour · (sky(n) + lamp · lit · max(0, n·l)) + gloss · lit · max(0, n·h)^40

with n the normal turned towards the camera, l the direction of the lamp, h the middle of l and the direction
of the eye, and ``lit`` the share of a small window of the lamp's depth map that the point is not behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from demo_cases.scene import Array, Body, Camera, Scene, look_at
from scorer.geometry.raster import rasterize, rasterize_raw

SUPERSAMPLE = 2
SHARE = 1.0 / SUPERSAMPLE**2
"""Of one sample in its pixel."""
SHADOW_SIZE = 800
SHADOW_FOCAL = 0.72
"""Focal length of the lamp's depth map in map widths; what it does not cover counts as lit."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Look:
    """Colours of the light, linear RGB."""

    horizon: tuple[float, float, float] = (0.60, 0.70, 0.82)
    zenith: tuple[float, float, float] = (0.10, 0.22, 0.45)
    lamp: tuple[float, float, float] = (0.95, 0.88, 0.76)
    ambient: tuple[float, float, float] = (0.20, 0.24, 0.30)
    bounce: tuple[float, float, float] = (0.12, 0.10, 0.09)


@dataclass(frozen=True)
class Triangles:
    """All triangles of one frame: corners and corner normals (T,3,3), colour (T,3) and gloss (T,)."""

    corners: Array
    normals: Array
    colours: Array
    gloss: Array

    @property
    def mesh(self) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        vertices = self.corners.reshape(-1, 3).astype(np.float32)
        return vertices, np.arange(len(vertices), dtype=np.int32).reshape(-1, 3)


def images(scene: Scene, look: Look | None = None) -> Iterator[Pixels]:
    """Every frame of the scene as uint8 (H, W, 3) RGB."""
    for frame in range(scene.frames):
        yield to_bytes(render(triangles(scene, frame), scene.camera, scene.light, look or Look()))


def to_bytes(linear: Array) -> Pixels:
    """Display values of linear light: a soft shoulder towards white, then the usual exponent 1/2.2."""
    bounded = 1.0 - np.exp(-1.5 * np.maximum(linear, 0.0))
    return np.asarray(np.rint(255.0 * bounded ** (1.0 / 2.2)), np.uint8)


def triangles(scene: Scene, frame: int) -> Triangles:
    """Collect the triangles of all bodies at ``frame``."""
    parts = zip(*(_of_body(body, frame) for body in scene.bodies), strict=True)
    return Triangles(*(np.concatenate(part) for part in parts))


def _of_body(body: Body, frame: int) -> tuple[Array, Array, Array, Array]:
    vertices: Array = np.asarray(body.vertices[frame], float)
    faces = body.faces[frame]
    corners = vertices[faces]
    flat = _cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals: Array = np.repeat(flat[:, None], 3, axis=1)
    if body.smooth:
        # The sum of unnormalised face normals weighs each face by its area.
        ends = faces.ravel()
        total = [np.bincount(ends, normals[..., axis].ravel(), len(vertices)) for axis in range(3)]
        normals = np.asarray(np.stack(total, axis=1)[faces], float)
    normals = normals / np.maximum(np.sqrt((normals**2).sum(axis=-1, keepdims=True)), 1e-20)
    return corners, normals, body.colours[: len(faces)], np.full(len(faces), body.gloss)


def _cross(a: Array, b: Array) -> Array:
    return a[:, [1, 2, 0]] * b[:, [2, 0, 1]] - a[:, [2, 0, 1]] * b[:, [1, 2, 0]]


def render(scene: Triangles, camera: Camera, light: tuple[float, float, float], look: Look) -> Array:
    """One frame in linear light, float64 (H, W, 3)."""
    height, width = camera.height * SUPERSAMPLE, camera.width * SUPERSAMPLE
    intrinsics = camera.intrinsics * [[SUPERSAMPLE], [SUPERSAMPLE], [1.0]]
    vertices, faces = scene.mesh
    seen = rasterize_raw(vertices, faces, intrinsics, camera.extrinsic, height, width, device="cpu")
    lamp = look_at(light, (0.0, 0.0, 0.3), SHADOW_FOCAL, width=SHADOW_SIZE, height=SHADOW_SIZE)
    shadow, _ = rasterize(
        vertices, faces, lamp.intrinsics, lamp.extrinsic, SHADOW_SIZE, SHADOW_SIZE, device="cpu"
    )
    colours = [np.array(c) for c in (look.horizon, look.zenith, look.lamp, look.ambient, look.bounce)]
    return np.asarray(_shade(
        seen.face, seen.b0, seen.b1,
        scene.corners, scene.normals, scene.colours, scene.gloss,
        (camera.extrinsic[:3, :3] @ np.linalg.inv(intrinsics)).T.copy(), camera.extrinsic[:3, 3].copy(),
        shadow, lamp.intrinsics, lamp.extrinsic, *colours,
    ))  # fmt: skip


@njit(cache=True)
def _lit(x: float, y: float, z: float, depth: Any, intrinsics: Any, pose: Any) -> float:
    """Share of a 5×5 window of the lamp's depth map in which the point is nearest to the lamp.

    Where nine of the cells agree, the others are not asked.
    """
    size = depth.shape[0]
    x, y, z = x - pose[0, 3], y - pose[1, 3], z - pose[2, 3]
    far = pose[0, 2] * x + pose[1, 2] * y + pose[2, 2] * z
    if far <= 0.0:
        return 1.0
    right = pose[0, 0] * x + pose[1, 0] * y + pose[2, 0] * z
    down = pose[0, 1] * x + pose[1, 1] * y + pose[2, 1] * z
    column = int(np.floor(intrinsics[0, 0] * right / far + intrinsics[0, 2]))
    row = int(np.floor(intrinsics[1, 1] * down / far + intrinsics[1, 2]))
    if not (3 <= column < size - 3 and 3 <= row < size - 3):
        return 1.0
    free = 0
    for i in range(-2, 3, 2):
        for j in range(-2, 3, 2):
            free += depth[row + i, column + j] > far - 0.03
    if free in (0, 9):
        return free / 9.0
    free = 0
    for i in range(-2, 3):
        for j in range(-2, 3):
            free += depth[row + i, column + j] > far - 0.03
    return free / 25.0


@njit(cache=True)
def _unit(x: float, y: float, z: float) -> tuple[float, float, float]:
    length = max(1e-12, np.sqrt(x * x + y * y + z * z))
    return x / length, y / length, z / length


@njit(cache=True)
def _mix(values: Any, w0: float, w1: float, w2: float) -> tuple[float, float, float]:
    """Row combination of a (3,3) array."""
    return (
        w0 * values[0, 0] + w1 * values[1, 0] + w2 * values[2, 0],
        w0 * values[0, 1] + w1 * values[1, 1] + w2 * values[2, 1],
        w0 * values[0, 2] + w1 * values[1, 2] + w2 * values[2, 2],
    )


@njit(cache=True)
def _shade(
    face: Any, b0: Any, b1: Any, corners: Any, normals: Any, colours: Any, gloss: Any,
    rays: Any, eye: Any, shadow: Any, lamp_intrinsics: Any, lamp_pose: Any,
    horizon: Any, zenith: Any, lamp: Any, ambient: Any, bounce: Any,
) -> Any:  # fmt: skip
    height, width = face.shape
    out = np.zeros((height // SUPERSAMPLE, width // SUPERSAMPLE, 3))
    for i in range(height):
        for j in range(width):
            t = face[i, j]
            if t < 0:
                _, _, up = _unit(*_mix(rays, j + 0.5, i + 0.5, 1.0))
                # The cameras look down, so the backdrop begins below the horizon.
                up = max(0.0, min(1.0, 1.0 + 3.5 * up))
                for c in range(3):
                    out[i // SUPERSAMPLE, j // SUPERSAMPLE, c] += SHARE * (
                        horizon[c] + up * (zenith[c] - horizon[c])
                    )
                continue
            w0, w1 = b0[i, j], b1[i, j]
            px, py, pz = _mix(corners[t], w0, w1, 1.0 - w0 - w1)
            nx, ny, nz = _mix(normals[t], w0, w1, 1.0 - w0 - w1)
            nx, ny, nz = _unit(nx, ny, nz)
            vx, vy, vz = _unit(eye[0] - px, eye[1] - py, eye[2] - pz)
            if nx * vx + ny * vy + nz * vz < 0.0:
                nx, ny, nz = -nx, -ny, -nz
            lx, ly, lz = _unit(lamp_pose[0, 3] - px, lamp_pose[1, 3] - py, lamp_pose[2, 3] - pz)
            facing = max(0.0, nx * lx + ny * ly + nz * lz)
            lit = 0.0
            if facing > 0.0:
                # A step along the normal keeps slanted surfaces from shading themselves.
                lit = _lit(px + 0.02 * nx, py + 0.02 * ny, pz + 0.02 * nz, shadow, lamp_intrinsics, lamp_pose)
            hx, hy, hz = _unit(lx + vx, ly + vy, lz + vz)
            spark = gloss[t] * lit * max(0.0, nx * hx + ny * hy + nz * hz) ** 40
            above = 0.5 + 0.5 * nz
            for c in range(3):
                received = bounce[c] + above * (ambient[c] - bounce[c]) + lamp[c] * lit * facing
                out[i // SUPERSAMPLE, j // SUPERSAMPLE, c] += SHARE * (colours[t, c] * received + spark)
    return out
