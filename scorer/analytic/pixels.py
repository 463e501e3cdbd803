"""Points on the surface that a pixel sees, and their projection, in the protocol's float32.

Source: protocol 4dcb-1, attribute interpolation and analytic flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorer.analytic.material import Archive
from scorer.geometry.raster import Raster, rasterize_raw

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


class Geometry(Protocol):
    """What is read of a world; ``world.reader.World`` is one."""

    @property
    def frames(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def intrinsics(self) -> NDArray[np.float64]: ...
    @property
    def extrinsic(self) -> NDArray[np.float64]: ...
    @property
    def dynamic_ids(self) -> tuple[int, ...]: ...
    @property
    def liquid_ids(self) -> tuple[int, ...]: ...
    @property
    def materials(self) -> Sequence[Archive]: ...
    def object_mesh(self, number: int, frame: int) -> tuple[Floats, Ints]: ...
    def parts(self, frame: int) -> list[tuple[int, Floats, Ints]]: ...
    def soup(self, frame: int) -> tuple[Floats, Ints, Ints]: ...


@dataclass(frozen=True)
class Drawn:
    """One frame's objects and what each pixel sees of them.

    parts : (id, vertices, faces) of the objects with faces, ascending id, at least one.
    starts : int64 (parts + 1,), first vertex of each part in the soup. verts, faces : the soup.
    part : int32 (T,), row of ``parts`` that owns each face.
    """

    parts: list[tuple[int, Floats, Ints]]
    starts: Longs
    verts: Floats
    faces: Ints
    part: Ints
    raster: Raster

    def seen(self, row: int) -> Longs:
        """Flat pixel numbers, ascending, that see the object in that row of ``parts``."""
        owner = np.append(self.part, np.int32(-1))[self.raster.face]  # a miss is face −1, the last entry
        return np.flatnonzero(owner.ravel() == row)

    def at(self, pixels: Longs, values: Floats) -> Floats:
        """``values`` float32 (V, 3) of the soup's vertices, interpolated at flat pixel numbers: (n, 3)."""
        out = np.empty((len(pixels), 3), np.float32)
        _interpolate(pixels, *self.buffers(), self.faces, values, out)
        return out

    def buffers(self) -> tuple[Ints, Floats, Floats]:
        """Face, first and second weight of every pixel, flat."""
        if self.raster.b0 is None or self.raster.b1 is None:
            raise ValueError("the raster was drawn without weights")
        return self.raster.face.ravel(), self.raster.b0.ravel(), self.raster.b1.ravel()


def draw(world: Geometry, frame: int) -> Drawn | None:
    """Draw a frame with the world's own camera and size; None when nothing is there."""
    parts = world.parts(frame)
    if not parts:
        return None
    starts = np.cumsum([0, *(len(vertices) for _, vertices, _ in parts)])
    verts = np.concatenate([vertices for _, vertices, _ in parts])
    faces = np.concatenate(
        [part[2] + np.int32(start) for part, start in zip(parts, starts[:-1], strict=True)]
    )
    part = np.repeat(np.arange(len(parts), dtype=np.int32), [len(f) for _, _, f in parts])
    raster = rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)
    return Drawn(parts, starts, verts, faces, part, raster)


def same_topology(a: tuple[Floats, Ints], b: tuple[Floats, Ints]) -> bool:
    """Whether vertices of mesh ``a`` are the same points of the surface in ``b``: ``b`` has faces, the same
    ones as ``a``, and as many vertices.
    """
    return len(b[1]) > 0 and a[0].shape == b[0].shape and np.array_equal(a[1], b[1])


def to_world(points: Floats, extrinsic: ArrayLike) -> Floats:
    """Camera points (n, 3) in the world, ``p @ Rᵀ + t``, products summed left to right in float32."""
    matrix = np.asarray(extrinsic, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return _times(points, matrix[:3, :3].T) + matrix[:3, 3]


def to_camera(points: Floats, extrinsic: ArrayLike) -> Floats:
    """World points (n, 3) in the camera's axes, ``(p − t) @ R``, in float32."""
    matrix = np.asarray(extrinsic, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return _times(points - matrix[:3, 3], matrix[:3, :3])


def image_points(points: NDArray[np.floating], intrinsics: ArrayLike) -> NDArray[np.floating]:
    """Image points (n, 2) of camera points (n, 3), in their type: u = (K00·X + K01·Y)/Z + K02, v = K11·Y/Z +
    K12. K10 and the third row do not enter.
    """
    k = np.asarray(intrinsics).astype(points.dtype)
    x, y, z = points[:, 0], points[:, 1], points[:, 2]
    with np.errstate(all="ignore"):
        u = (k[0, 0] * x + k[0, 1] * y) / z + k[0, 2]
        v = (k[1, 1] * y) / z + k[1, 2]
    return np.stack([u, v], axis=1)


def _times(points: Floats, matrix: Floats) -> Floats:
    product: Floats = (
        points[:, :1] * matrix[0] + points[:, 1:2] * matrix[1] + points[:, 2:] * matrix[2]
    ).astype(np.float32, copy=False)
    return product


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _interpolate(pixels, face, b0, b1, faces, values, out):  # type: ignore[no-untyped-def]
    for n in range(pixels.shape[0]):
        pixel = pixels[n]
        f = face[pixel]
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        p, q = b0[pixel], b1[pixel]
        r = _ONE - p - q
        for axis in range(3):
            out[n, axis] = (p * values[a, axis] + q * values[b, axis]) + r * values[c, axis]
