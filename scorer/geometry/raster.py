"""Which triangle each pixel sees, and how far away it is: the one function that every metric draws with.

On the CPU the result is exact and deterministic. Where PyTorch with CUDA and nvdiffrast are installed the
same function can use them (``device="cuda"``); see :mod:`scorer.geometry.raster_cuda`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import MISS
from scorer.geometry import raster_cpu, raster_cuda

_LAYOUT: tuple[Literal["C"], Literal["A"], Literal["W"]] = ("C", "A", "W")
"""One memory layout for the kernels (a read-only array is copied), so that each is compiled once."""


@dataclass(frozen=True)
class Raster:
    """What each pixel of an (H, W) image sees.

    depth : float32, camera z in metres; ``+inf`` on a miss.
    face : int32, row of ``faces``; -1 on a miss.
    b0, b1 : float32, perspective-correct weights of the face's first and second corner (the third has the
        rest);
        0 on a miss. None when they were not asked for.
    """

    depth: NDArray[np.float32]
    face: NDArray[np.int32]
    b0: NDArray[np.float32] | None
    b1: NDArray[np.float32] | None


def rasterize(
    verts: ArrayLike,
    faces: ArrayLike,
    intrinsics: ArrayLike,
    extrinsic: ArrayLike,
    height: int,
    width: int,
    device: str | None = None,
    *,
    threads: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Depth (H, W) float32 and face index (H, W) int32 of what each pixel centre sees.

    verts : (V, 3) world metres, read as float32. A triangle with a corner that is not finite is not drawn.
    faces : (T, 3) integers in [0, V).
    intrinsics : (3, 3), read as float32; the third row does not enter.
    extrinsic : (4, 4) camera-to-world, read as float32.
    device : "cpu", "cuda" (or "cuda:N"), or None for CUDA when PyTorch, a CUDA device and nvdiffrast are
        there and the CPU otherwise.
    threads : threads on the CPU (None: ``NUMBA_NUM_THREADS`` or the CPUs we may run on); the result is the
        same.

    Depth is camera z, ``+inf`` on a miss; face is -1 on a miss. Both windings are drawn; the near plane lies
    at ``NEAR``; nothing is too far. No vertices or no faces: all pixels miss.

    Raises ``ValueError`` on wrong shapes or types, on a face that names a vertex that is not there, on a
    camera that is not finite and on an image without pixels; ``RuntimeError`` when CUDA is asked for and
    cannot be used.
    """
    scene = _scene(verts, faces, intrinsics, extrinsic, height, width, device)
    raster = _draw(scene, height, width, threads, barycentrics=False)
    return raster.depth, raster.face


def rasterize_raw(
    verts: ArrayLike,
    faces: ArrayLike,
    intrinsics: ArrayLike,
    extrinsic: ArrayLike,
    height: int,
    width: int,
    device: str | None = None,
    *,
    threads: int | None = None,
) -> Raster:
    """As :func:`rasterize`, with the barycentric weights of each pixel."""
    scene = _scene(verts, faces, intrinsics, extrinsic, height, width, device)
    return _draw(scene, height, width, threads, barycentrics=True)


def visible_faces(
    verts: ArrayLike,
    faces: ArrayLike,
    intrinsics: ArrayLike,
    extrinsic: ArrayLike,
    height: int,
    width: int,
    device: str | None = None,
    *,
    threads: int | None = None,
) -> NDArray[np.int32]:
    """The face index of :func:`rasterize` alone, for whom depth does not matter: a third less work."""
    scene = _scene(verts, faces, intrinsics, extrinsic, height, width, device)
    if scene is not None and scene.device == "cpu":
        clip = _clip(scene, height, width, threads)
        return raster_cpu.draw(clip, scene.faces, height, width, threads)
    return _draw(scene, height, width, threads, barycentrics=False).face


@dataclass(frozen=True)
class _Scene:
    """Checked input, in the kernels' types."""

    verts: NDArray[np.float32]
    faces: NDArray[np.int32]
    intrinsics: NDArray[np.float32]
    extrinsic: NDArray[np.float32]
    device: str


