"""Drawing triangles with a depth buffer, in numpy. Pixel centres are at +0.5; nearer surfaces hide farther
ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .camera import Array, Camera
from .shapes import Mesh

Image = npt.NDArray[np.uint8]

LIGHT = np.array([-0.35, -0.70, 0.62])
"""Direction to the light, world axes."""
AMBIENT = 0.55


class Canvas:
    """A picture under construction: ``image`` uint8 (H, W, 3) and the inverse depth of what shows in each
    pixel.
    """

    def __init__(self, camera: Camera) -> None:
        self.camera = camera
        self.image = np.zeros((camera.height, camera.width, 3), dtype=np.uint8)
        self._nearness = np.zeros(camera.height * camera.width, dtype=np.float32)

    def copy(self) -> Canvas:
        """The same picture, to draw on further."""
        other = Canvas(self.camera)
        other.image[:] = self.image
        other._nearness[:] = self._nearness
        return other

    def draw(self, mesh: Mesh, colour: tuple[int, int, int]) -> None:
        """Draw a closed mesh in one colour, each face lit by its direction. Faces turned away are left out.

        All vertices must lie in front of the camera: nothing is clipped at a near plane.
        """
        points = mesh.vertices.astype(np.float64)
        columns, rows, depth = self.camera.project(points)
        corners = np.stack([columns, rows, 1.0 / depth], axis=1)[mesh.faces]
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        doubled = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
        # Counter-clockwise from outside is clockwise, hence negative, where rows grow downwards.
        facing = np.flatnonzero(doubled < 0)
        if facing.size == 0:
            return
        shades = _shades(points[mesh.faces[facing]], colour)
        face, pixel, row = _spans(corners[facing], self.camera.height, self.camera.width)
        slopes = _slopes(corners[facing], doubled[facing])[face]
        column = pixel - row * self.camera.width
        nearness = (slopes[:, 0] * (column + 0.5) + slopes[:, 1] * (row + 0.5) + slopes[:, 2]).astype(
            np.float32
        )
        np.maximum.at(self._nearness, pixel, nearness)
        shown = nearness == self._nearness[pixel]
        self.image.reshape(-1, 3)[pixel[shown]] = shades[face[shown]]


def _shades(corners: Array, colour: tuple[int, int, int]) -> Image:
    """Colour of each face, uint8 (T, 3): ambient light and one far lamp, on the side towards the camera."""
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-30
    lit = AMBIENT + (1.3 - AMBIENT) * np.clip(normals @ (LIGHT / np.linalg.norm(LIGHT)), 0.0, 1.0)
    shades: Image = np.clip(np.rint(lit[:, None] * np.array(colour)), 0, 255).astype(np.uint8)
    return shades


def _slopes(corners: Array, doubled: Array) -> Array:
    """Inverse depth as a plane over the picture: (T, 3) with a·column + b·row + c."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    across = (first[:, 2] * second[:, 1] - second[:, 2] * first[:, 1]) / doubled
    down = (second[:, 2] * first[:, 0] - first[:, 2] * second[:, 0]) / doubled
    start = corners[:, 0, 2] - across * corners[:, 0, 0] - down * corners[:, 0, 1]
    return np.stack([across, down, start], axis=1)


def _spans(corners: Array, height: int, width: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Pixels whose centre each triangle covers: triangle, pixel (row·width + column) and row, one entry a
    pixel.

    Rows and columns are half open, and an edge is always followed from its upper end, so that triangles that
    share an edge neither both take nor both leave a pixel.
    """
    rows = corners[:, :, 1]
    top = np.clip(np.ceil(rows.min(axis=1) - 0.5), 0, height).astype(np.int64)
    bottom = np.clip(np.ceil(rows.max(axis=1) - 0.5), 0, height).astype(np.int64)
    triangle, row = _ranges(top, bottom)
    level = row + 0.5
    left, right = np.full(row.size, np.inf), np.full(row.size, -np.inf)
    for a, b in ((0, 1), (1, 2), (2, 0)):
        upper = np.where(rows[:, a] <= rows[:, b], a, b)
        every = np.arange(rows.shape[0])
        start, end = corners[every, upper], corners[every, a + b - upper]
        drop = end[:, 1] - start[:, 1]
        slope = (end[:, 0] - start[:, 0]) / np.where(drop > 0, drop, 1.0)
        crossing = start[triangle, 0] + (level - start[triangle, 1]) * slope[triangle]
        crosses = (start[triangle, 1] <= level) & (level < end[triangle, 1])
        left = np.where(crosses, np.minimum(left, crossing), left)
        right = np.where(crosses, np.maximum(right, crossing), right)
    begin = np.ceil(np.clip(left, -1.0, width + 1.0) - 0.5)
    stop = np.ceil(np.clip(right, -1.0, width + 1.0) - 0.5)
    span, column = _ranges(
        np.clip(begin, 0, width).astype(np.int64), np.clip(stop, 0, width).astype(np.int64)
    )
    return triangle[span], row[span] * width + column, row[span]


def _ranges(start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """All integers of many half-open ranges: index of the range, and the integer, one entry each."""
    counts = np.maximum(stop - start, 0)
    index = np.repeat(np.arange(start.size), counts)
    return index, np.arange(index.size) + np.repeat(start - np.cumsum(counts) + counts, counts)
