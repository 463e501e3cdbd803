"""Analytic point tracks: the image paths of the surface points under given pixels, and where they are seen.

One pass over the take; a frame's geometry is read once and only the sampled frames' positions are kept.
Source: protocol 4dcb-1, analytic tracks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import NEAR, sampled_frames
from scorer.analytic.material import PROBE, REACH, Columns, nearest_columns
from scorer.analytic.pixels import Drawn, Geometry, draw, image_points, same_topology
from scorer.geometry.raster import rasterize
from scorer.liquid.tracers import materials_of

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

TOLERANCE = 0.01
"""Share of its depth that a visible point may lie off the drawn surface."""
FLOOR = 0.01
"""The same in metres, at least."""


def track_points(world: Geometry, queries: ArrayLike, stride: int = 1) -> tuple[Floats, Mask]:
    """Tracks float32 (Q, F', 2) in pixels and visibility bool (Q, F') on the sampled frames 0, s, 2s, …

    queries : (Q, 3), birth frame and pixel coordinates ``(t, x, y)``.

    NaN where there is no point: before birth, once the mesh changed or the material died, and for a query
    that hits nothing or whose object's material is too far. Raises ``IndexError`` for a query whose rounded
    pixel lies outside the image or whose frame is not there, and what
    ``scorer.liquid.tracers.materials_of`` does.
    """
    points = np.asarray(queries, np.float32).reshape(-1, 3)
    frames = sampled_frames(world.frames, stride)
    tracks = np.full((len(points), len(frames), 2), np.nan, np.float32)
    visible = np.zeros((len(points), len(frames)), np.bool_)
    paths = _plant(world, points)
    for frame in range(min((path.birth for path in paths), default=world.frames), world.frames):
        for path in paths:
            if path.birth <= frame:
                path.advance(world, frame)
        if frame in frames and paths:
            at = np.full((len(points), 3), np.nan, np.float32)
            for path in paths:
                if path.birth <= frame:
                    at[path.rows] = path.at(frame)
            column = frames.index(frame)
            tracks[:, column], visible[:, column] = _seen(world, frame, at)
    return tracks, visible


class _Path(Protocol):
    """Points of one object: their rows among the queries, born at a frame, asked for frame by frame."""

    @property
    def rows(self) -> Longs: ...
    @property
    def birth(self) -> int: ...
    def advance(self, world: Geometry, frame: int) -> None: ...
    def at(self, frame: int) -> Floats: ...


@dataclass
class _OnMesh:
    """Fixed to the corners of a face for as long as the mesh keeps its faces.

    corners : int32 (n, 3), vertices of each point's face. weights : float32 (n, 3).
    """

    rows: Longs
    birth: int
    number: int
    mesh: tuple[Floats, Ints]
    corners: Ints
    weights: Floats
    ended: bool = False

    def advance(self, world: Geometry, frame: int) -> None:
        """Move to the next frame; frames must come in order."""
        if self.ended:
            return
        mesh = world.object_mesh(self.number, frame)
        if same_topology(self.mesh, mesh):
            self.mesh = mesh
        else:
            self.ended = True

    def at(self, frame: int) -> Floats:
        if self.ended:
            return np.full((len(self.rows), 3), np.nan, np.float32)
        a, b, c = (self.mesh[0][self.corners[:, corner]] for corner in range(3))
        w = self.weights[:, :, None]
        found: Floats = (w[:, 0] * a + w[:, 1] * b) + w[:, 2] * c
        return found


@dataclass
class _OnMaterial:
    """Tied to the material column that was nearest at birth.

    seeds : float32 (n, 3), world metres. chosen : int64 (n,), columns. origin : float32 (n, 3), where they
    were.
    """

    rows: Longs
    birth: int
    columns: Columns
    chosen: Longs
    seeds: Floats
    origin: Floats

    def advance(self, world: Geometry, frame: int) -> None:
        """Nothing to keep up with."""

    def at(self, frame: int) -> Floats:
        found: Floats = self.seeds + (self.columns.at(frame)[self.chosen] - self.origin)
        return found


def _plant(world: Geometry, points: Floats) -> list[_Path]:
    """Paths of the queries that hit something, grouped by birth frame and object."""
    column, row = (np.rint(points[:, axis]).astype(np.int64) for axis in (1, 2))
    birth = points[:, 0].astype(np.int64)
    outside = (column < 0) | (column >= world.width) | (row < 0) | (row >= world.height)
    outside |= (birth < 0) | (birth >= world.frames)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        where = f"({world.frames}, {world.height}, {world.width})"
        raise IndexError(f"query {first} at (t, x, y) = {points[first].tolist()} lies outside {where}")
    pixels = row * world.width + column
    paths: list[_Path] = []
    for frame in np.unique(birth):
        drawn = draw(world, int(frame))
        if drawn is not None:
            born = np.flatnonzero(birth == frame)
            paths += _plant_frame(world, drawn, int(frame), born, pixels[born])
    return paths


def _plant_frame(world: Geometry, drawn: Drawn, frame: int, queries: Longs, pixels: Longs) -> list[_Path]:
    face, b0, b1 = drawn.buffers()
    hit = face[pixels] >= 0
    queries, pixels = queries[hit], pixels[hit]
    owner = drawn.part[face[pixels]]
    paths: list[_Path] = []
    for row in np.unique(owner):
        number, vertices, faces = drawn.parts[row]
        mine = owner == row
        rows, places = queries[mine], pixels[mine]
        last = frame + 1 >= world.frames
        if last or same_topology((vertices, faces), world.object_mesh(number, frame + 1)):
            corners = drawn.faces[face[places]] - np.int32(drawn.starts[row])
            p, q = b0[places], b1[places]
            weights = np.stack([p, q, np.float32(1) - (p + q)], axis=1)
            paths.append(_OnMesh(rows, frame, number, (vertices, faces), corners, weights))
        else:
            found = _tie(drawn, int(row), frame, rows, places, Columns(materials_of(world), number))
            paths += [found] if found is not None else []
    return paths


def _tie(
    drawn: Drawn, row: int, frame: int, rows: Longs, pixels: Longs, columns: Columns
) -> _OnMaterial | None:
    """Tie points to the nearest columns alive at birth; None when there are none."""
    at_birth = columns.at(frame)
    live = np.flatnonzero(np.isfinite(at_birth).all(axis=1))
    seeds = drawn.at(pixels, drawn.verts)
    usable = np.isfinite(seeds).all(axis=1)
    if not len(live) or not usable.any():
        return None
    rows, seeds = rows[usable], seeds[usable]
    surface = drawn.at(drawn.seen(row), drawn.verts)
    count = min(len(surface), PROBE)
    probe = surface[np.random.default_rng(frame).choice(len(surface), count, replace=False)]
    probe = probe[np.isfinite(probe).all(axis=1)]
    distance, index = nearest_columns(np.concatenate([probe, seeds]), at_birth[live])
    typical = float(np.median(distance[: len(probe)]))
    near = distance[len(probe) :] <= REACH * typical
    chosen = live[index[len(probe) :][near]]
    return _OnMaterial(rows[near], frame, columns, chosen, seeds[near], at_birth[chosen])


def _seen(world: Geometry, frame: int, points: Floats) -> tuple[Floats, Mask]:
    """Image points float32 (Q, 2) of world points (Q, 3), and which of them the frame shows.

    A point is seen when its depth, in float64, is that of the surface drawn at its pixel, within 1 % and at
    least 1 cm. The frame is drawn only if some point lies in the image.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        camera = (points.astype(np.float64) - world.extrinsic[:3, 3]) @ world.extrinsic[:3, :3]
        image = image_points(camera, world.intrinsics).astype(np.float32)
        depth: Doubles = camera[:, 2]
        u, v = image[:, 0], image[:, 1]
        inside = np.isfinite(image).all(axis=1) & (depth > NEAR)
        inside &= (u >= 0) & (u < world.width) & (v >= 0) & (v < world.height)
    seen = np.zeros(len(points), np.bool_)
    rows = np.flatnonzero(inside)
    if len(rows):
        verts, faces, _ = world.soup(frame)
        surface, _ = rasterize(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)
        drawn = surface[v[rows].astype(np.int64), u[rows].astype(np.int64)].astype(np.float64)
        seen[rows] = np.abs(depth[rows] - drawn) <= np.maximum(TOLERANCE * depth[rows], FLOOR)
    return image.astype(np.float32, copy=False), seen
