"""How fast interpenetration is judged, alone and together with mesh quality, beside plain trimesh and libigl
loops over objects and frames, in one run.

    python benchmarks/interpenetration.py [--faces 50000] [--frames 12] [--threads 2] > interpenetration.json

The plain loop does what the definition says: boxes, volume, unsigned distances and fast winding numbers, with
the trees that the libraries build for each object and frame. Shares are compared; they may differ by
vertices whose winding number lies within the fast winding number's error (about 0.002) of one half. Times are
wall seconds, compile time left out; ``cpu`` are processor seconds of all threads, which other work on the
machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import trimesh
from mesh_quality import Mesh, cloth, grains, plain_world, reshaped, timed, torus, waving
from naive_interpenetration import naive_world
from naive_mesh import FakeWorld

from scorer.metrics import interpenetration, mesh


def ball(faces: int) -> Mesh:
    """A sphere of about that many faces."""
    count = max(4, round((faces / 2) ** 0.5))
    sphere = trimesh.creation.uv_sphere(radius=1.0, count=[count, count])
    return sphere.vertices, sphere.faces


def moved(mesh: Mesh, scale: float, offset: tuple[float, float, float]) -> Mesh:
    return mesh[0] * scale + np.array(offset), mesh[1]


def falling(shape: Mesh, frames: int, drop: float = 0.02) -> dict[int, Mesh]:
    """Without turning or bending."""
    return {f: (shape[0] - np.array([0.0, 0.0, drop * f]), shape[1]) for f in range(frames)}


def bed(faces: int, frames: int) -> FakeWorld:
    """Grains as objects of their own, falling into a ground box."""
    vertices, triangles = grains(faces)
    count = len(vertices) // 12
    each = vertices.reshape(count, 12, 3)
    local = triangles[:20]
    ground = trimesh.creation.box(extents=[60, 60, 1])
    ground.apply_translation([4, 4, -0.7])
    objects = {k + 2: falling((each[k], local), frames) for k in range(count)}
    return FakeWorld(frames, {1: dict.fromkeys(range(frames), (ground.vertices, ground.faces)), **objects})


def crowd(faces: int, frames: int) -> FakeWorld:
    """Thirty balls that overlap their neighbours."""
    rng = np.random.default_rng(0)
    shape = ball(faces // 30)
    centres = rng.uniform(-2.5, 2.5, (30, 3))
    return FakeWorld(frames, {k: waving(moved(shape, 0.7, tuple(c)), frames) for k, c in enumerate(centres)})


def worlds(faces: int, frames: int) -> dict[str, FakeWorld]:
    half = faces // 2
    sphere = moved(ball(half), 0.5, (0.5, 0.5, -0.2))
    return {
        "two deforming bodies": FakeWorld(
            frames, {1: waving(torus(half), frames), 2: waving(moved(ball(half), 0.6, (1, 0, 0)), frames)}
        ),
        "cloth over a sphere": FakeWorld(
            frames, {1: waving(cloth(half), frames), 2: dict.fromkeys(range(frames), sphere)}
        ),
        "new faces at every frame": FakeWorld(
            frames,
            {1: reshaped(torus(half), frames), 2: reshaped(moved(ball(half), 0.6, (1, 0, 0)), frames)},
        ),
        "thirty balls": crowd(faces, frames),
        "grains as 500 objects": bed(10_000, frames),
        "nothing moves": FakeWorld(
            frames,
            {
                1: dict.fromkeys(range(frames), torus(half)),
                2: dict.fromkeys(range(frames), moved(ball(half), 0.6, (1, 0, 0))),
            },
        ),
    }


def largest_gap(ours: np.ndarray, plain: list[list[float]]) -> float:
    """Largest difference between the shares of one object at one frame."""
    return float(np.abs(ours - np.array([share for shares in plain for share in shares])).max(initial=0.0))


def compared(world: FakeWorld) -> dict[str, Any]:
    wall, cpu, ours = timed(lambda: interpenetration.measure_world(world))
    plain_wall, plain_cpu, (score, shares) = timed(lambda: naive_world(world))
    mesh_wall, _, _ = timed(lambda: mesh.measure_world(world))
    plain_mesh_wall, _, _ = timed(lambda: plain_world(world))
    return {
        "ours": {"wall": round(wall, 3), "cpu": round(cpu, 3)},
        "plain": {"wall": round(plain_wall, 3), "cpu": round(plain_cpu, 3)},
        "ratio": round(plain_wall / wall, 1),
        "cpu_ratio": round(plain_cpu / cpu, 1),
        "with_mesh_quality_ratio": round((plain_wall + plain_mesh_wall) / (wall + mesh_wall), 1),
        "score": ours.detail["interpenetration"],
        "plain_score": score,
        "largest_share_gap": largest_gap(ours.arrays["interpenetration"]["buried"], shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faces", type=int, default=50_000)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="worlds whose name has this in it")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for world in worlds(2000, 2).values():
        interpenetration.measure_world(world)
        mesh.measure_world(world)
    chosen = {k: w for k, w in worlds(options.faces, options.frames).items() if options.only in k}
    report = {
        "machine": platform.processor() or platform.machine(),
        "threads": options.threads,
        "faces": options.faces,
        "frames": options.frames,
        "worlds": {name: compared(world) for name, world in chosen.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
