"""Small bakes in Mantaflow's file formats, and worlds whose liquid comes from one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from world.writer import WorldWriter

LIQUID = 5
"""Mesh id of the liquid in ``liquid_world``."""


def config_bytes(
    dims: tuple[int, int, int],
    time: float,
    *,
    dx: float = 0.1,
    low: Sequence[float] = (-0.5, -0.5, -0.5),
    high: Sequence[float] = (0.5, 0.5, 0.5),
    matrix: Any = None,
) -> bytes:
    """The unpacked content of a configuration; ``matrix`` (4, 4) acts on columns and is stored transposed."""
    whole = np.zeros(51, "<i4")
    real = whole.view("<f4")
    whole[1:4] = dims
    real[4] = dx
    real[6:9], real[9:12] = low, high
    real[21:37] = np.asarray(np.eye(4) if matrix is None else matrix).T.ravel()
    real[49] = time
    whole[50] = int.from_bytes(b"C01\0", "little")
    return whole.tobytes()


def velocity_bytes(velocity: Any, *, magic: bytes = b"MNT3", dims: Any = None, size: int = 12) -> bytes:
    """The unpacked content of a velocity grid (nx, ny, nz, 3): header of 292 bytes, z slowest."""
    velocity = np.asarray(velocity, "<f4")
    words = np.array([*(velocity.shape[:3] if dims is None else dims), 0, 2, size], "<i4")
    header = (magic + words.tobytes()).ljust(292, b"\0")
    return header + np.ascontiguousarray(velocity.transpose(2, 1, 0, 3)).tobytes()


def write_bake(
    cache: Path,
    velocity: Any,
    times: Sequence[float],
    *,
    first: int = 0,
    config: Callable[[int], bytes] | None = None,
    **options: Any,
) -> Path:
    """Write ``config/`` and ``data/`` of velocities (n, nx, ny, nz, 3); ``options`` are ``config_bytes``'."""
    velocity = np.asarray(velocity, np.float32)
    for name in ("config", "data", "mesh"):
        (cache / name).mkdir(parents=True, exist_ok=True)
    for frame, time in enumerate(times):
        number = first + frame
        content = config(frame) if config else config_bytes(velocity.shape[1:4], time, **options)
        (cache / "config" / f"config_{number:04d}.uni").write_bytes(gzip.compress(content))
        content = velocity_bytes(velocity[frame])
        (cache / "data" / f"vel_{number:04d}.uni").write_bytes(gzip.compress(content, 1))
    return cache


def write_manifest(world: Path, **changes: Any) -> Path:
    """Write ``solver/manifest.json`` of a liquid ``LIQUID`` whose domain begins at the origin."""
    value = {
        "cache": "cache",
        "fps": 24,
        "time_scale": 1.0,
        "metres_per_unit": 1.0,
        "domain_min": [0.0, 0.0, 0.0],
        "frames": [0, 3],
        "liquid_ids": [LIQUID],
    }
    value |= changes
    path = world / "solver" / "manifest.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def ball(radius: float, centre: Sequence[float], rings: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """A closed sphere: vertices float32 (V, 3), faces int32 (T, 3), outward."""
    polar = np.linspace(0, np.pi, rings + 1)[1:-1]
    around = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    a, b = np.meshgrid(polar, around, indexing="ij")
    shell = np.stack([np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)], -1).reshape(-1, 3)
    points = np.concatenate([shell, [[0, 0, 1], [0, 0, -1]]])
    count = len(around)
    at = np.arange(len(polar) * count).reshape(len(polar), count)
    right = np.roll(at, -1, axis=1)
    quads = np.stack([at[:-1], at[1:], right[1:], right[:-1]], -1).reshape(-1, 4)
    top = np.stack([at[0], right[0], np.full(count, len(shell))], -1)
    bottom = np.stack([right[-1], at[-1], np.full(count, len(shell) + 1)], -1)
    faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]], top, bottom])
    return (points * radius + np.asarray(centre)).astype(np.float32), faces.astype(np.int32)


def liquid_world(
    path: Path,
    *,
    frames: int = 4,
    cached: int | None = None,
    speed: float = 2.0,
    archive: bool = False,
    **changes: Any,
) -> Path:
    """A drop of radius 0.5 m that moves along x in a grid of 24 × 20 × 16 cells of 0.1 m, above a floor.

    frames : of the video; cached : of the bake and the drop's mesh. speed : cells per unit of solver time, of
    which 0.1 pass from frame to frame. archive : whether a rigid body is there as well.
    """
    cached = frames if cached is None else cached
    step = 0.1 * 0.1 * speed
    extrinsic = np.array([[1, 0, 0, 1.2], [0, 0, 1, -3.0], [0, -1, 0, 1.0], [0, 0, 0, 1]], float)
    intrinsics = np.array([[60, 0, 40], [0, 60, 30], [0, 0, 1]], float)
    floor = np.array([[-2, -2, 0], [4, -2, 0], [4, 4, 0], [-2, 4, 0]], np.float32)
    quad = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    with WorldWriter(
        path, frames=frames, height=60, width=80, fps=24, intrinsics=intrinsics, extrinsic=extrinsic
    ) as out:
        out.mesh(1, [floor] * frames, [quad] * frames)
        drops = [ball(0.5, (1.2 + step * t, 1.0, 0.8)) for t in range(cached)]
        out.mesh(LIQUID, [vertices for vertices, _ in drops], [faces for _, faces in drops])
        if archive:
            bodies = [ball(0.2, (0.3, 1.0, 0.3 + 0.03 * t), 8) for t in range(frames)]
            out.mesh(9, [vertices for vertices, _ in bodies], [faces for _, faces in bodies])
            pos = np.stack([vertices for vertices, _ in bodies])
            out.dynamics("body", pos, np.array([9], np.uint16), faces=bodies[0][1])
        out.render([np.full((60, 80, 3), 20 * t % 256, np.uint8) for t in range(frames)])
    velocity = np.zeros((cached, 24, 20, 16, 3), np.float32)
    velocity[..., 0] = speed
    write_bake(path / "solver" / "cache", velocity, [0.1 * t for t in range(cached)])
    write_manifest(path, **({"frames": [0, cached - 1]} | changes))
    return path