def _scene(
    verts: ArrayLike,
    faces: ArrayLike,
    intrinsics: ArrayLike,
    extrinsic: ArrayLike,
    height: int,
    width: int,
    device: str | None,
) -> _Scene | None:
    """Check everything; None when there is nothing to draw."""
    if height < 1 or width < 1:
        raise ValueError(f"an image of {height}x{width} pixels has nothing to draw on")
    points = _table("verts", verts, np.float32)
    camera = _camera("extrinsic", extrinsic, 4)
    matrix = _camera("intrinsics", intrinsics, 3)
    triangles = _triangles(faces, len(points))
    place = choose_device(device, len(triangles))
    if not len(triangles) or not len(points):
        return None
    return _Scene(points, triangles, matrix, camera, place)


def _clip(scene: _Scene, height: int, width: int, threads: int | None) -> NDArray[np.float32]:
    in_camera = raster_cpu.camera_points(scene.verts, scene.extrinsic, threads)
    return raster_cpu.clip_points(in_camera, scene.intrinsics, height, width, threads)


def _draw(
    scene: _Scene | None, height: int, width: int, threads: int | None, *, barycentrics: bool
) -> Raster:
    if scene is None:
        return _all_miss(height, width, barycentrics)
    clip = _clip(scene, height, width, threads)
    if scene.device == "cpu":
        face = raster_cpu.draw(clip, scene.faces, height, width, threads)
        depth, bary = raster_cpu.interpolate(
            clip, scene.faces, face, barycentrics=barycentrics, threads=threads
        )
    else:
        depth, face, bary = raster_cuda.draw(clip, scene.faces, height, width, scene.device)
    return Raster(depth, face, bary[0], bary[1]) if barycentrics else Raster(depth, face, None, None)


def choose_device(device: str | None, faces: int = 0) -> str:
    """ "cpu" or a CUDA device's name. ``RuntimeError`` when CUDA is asked for and cannot be used."""
    if device is None:
        return "cuda" if faces <= raster_cuda.MOST_FACES and raster_cuda.available() else "cpu"
    if device == "cpu":
        return device
    if device.split(":")[0] != "cuda":
        raise ValueError(f"unknown device {device!r}; expected 'cpu', 'cuda' or 'cuda:N'")
    if not raster_cuda.available():
        raise RuntimeError(
            "rasterisation on CUDA needs PyTorch with a CUDA device and nvdiffrast; use device='cpu'"
        )
    if faces > raster_cuda.MOST_FACES:
        raise ValueError(
            f"{faces} faces are more than nvdiffrast can number ({raster_cuda.MOST_FACES}); use 'cpu'"
        )
    return device


def _table(name: str, values: ArrayLike, dtype: type[np.float32]) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty((0, 3), dtype)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers of shape (n, 3), not {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.require(array, dtype, _LAYOUT)


def _camera(name: str, values: ArrayLike, side: int) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.shape != (side, side) or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be numbers of shape ({side}, {side}), not {array.dtype} of shape {array.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = np.require(array, np.float32, _LAYOUT)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds a number that is not finite in float32")
    return matrix


def _triangles(faces: ArrayLike, vertices: int) -> NDArray[np.int32]:
    array = np.asarray(faces)
    if array.size == 0:
        return np.empty((0, 3), np.int32)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise ValueError(f"faces must be integers of shape (n, 3), not {array.dtype} of shape {array.shape}")
    if len(array) >= 2**31:
        raise ValueError(f"{len(array)} faces are too many for an int32 face index")
    if vertices and (array.min() < 0 or array.max() >= vertices):
        row = int(np.flatnonzero(((array < 0) | (array >= vertices)).any(axis=1))[0])
        raise ValueError(
            f"face {row} names vertices {array[row].tolist()}, but the vertices are 0 to {vertices - 1}"
        )
    return np.require(array, np.int32, _LAYOUT)


def _all_miss(height: int, width: int, barycentrics: bool) -> Raster:
    depth = np.full((height, width), np.inf, np.float32)
    face = np.full((height, width), MISS, np.int32)
    if not barycentrics:
        return Raster(depth, face, None, None)
    return Raster(depth, face, np.zeros_like(depth), np.zeros_like(depth))
