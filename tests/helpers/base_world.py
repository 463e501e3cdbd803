"""The small world of the format's published verdicts, and ways to spoil it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from world.video import write_video

FRAMES, HEIGHT, WIDTH, FPS = 4, 48, 64, 24
INTRINSICS = [[60.0, 0.0, 32.0], [0.0, 60.0, 24.0], [0.0, 0.0, 1.0]]
EXTRINSIC = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -5.0], [0.0, 0.0, 0.0, 1.0]]
VERTICES = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0], [0, 0, 1]], np.float32)
FACES = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]], np.int32)


def mesh_arrays(
    move: Callable[[int], Any], *, frames: int = FRAMES, vertices: np.ndarray = VERTICES
) -> dict[str, np.ndarray]:
    """Members of a mesh archive whose vertices are shifted by ``move(frame)``."""
    arrays = {}
    for frame in range(frames):
        arrays[f"vertices_{frame:04d}"] = vertices + np.float32(move(frame))
        arrays[f"faces_{frame:04d}"] = FACES
    return arrays


def build_base_world(workspace: Path) -> Path:
    """Write the base world and a solution below ``workspace``; returns the world's path."""
    world = workspace / "world"
    (world / "meshes").mkdir(parents=True)
    (world / "dynamics").mkdir()
    camera = {"intrinsics": INTRINSICS, "extrinsic": EXTRINSIC}
    (world / "camera.json").write_text(json.dumps(camera))
    images = (np.full((HEIGHT, WIDTH, 3), 60 + 20 * t, np.uint8) for t in range(FRAMES))
    write_video(world / "render.mp4", images, FPS)
    moving = mesh_arrays(lambda t: np.float32(0.1) * t)
    np.savez(world / "meshes" / "1.npz", **moving)
    np.savez(world / "meshes" / "2.npz", **mesh_arrays(lambda t: 0, vertices=VERTICES * np.float32(2)))
    pos = np.stack([moving[f"vertices_{t:04d}"] for t in range(FRAMES)])
    np.savez(world / "dynamics" / "a.npz", pos=pos, ids=np.array([1], np.uint16), faces=FACES)
    solution = workspace / "solution"
    solution.mkdir()
    (solution / "build.sh").write_text("#!/bin/sh\npython3 make.py\n")
    (solution / "build.sh").chmod(0o755)
    (solution / "make.py").write_text("pass\n")
    return world


def load(path: Path) -> dict[str, np.ndarray]:
    """All members of an archive."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def edit(path: Path, changes: Mapping[str, Any] = {}, remove: tuple[str, ...] = ()) -> None:
    """Replace, add and remove members of an archive."""
    arrays = load(path) | dict(changes)
    for name in remove:
        del arrays[name]
    np.savez(path, **arrays)


def manifest(world: Path, **changes: Any) -> dict[str, Any]:
    """Write a sound ``solver/manifest.json`` with ``changes`` (None removes a key), and an empty cache."""
    value: dict[str, Any] = {
        "cache": "cache",
        "fps": 24,
        "time_scale": 1.0,
        "metres_per_unit": 1.0,
        "domain_min": [0, 0, 0],
        "frames": [0, 3],
        "liquid_ids": [1],
    }
    value |= changes
    value = {key: item for key, item in value.items() if item is not None}
    (world / "solver" / "cache").mkdir(parents=True, exist_ok=True)
    (world / "solver" / "manifest.json").write_text(json.dumps(value))
    return value


def bake(world: Path, frames: range, cache: str = "cache") -> None:
    """Write empty config records for ``frames``."""
    config = world / "solver" / cache / "config"
    config.mkdir(parents=True, exist_ok=True)
    for frame in frames:
        (config / f"config_{frame:04d}.uni").write_bytes(b"")
