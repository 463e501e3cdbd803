"""A small z-buffer in NumPy for the preview. The scorer's rasteriser is another one, exact to the pixel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checker.preview_scene import PreviewScene
from contract.constants import NEAR

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

BACKGROUND = (40, 40, 40)
_GOLDEN = 0.618033988749895
_FLAT = 1e-12
"""Twice the area, in pixels, below which a triangle covers nothing."""
_SMALL = 1024
"""Pixels of a bounding box up to which triangles are drawn many at a time."""
_BATCH = 1 << 20
_BAND = 1 << 14
"""Pixels that are drawn at a time: of many small triangles, and of one large one."""


@dataclass(frozen=True)
class Triangles:
    """Triangles in front of the camera: pixels (n, 3, 2), depths (n, 3), RGB (n, 3), owner ids (n,)."""

    pixels: Floats
    depths: Floats
    colours: Floats
    owners: Integers


@dataclass(frozen=True)
class Drawing:
    """RGB image (H, W, 3) and the id that each pixel shows (0 is background)."""

    image: npt.NDArray[np.uint8]
    ids: Integers


def draw(scene: PreviewScene) -> Drawing:
    """Draw the scene's geometry at the size of its image."""
    height, width = scene.image.shape[:2]
    triangles = project_parts(scene)
    nearest = _ZBuffer(height, width)
    nearest.draw(triangles)
    image = np.full((height * width, 3), BACKGROUND, np.uint8)
    ids = np.zeros(height * width, np.int64)
    hit = nearest.face >= 0
    shown = nearest.face[hit]
    image[hit] = triangles.colours[shown].astype(np.uint8)
    ids[hit] = triangles.owners[shown]
    return Drawing(image.reshape(height, width, 3), ids.reshape(height, width))


def id_colour(identifier: int) -> Floats:
    """RGB (3,) in 0–255 of an id before shading: hues a golden ratio apart, so that neighbours differ."""
    hue = (identifier * _GOLDEN) % 1.0
    channels = np.abs((6.0 * hue + np.array([0.0, 2.0, 4.0])) % 6.0 - 3.0) - 1.0
    colour: Floats = 255.0 * (0.25 + 0.75 * np.clip(channels, 0.0, 1.0))
    return colour


def project_parts(scene: PreviewScene) -> Triangles:
    """Camera space, near clipping, shading and projection of all parts, sorted from far to near."""
    extrinsic = scene.camera.extrinsic
    corners, colours, owners = [np.zeros((0, 3, 3))], [np.zeros((0, 3))], [np.zeros(0, np.int64)]
    for part in scene.parts:
        points = (part.vertices.astype(np.float64) - extrinsic[:3, 3]) @ extrinsic[:3, :3]
        clipped, source = clip_near(points[part.faces])
        shades = _shade(points[part.faces])[source]
        corners.append(clipped)
        colours.append(id_colour(part.id) * shades[:, None])
        owners.append(np.full(len(clipped), part.id % (1 << 62), np.int64))
    points, colour, owner = np.concatenate(corners), np.concatenate(colours), np.concatenate(owners)
    homogeneous = points @ scene.camera.intrinsics.T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pixels = homogeneous[..., :2] / homogeneous[..., 2:]
    usable = np.isfinite(pixels).all(axis=(1, 2))
    order = np.flatnonzero(usable)
    order = order[np.argsort(-points[order, :, 2].mean(axis=1), kind="stable")]
    return Triangles(pixels[order], points[order, :, 2], colour[order], owner[order])


def _shade(corners: Floats) -> Floats:
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1) + 1e-12
    shade: Floats = 0.35 + 0.65 * np.abs(normal[:, 2] / length)
    return shade


def clip_near(corners: Floats, near: float = NEAR) -> tuple[Floats, Integers]:
    """Cut triangles (n, 3, 3) in camera space at depth ``near``.

    Returns the triangles (m, 3, 3) that lie beyond it, and the index (m,) of the triangle each came from.
    """
    inside = corners[:, :, 2] > near
    count = inside.sum(axis=1)
    whole = np.flatnonzero(count == 3)
    pieces, sources = [corners[whole]], [whole]
    for kept in (1, 2):
        cut = np.flatnonzero(count == kept)
        if not cut.size:
            continue
        # Turn each so that the odd corner out comes first.
        odd = np.argmax(inside[cut] == (kept == 1), axis=1)
        turned = np.take_along_axis(corners[cut], ((odd[:, None] + np.arange(3)) % 3)[:, :, None], axis=1)
        first, second, third = turned[:, 0], turned[:, 1], turned[:, 2]
        a, b = _cross_plane(first, second, near), _cross_plane(first, third, near)
        if kept == 1:
            pieces.append(np.stack([first, a, b], axis=1))
            sources.append(cut)
        else:
            pieces += [np.stack([a, second, third], axis=1), np.stack([a, third, b], axis=1)]
            sources += [cut, cut]
    return np.concatenate(pieces), np.concatenate(sources)


def _cross_plane(start: Floats, end: Floats, near: float) -> Floats:
    share = (near - start[:, 2]) / (end[:, 2] - start[:, 2])
    point = start + share[:, None] * (end - start)
    point[:, 2] = near
    return point


