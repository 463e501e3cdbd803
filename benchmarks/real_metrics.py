"""How fast the metrics of real cases are at 1920×1080, beside plain NumPy versions, in one run.

    python benchmarks/real_metrics.py [--frames 8] [--side 250] [--columns 16000] > real_metrics.json

A scene with a wall, a sheet that keeps its faces and a sheet that is meshed anew each frame above ``columns``
material columns; each sheet has ``2·side²`` triangles. Times are wall seconds a frame, compile time left out.
The plain versions do the same by the definition: all pairs of distances in float32 (in blocks), sorting by
column, a sort for each median. ``held`` is the growth of the process's own memory over a flow metric, with
the fields of all frames in mapped files (as large ones are) and with the same fields in memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from estimates import MemoryMaterial, MemoryWorld, write_depth, write_flow
from raster_scenes import grid
from real_scenes import memory_scene

from scorer import scratch
from scorer.analytic.flow import frame_flow
from scorer.analytic.grid import grid_queries
from scorer.analytic.material import carried
from scorer.analytic.tracks import track_points
from scorer.geometry.raster import rasterize_raw
from scorer.metrics import depth, flow

HEIGHT, WIDTH = 1080, 1920
HELD_FRAMES = 40


def scene(frames: int, side: int, columns: int) -> MemoryWorld:
    k = np.array([[1600.0, 0, WIDTH / 2], [0, 1600.0, HEIGHT / 2], [0, 0, 1]])
    flat, cells = grid(side, side)
    back, wall = grid(2, 2)
    meshes: dict[int, list[Any]] = {1: [], 2: [], 3: []}
    points = int(columns**0.5)
    across, _ = grid(points - 1, points - 1)
    pos = []
    for t in range(frames):
        meshes[1].append((np.column_stack([9 * back, np.full(len(back), 8.0)]).astype(np.float32), wall))
        meshes[2].append((sheet(flat, -1.2 + 0.01 * t, t), cells))
        flat_t, cells_t = grid(side + t % 2, side)
        meshes[3].append((sheet(flat_t, 1.2 - 0.01 * t, t), cells_t))
        pos.append(sheet(across, 1.2 - 0.01 * t, t) + np.float32([0, 0, 0.003]))
    materials = (
        MemoryMaterial((2,), np.zeros((frames, 2, 3), np.float32)),
        MemoryMaterial((3,), np.stack(pos)),
    )
    return MemoryWorld(meshes, materials, HEIGHT, WIDTH, k)


def sheet(flat: np.ndarray, x: float, t: int) -> np.ndarray:
    z = 5 + 0.2 * np.sin(3 * flat[:, 0] + 0.2 * t) * np.cos(2 * flat[:, 1])
    return np.column_stack([flat[:, 0] + x, flat[:, 1], z]).astype(np.float32)


def timed(function: Callable[[], Any], repeat: int = 3) -> float:
    function()
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def plain_carried(points: np.ndarray, now: np.ndarray, later: np.ndarray) -> np.ndarray:
    """As ``carried``, with every distance worked out in float32 blocks."""

    def distances(a: np.ndarray) -> np.ndarray:
        squared = (a * a).sum(1)[:, None] + (now * now).sum(1)[None] - 2 * a @ now.T
        return np.sqrt(np.maximum(squared, 0))

    probe = points[np.random.default_rng(0).integers(0, len(points), 4096)]
    typical = max(float(np.median(distances(probe).min(axis=1))), 1e-9)
    cells = np.floor(points / (0.25 * typical)).astype(np.int64)
    _, voxel = np.unique(cells, axis=0, return_inverse=True)
    voxel = voxel.ravel()
    counts = np.bincount(voxel)
    means = np.stack([np.bincount(voxel, points[:, k]) for k in range(3)], 1) / counts[:, None]
    means = means.astype(np.float32)
    step = np.zeros_like(means)
    for start in range(0, len(means), 2048):
        gap = distances(means[start : start + 2048])
        weight = np.where(gap <= 3 * typical, np.exp(-0.5 * (gap / typical) ** 2), 0)
        step[start : start + 2048] = weight @ (later - now) / np.maximum(weight.sum(1), 1e-12)[:, None]
    return points + step[voxel]


def plain_gap(u: np.ndarray, v: np.ndarray) -> float:
    """The sliced Wasserstein gap with column-wise sorts and both sets' quantiles gathered."""
    normals = np.random.default_rng(0).normal(size=(128, 2))
    unit = (normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(np.float32)
    rows = []
    for w in (u, v):
        ordered = np.sort(w @ unit.T, axis=0)
        at = np.linspace(0, len(w) - 1, 8192, dtype=np.float32)
        low, high = np.floor(at).astype(int), np.ceil(at).astype(int)
        rest = (at - np.floor(at))[:, None]
        rows.append(ordered[low] * (1 - rest) + ordered[high] * rest)
    return float(
        np.sqrt(np.mean((rows[0] - rows[1]) ** 2)) / (np.sqrt(np.mean(u**2)) + np.sqrt(np.mean(v**2)))
    )


def plain_depth(reference: np.ndarray, drawn: np.ndarray) -> float:
    ours, theirs = reference.ravel(), (1 / drawn).ravel()
    parts = []
    for values in (ours, theirs):
        ordered = np.sort(values)
        median = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
        parts.append((values - median) / np.abs(values - median).mean())
    residual = np.sort(np.abs(parts[0] - parts[1]))
    return float(residual[: len(residual) - int(0.01 * len(residual))].mean())


def speeds(world: MemoryWorld, directory: Path) -> dict[str, Any]:
    verts, faces, owner = world.soup(0)
    raster = rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, HEIGHT, WIDTH)
    seen = np.where(raster.face >= 0, owner[raster.face], 0)
    i, j = np.nonzero(seen == 3)
    z = raster.depth[i, j]
    points = np.stack([(j + 0.5 - WIDTH / 2) * z / 1600, (i + 0.5 - HEIGHT / 2) * z / 1600, z], 1).astype(
        "f4"
    )
    now, later = (world.materials[1].pos[t] for t in (0, 1))
    result: dict[str, Any] = {"pixels on the changing sheet": len(points), "columns": len(now)}

    def compare(name: str, ours: Callable[[], Any], plain: Callable[[], Any], repeat: int = 3) -> None:
        a, b = timed(ours, repeat), timed(plain, 1 if repeat == 1 else 2)
        result[name] = {"ours": round(a, 4), "plain": round(b, 4), "ratio": round(b / a, 1)}

    some = points[:: max(1, len(points) // 20_000)]
    compare(
        f"material of {len(some)} pixels",
        lambda: carried(some, now, later, np.random.default_rng(0)),
        lambda: plain_carried(some, now, later),
        1,
    )
    result["material of all"] = timed(lambda: carried(points, now, later, np.random.default_rng(0)), 1)
    u, known, _ = frame_flow(world, 0)
    moving = known & (np.abs(u).sum(-1) > 0.5)
    a = u[moving][:4096]
    b = (a + np.random.default_rng(0).normal(size=a.shape)).astype(np.float32)
    compare("gap of 4096 vectors", lambda: flow.flow_gap(a, b), lambda: plain_gap(a, b))
    maps = np.random.default_rng(0).random((HEIGHT, WIDTH)).astype(np.float32)
    covered = np.isfinite(raster.depth)
    compare(
        "depth reading",
        lambda: depth.frame_reading(maps, raster.depth, covered),
        lambda: plain_depth(maps, raster.depth),
    )
    result["draw"] = timed(
        lambda: rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, HEIGHT, WIDTH)
    )
    result["flow, one step"] = timed(lambda: frame_flow(world, 0))
    queries = grid_queries(HEIGHT, WIDTH)
    result["tracks, one frame"] = timed(lambda: track_points(world, queries), 1) / world.frames
    scenes = memory_scene(world, directory)
    result["flow metric, one step"] = timed(lambda: flow.measure(scenes), 1) / (world.frames - 1)
    result["depth metric, one frame"] = timed(lambda: depth.measure(scenes), 1) / world.frames
    return result


def estimates(world: MemoryWorld, directory: Path) -> None:
    rng = np.random.default_rng(0)
    count = world.frames - 1
    field = np.broadcast_to(rng.normal(size=(HEIGHT, WIDTH, 2)).astype(np.float16), (count, HEIGHT, WIDTH, 2))
    write_flow(directory, field, np.ones((count, HEIGHT, WIDTH), bool))
    write_depth(directory, rng.random((world.frames, 518, 924)), world.shape)


def held(directory: Path, spill: bool) -> int:
    """Growth of this process's own, not file-backed memory while the flow metric's result is alive, bytes."""
    if not spill:
        scratch.SPILL_BYTES = 1 << 60
    world = scene(HELD_FRAMES, 20, 400)
    write_flow(directory, *still(world))
    frame_flow(world, 0)
    before = anonymous()
    measured = flow.measure(memory_scene(world, directory))
    grown = anonymous() - before
    del measured
    return grown


def still(world: MemoryWorld) -> tuple[np.ndarray, np.ndarray]:
    shape = (world.frames - 1, HEIGHT, WIDTH)
    return np.broadcast_to(np.float16(0), (*shape, 2)), np.broadcast_to(np.bool_(True), shape)


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--side", type=int, default=250)
    parser.add_argument("--columns", type=int, default=16_000)
    parser.add_argument("--held", choices=("mapped", "memory"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.held:
        print(held(options.directory, options.held == "mapped"))
        return
    world = scene(options.frames, options.side, options.columns)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        estimates(world, directory)
        result = {"machine": platform.machine(), "frames": world.frames, "triangles": len(world.soup(0)[1])}
        result |= speeds(world, directory)
        for mode in ("mapped", "memory"):
            command = [sys.executable, __file__, *sys.argv[1:], "--held", mode, "--directory", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            result[f"held over {HELD_FRAMES} frames, {mode}, MB"] = round(int(done.stdout) / 1e6)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
