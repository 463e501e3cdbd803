"""Worlds in memory, and exact estimates of them in the prepare stage's file layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from raster_scenes import HEIGHT_S, IDENTITY, K_S, WIDTH_S, cube, grid, scene_s

from contract.constants import sampled_frames
from scorer.analytic.flow import frame_flow
from scorer.analytic.grid import grid_queries, inside
from scorer.analytic.tracks import track_points
from scorer.geometry.raster import rasterize

Mesh = tuple[np.ndarray, np.ndarray]
EMPTY: Mesh = (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32))


@dataclass
class MemoryMaterial:
    """ids and pos float32 (F, N, 3) of a dynamics archive."""

    ids: tuple[int, ...]
    pos: np.ndarray


@dataclass
class MemoryWorld:
    """What a metric reads of a world. meshes : ``{id: one (vertices, faces) a frame}``, ascending ids."""

    meshes: dict[int, list[Mesh]]
    materials: tuple[MemoryMaterial, ...] = ()
    height: int = HEIGHT_S
    width: int = WIDTH_S
    intrinsics: np.ndarray = field(default_factory=lambda: K_S.copy())
    extrinsic: np.ndarray = field(default_factory=lambda: IDENTITY.copy())
    fps: float = 24.0
    liquid_ids: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        return max(len(frames) for frames in self.meshes.values())

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.frames, self.height, self.width

    @property
    def dynamic_ids(self) -> tuple[int, ...]:
        return tuple(sorted({number for material in self.materials for number in material.ids}))

    def object_mesh(self, number: int, frame: int) -> Mesh:
        frames = self.meshes.get(number, [])
        return frames[frame] if 0 <= frame < len(frames) else EMPTY

    def parts(self, frame: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        found = ((number, *self.object_mesh(number, frame)) for number in sorted(self.meshes))
        return [part for part in found if len(part[2])]

    def soup(self, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = self.parts(frame)
        if not parts:
            return (*EMPTY, np.zeros(0, np.int32))
        starts = np.cumsum([0, *(len(v) for _, v, _ in parts)])
        return (
            np.concatenate([v for _, v, _ in parts]),
            np.concatenate([f + np.int32(s) for (_, _, f), s in zip(parts, starts, strict=False)]),
            np.repeat(np.array([n for n, _, _ in parts], np.int32), [len(f) for _, _, f in parts]),
        )


def scene_s_world(frames: int = 4) -> MemoryWorld:
    """Golden scene S: a wall, a cube that moves, a patch meshed anew each frame, above its material."""
    meshes: dict[int, list[Mesh]] = {1: [], 2: [], 3: []}
    for frame in range(frames):
        verts, faces, owner = scene_s(frame)
        for number in meshes:
            mine = faces[owner == number]
            low, high = int(mine.min()), int(mine.max()) + 1
            meshes[number].append((verts[low:high], (mine - low).astype(np.int32)))
    corners = np.stack([cube()[0] + [-1.5 + 0.1 * t, 0, 4] for t in range(frames)])
    flat, _ = grid(8, 8)
    patch = np.stack(
        [np.column_stack([0.8 * flat + [1.3, 0.05 * t], np.full(len(flat), 5.02)]) for t in range(frames)]
    )
    materials = (
        MemoryMaterial((2,), corners.astype(np.float32)),
        MemoryMaterial((3,), patch.astype(np.float32)),
    )
    return MemoryWorld(meshes, materials)


def moving_world(
    frames: int = 6, *, wall: bool = True, shift: Callable[[int], Any] = lambda t: (0.12 * t, 0.03 * t, 0)
) -> MemoryWorld:
    """A cube that moves in front of a wall that fills the image; both keep their faces."""
    corners, sides = cube()
    at = [
        (corners + np.array([-1.0, -0.3, 4.0]) + np.array(shift(t))).astype(np.float32) for t in range(frames)
    ]
    flat, cells = grid(3, 3)
    back = np.column_stack([9 * flat, np.full(len(flat), 6.0)]).astype(np.float32)
    meshes: dict[int, list[Mesh]] = {2: [(v, sides) for v in at]}
    if wall:
        meshes[1] = [(back, cells)] * frames
    return MemoryWorld(meshes, (MemoryMaterial((2,), np.stack(at)),))


def write_dense(path: Path, arrays: dict[str, Any]) -> Path:
    """The dense HDF5 container: one frame a chunk, LZF and shuffle from rank 3 on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            array = np.asarray(value)
            if array.ndim >= 3 and array.size:
                chunks = (1, *array.shape[1:])
                file.create_dataset(name, data=array, chunks=chunks, shuffle=True, compression="lzf")
            elif array.dtype.kind == "U":
                file.create_dataset(name, data=array.astype(h5py.string_dtype("utf-8")))
            else:
                file.create_dataset(name, data=array)
    return path


