"""How fast mesh quality is judged, beside a plain trimesh and libigl loop over objects and frames, in one
run.

    python benchmarks/mesh_quality.py [--faces 50000] [--frames 12] [--threads 2] > mesh_quality.json

The plain loop does what the definition says with the usual libraries: face adjacency and components by
trimesh, holes by its ``fill_holes``, winding numbers by libigl's fast winding number, self-intersection by
libigl and CGAL. It also skips what never changes: an object that is the same at every frame is judged once.
Verdicts are compared. Times are wall seconds, compile time left out; ``cpu`` are processor seconds of all
threads, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import igl
import trimesh
from igl.copyleft.cgal import remesh_self_intersections
from naive_mesh import FakeWorld

from scorer.metrics.mesh import measure_world

Mesh = tuple[np.ndarray, np.ndarray]


def torus(faces: int) -> Mesh:
    minor = max(3, round((faces / 10) ** 0.5))
    mesh = trimesh.creation.torus(1.0, 0.35, major_sections=faces // (2 * minor), minor_sections=minor)
    return mesh.vertices, mesh.faces


def cloth(faces: int) -> Mesh:
    count = round((faces / 2) ** 0.5) + 1
    x, y = np.meshgrid(np.linspace(0, 1, count), np.linspace(0, 1, count))
    index = np.arange(count * count).reshape(count, count)
    a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    return np.stack([x.ravel(), y.ravel(), np.zeros(count * count)], axis=1), triangles


def grains(faces: int) -> Mesh:
    grain = trimesh.creation.icosphere(subdivisions=0)
    count = max(1, faces // len(grain.faces))
    side = int(np.ceil(count ** (1 / 3)))
    cells = np.argwhere(np.ones((side, side, side)))[:count]
    vertices = (0.3 * grain.vertices[None] + cells[:, None]).reshape(-1, 3)
    return vertices, (grain.faces[None] + len(grain.vertices) * np.arange(count)[:, None, None]).reshape(
        -1, 3
    )


def bowl(faces: int) -> Mesh:
    """A torus with a piece cut out: neither closed nor a sheet."""
    vertices, triangles = torus(faces)
    return vertices, triangles[vertices[triangles].mean(axis=1)[:, 0] < 1.2]


def waving(mesh: Mesh, frames: int) -> dict[int, Mesh]:
    vertices, faces = mesh
    moved = {}
    for f in range(frames):
        lift = 0.05 * np.sin(4 * vertices[:, 0] + 0.3 * f) * np.cos(3 * vertices[:, 1])
        moved[f] = vertices + lift[:, None] * np.array([0.3, 0.2, 1.0]), faces
    return moved


def reshaped(mesh: Mesh, frames: int) -> dict[int, Mesh]:
    """As a liquid's surface: other faces at every frame."""
    rng = np.random.default_rng(0)
    moved = waving(mesh, frames)
    return {f: (vertices, faces[rng.permutation(len(faces))]) for f, (vertices, faces) in moved.items()}


def worlds(faces: int, frames: int) -> dict[str, FakeWorld]:
    small = grains(10_000)
    return {
        "deforming torus": FakeWorld(frames, {1: waving(torus(faces), frames)}),
        "waving cloth": FakeWorld(frames, {1: waving(cloth(faces), frames)}),
        "leaking torus": FakeWorld(frames, {1: waving(bowl(faces), frames)}),
        "new faces at every frame": FakeWorld(frames, {1: reshaped(torus(faces), frames)}),
        "500 grains of 20 faces": FakeWorld(frames, {1: waving(small, frames)}),
        "constant torus": FakeWorld(frames, {1: dict.fromkeys(range(frames), torus(faces))}),
    }


def plain_component(mesh: trimesh.Trimesh, generator: np.random.Generator) -> tuple[bool, ...]:
    sheet = False
    if not mesh.is_watertight and len(mesh.faces) >= 4:
        trimesh.repair.fill_holes(mesh)
    if not mesh.is_watertight:
        chosen = generator.choice(len(mesh.faces), min(200, len(mesh.faces)), replace=False)
        probes = (mesh.triangles_center - mesh.face_normals * (1e-3 * mesh.scale))[chosen]
        faces = np.asarray(mesh.faces, dtype=np.int64)
        sheet = np.median(np.abs(igl.fast_winding_number(np.asarray(mesh.vertices), faces, probes))) < 0.75
    _, counts = np.unique(mesh.edges_sorted, axis=0, return_counts=True)
    _, weld = np.unique(np.round(mesh.vertices * 1e8).astype(np.int64), axis=0, return_inverse=True)
    welded = np.sort(weld.ravel()[mesh.faces], axis=1)
    clean = (np.diff(welded, axis=1) > 0).all() and len(np.unique(welded, axis=0)) == len(welded)
    clean = clean and (mesh.area_faces > 0).all()
    solid = np.asarray(mesh.faces[mesh.area_faces > 0], dtype=np.int64)
    met = remesh_self_intersections(np.asarray(mesh.vertices), solid, detect_only=True)[2]
    return mesh.is_watertight or sheet, bool((counts <= 2).all()), bool(clean), len(met) == 0


def plain_object(vertices: np.ndarray, faces: np.ndarray, generator: np.random.Generator) -> tuple[bool, ...]:
    mesh = trimesh.Trimesh(vertices.astype(float), faces, process=False)
    groups = trimesh.graph.connected_components(mesh.face_adjacency, nodes=np.arange(len(faces)), min_len=1)
    parts = mesh.submesh(groups, append=False, repair=False)
    checks = [plain_component(part, generator) for part in parts]
    return tuple(bool(x) for x in np.all(checks, axis=0))


def plain_world(world: FakeWorld) -> list[list[bool]]:
    rows = []
    known: dict[int, tuple[bool, ...]] = {}
    for frame in range(world.frames):
        generator = np.random.default_rng(8191 * frame)
        for number in world.ids:
            vertices, faces = world.object_mesh(number, frame)
            if number not in known:
                others = (world.object_mesh(number, f) for f in world.lifetime(number))
                if all(np.array_equal(vertices, v) and np.array_equal(faces, t) for v, t in others):
                    known[number] = plain_object(vertices, faces, np.random.default_rng(0))
            rows.append(list(known.get(number) or plain_object(vertices, faces, generator)))
    return rows


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faces", type=int, default=50_000)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for world in worlds(2000, 2).values():
        measure_world(world)
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "threads": options.threads,
        "faces": options.faces,
        "frames": options.frames,
        "worlds": {},
    }
    for name, world in worlds(options.faces, options.frames).items():
        wall, cpu, ours = timed(lambda world=world: measure_world(world))
        plain_wall, plain_cpu, plain = timed(lambda world=world: plain_world(world))
        report["worlds"][name] = {
            "ours": {"wall": round(wall, 3), "cpu": round(cpu, 3)},
            "plain": {"wall": round(plain_wall, 3), "cpu": round(plain_cpu, 3)},
            "ratio": round(plain_wall / wall, 1),
            "cpu_ratio": round(plain_cpu / cpu, 1),
            "same_verdicts": ours.arrays["mesh"]["checks"].tolist() == plain,
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