class _ZBuffer:
    """Nearest triangle of each pixel. Of equally near ones the earlier wins, in any order of drawing."""

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.depth = np.full(height * width, np.inf, np.float32)
        self.face = np.full(height * width, -1, np.int64)

    def draw(self, triangles: Triangles) -> None:
        """Draw all triangles; small ones in batches, large ones one by one over their bounding box."""
        low = np.floor(triangles.pixels.min(axis=1))
        high = np.ceil(triangles.pixels.max(axis=1))
        size = np.array([self.width, self.height], np.float64)
        low, high = np.clip(low, 0, size).astype(np.int64), np.clip(high, 0, size).astype(np.int64)
        a, b, c = (triangles.pixels[:, i] for i in range(3))
        with np.errstate(over="ignore", invalid="ignore"):
            area = _cross(b - a, c - a)
        sides = high - low
        counts = sides[:, 0] * sides[:, 1]
        drawn = np.flatnonzero((counts > 0) & np.isfinite(area) & (np.abs(area) >= _FLAT))
        small = drawn[counts[drawn] <= _SMALL]
        ends = np.cumsum(counts[small])
        start = 0
        while start < len(small):
            done = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + _BATCH, side="right")))
            self._batch(triangles, small[start:stop], low, sides, counts, area)
            start = stop
        # From near to far: what lies behind is then skipped.
        for face in drawn[counts[drawn] > _SMALL][::-1]:
            self._one(triangles, int(face), low[face], high[face], float(area[face]))

    def _batch(
        self,
        triangles: Triangles,
        chosen: Integers,
        low: Integers,
        sides: Integers,
        counts: Integers,
        area: Floats,
    ) -> None:
        """Every pixel of every bounding box as one long list."""
        face = np.repeat(chosen, counts[chosen])
        starts = np.cumsum(counts[chosen]) - counts[chosen]
        place = np.arange(len(face)) - np.repeat(starts, counts[chosen])
        row, column = np.divmod(place, sides[face, 0])
        x, y = low[face, 0] + column, low[face, 1] + row
        centre = np.stack([x + 0.5, y + 0.5], axis=1)
        weights = _weights(triangles.pixels[face], centre, area[face])
        inside = (weights >= 0).all(axis=1)
        face, pixel = face[inside], (y * self.width + x)[inside]
        depth = _depth(weights[inside], triangles.depths[face])
        order = np.lexsort((face, depth, pixel))
        pixel, depth, face = pixel[order], depth[order], face[order]
        first = np.ones(len(pixel), bool)
        first[1:] = pixel[1:] != pixel[:-1]
        self._keep(pixel[first], depth[first], face[first])

    def _one(self, triangles: Triangles, face: int, low: Integers, high: Integers, area: float) -> None:
        """One bounding box, a band of rows at a time, so that the numbers stay in the processor's cache."""
        # Rounded depths may lie a little before the nearest corner.
        nearest = triangles.depths[face].min() * (1 - 1e-6)
        held = self.depth.reshape(self.height, self.width)
        x = np.arange(low[0], high[0])
        band = max(1, _BAND // len(x))
        for top in range(int(low[1]), int(high[1]), band):
            y = np.arange(top, min(top + band, int(high[1])))
            if held[top : y[-1] + 1, low[0] : high[0]].max() < nearest:
                continue
            # Corners relative to the centres: one row and one column for each, never a grid.
            corners = [(u - (x + 0.5), (v - (y + 0.5))[:, None]) for u, v in triangles.pixels[face].tolist()]
            crosses = [
                bx * cy - by * cx
                for (bx, by), (cx, cy) in zip(
                    corners[1:] + corners[:1], corners[2:] + corners[:2], strict=True
                )
            ]
            sides = [cross >= 0 if area > 0 else cross <= 0 for cross in crosses]
            inside = np.flatnonzero(sides[0] & sides[1] & sides[2])
            if inside.size:
                weights = np.stack([cross.ravel()[inside] for cross in crosses], axis=-1) / area
                row, column = np.divmod(inside, len(x))
                pixel = (top + row) * self.width + low[0] + column
                depth = _depth(weights, triangles.depths[face])
                self._keep(pixel, depth, np.full(len(pixel), face, np.int64))

    def _keep(self, pixel: Integers, depth: npt.NDArray[np.float32], face: Integers) -> None:
        """Take fragments, at most one a pixel, where they win."""
        held = self.depth[pixel]
        wins = (depth < held) | ((depth == held) & (face < self.face[pixel]))
        self.depth[pixel[wins]] = depth[wins]
        self.face[pixel[wins]] = face[wins]


def _cross(u: Floats, v: Floats) -> Floats:
    result: Floats = u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]
    return result


def _weights(corners: Floats, centre: Floats, area: Floats) -> Floats:
    """Barycentric coordinates (n, 3) of centres (n, 2) in triangles (n, 3, 2) with twice the area (n,)."""
    a, b, c = (corners[:, i] - centre for i in range(3))
    return np.stack([_cross(b, c), _cross(c, a), _cross(a, b)], axis=-1) / area[:, None]


def _depth(weights: Floats, depths: Floats) -> npt.NDArray[np.float32]:
    """Perspective-correct depth of fragments."""
    inverse: Floats = (weights / depths).sum(axis=-1)
    return (1.0 / inverse).astype(np.float32)