def write_flow(directory: Path, flow: np.ndarray, valid: np.ndarray, stride: int = 1) -> Path:
    """``flow.h5`` of flow (n, H, W, 2) and validity (n, H, W)."""
    arrays = {
        "flow": np.asarray(flow, np.float16),
        "valid": np.asarray(valid, np.bool_),
        "stride": np.int64(stride),
        "model": np.array("exact"),
        "iterations": np.int64(0),
    }
    return write_dense(directory / "flow.h5", arrays)


def write_depth(
    directory: Path, disparity: np.ndarray, shape: tuple[int, int, int], stride: int = 1, fps: float = 24.0
) -> Path:
    """``depth.h5`` of disparity maps (n, h, w) of a video of shape (F, H, W)."""
    arrays = {
        "disparity": np.asarray(disparity, np.float16),
        "shape": np.array(shape, np.int64),
        "stride": np.int64(stride),
        "fps": np.float64(fps),
    }
    return write_dense(directory / "depth.h5", arrays)


def write_tracks(
    directory: Path,
    tracks: np.ndarray,
    visible: np.ndarray,
    queries: np.ndarray,
    on_mask: np.ndarray,
    stride: int = 1,
    **more: Any,
) -> Path:
    """``tracks.npz`` of tracks (Q, F', 2), visibility (Q, F'), queries (Q, 3) and the mask flags (Q,)."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "tracks.npz"
    members = {
        "tracks": np.asarray(tracks, np.float32),
        "visible": np.asarray(visible, np.bool_),
        "queries": np.asarray(queries, np.float32),
        "on_mask": np.asarray(on_mask, np.bool_),
        "stride": np.int64(stride),
        "step": np.int64(1),
        "model": np.array("exact"),
    }
    np.savez_compressed(path, **(members | more))
    return path


def exact_flow(world: Any, stride: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Analytic flow float16 (F' − 1, H, W, 2) of a world and where it is known."""
    steps = [frame_flow(world, frame, stride)[:2] for frame in sampled_frames(world.frames, stride)[:-1]]
    return np.stack([f for f, _ in steps]).astype(np.float16), np.stack([v for _, v in steps])


def exact_disparity(world: Any, stride: int = 1) -> np.ndarray:
    """1 / depth float32 (F', H, W) of what a world shows, 0 where it shows nothing."""
    maps = []
    for frame in sampled_frames(world.frames, stride):
        verts, faces, _ = world.soup(frame)
        depth, _ = rasterize(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)
        maps.append(np.float32(1) / depth)
    return np.stack(maps)


def exact_tracks(
    world: Any, stride: int = 1, count: int = 2048, mask: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Analytic tracks of a world from the prepare stage's own grid, as :func:`write_tracks` takes them."""
    queries = grid_queries(world.height, world.width, count, mask)
    tracks, visible = track_points(world, queries, stride)
    on_mask = np.zeros(len(queries), bool) if mask is None else inside(queries[:, 1:].astype(float), mask)
    return {"tracks": tracks, "visible": visible, "queries": queries, "on_mask": on_mask}


def write_estimates(
    directory: Path, world: Any, stride: int = 1, count: int = 2048, mask: np.ndarray | None = None
) -> Path:
    """Exact ``flow.h5``, ``tracks.npz`` and ``depth.h5`` of a world; the disparity grid is the image's."""
    write_flow(directory, *exact_flow(world, stride), stride)
    write_depth(directory, exact_disparity(world, stride), world.shape, stride, float(world.fps))
    write_tracks(directory, **exact_tracks(world, stride, count, mask), stride=stride)
    return directory
