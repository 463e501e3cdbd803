"""How fast the rasteriser is: one and two threads, against ray casting and against plain numpy, in one run.

    python benchmarks/raster.py [--repeat 7] [--quick] > raster.json

Scenes at 1280x720: a sphere of two million triangles (most smaller than a pixel), one of twenty thousand, a
box around the camera whose twelve triangles fill the picture and are clipped. Ray casting is embreex, one ray
a pixel centre, with the building of its tree (geometry changes every frame) and without. Times are the least
of the repeats, in seconds (other work on the machine only adds); compile time is left out.
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

from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from raster_scenes import cube, sphere

from scorer.geometry.raster import rasterize

HEIGHT, WIDTH = 720, 1280
K = np.array([[900.0, 0, 640], [0, 900, 360], [0, 0, 1]])
E = np.eye(4)
MOST_NAIVE = 50_000
"""Faces above which the numpy loop is not run: it needs about 50 µs a face."""


def scenes(quick: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    ball, many = sphere(200, 200) if quick else sphere(1000, 1000)
    small, few = sphere(100, 100)
    corners, sides = cube()
    return {
        f"sphere of {len(many)} triangles": ((ball + np.array([0, 0, 3])).astype(np.float32), many),
        f"sphere of {len(few)} triangles": ((small + np.array([0, 0, 3])).astype(np.float32), few),
        "inside a box of 12 triangles": ((corners * 6 + np.array([0.5, 0.3, 1])).astype(np.float32), sides),
    }


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Least wall time after one call that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def naive(verts: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A z-buffer in plain numpy, a face at a time over its box. Faces behind the near plane are left out."""
    u = K[0, 0] * verts[:, 0] / verts[:, 2] + K[0, 2]
    v = K[1, 1] * verts[:, 1] / verts[:, 2] + K[1, 2]
    inverse = 1.0 / verts[:, 2].astype(np.float64)
    best = np.zeros((HEIGHT, WIDTH))
    owner = np.full((HEIGHT, WIDTH), -1, np.int32)
    for index, face in enumerate(faces):
        if (verts[face, 2] < 1e-3).any():
            continue
        x, y = u[face], v[face]
        left, right = max(0, int(np.ceil(x.min() - 0.5))), min(WIDTH, int(np.floor(x.max() - 0.5)) + 1)
        top, bottom = max(0, int(np.ceil(y.min() - 0.5))), min(HEIGHT, int(np.floor(y.max() - 0.5)) + 1)
        area = (x[1] - x[0]) * (y[2] - y[0]) - (y[1] - y[0]) * (x[2] - x[0])
        if left >= right or top >= bottom or area == 0:
            continue
        px, py = np.arange(left, right) + 0.5, (np.arange(top, bottom) + 0.5)[:, None]
        weight = [
            ((x[b] - px) * (y[c] - py) - (y[b] - py) * (x[c] - px)) / area
            for b, c in ((1, 2), (2, 0), (0, 1))
        ]
        z = sum(w * inverse[n] for w, n in zip(weight, face, strict=True))
        box = (slice(top, bottom), slice(left, right))
        seen = (np.minimum(np.minimum(weight[0], weight[1]), weight[2]) >= 0) & (z >= best[box])
        best[box] = np.where(seen, z, best[box])
        owner[box] = np.where(seen, index, owner[box])
    with np.errstate(divide="ignore"):
        return 1.0 / best, owner


def embree_scene(verts: np.ndarray, faces: np.ndarray) -> EmbreeScene:
    scene = EmbreeScene()
    TriangleMesh(scene, verts, faces)
    scene.run(
        np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)
    )  # the tree is built by the first query
    return scene


def rays() -> tuple[np.ndarray, np.ndarray]:
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    towards = np.stack([(u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], np.ones_like(u)], axis=-1)
    towards = np.ascontiguousarray(towards.reshape(-1, 3), np.float32)
    return np.zeros_like(towards), towards


def measure(verts: np.ndarray, faces: np.ndarray, repeat: int) -> dict[str, Any]:
    one = seconds(lambda: rasterize(verts, faces, K, E, HEIGHT, WIDTH, "cpu", threads=1), repeat)
    two = seconds(lambda: rasterize(verts, faces, K, E, HEIGHT, WIDTH, "cpu", threads=2), repeat)
    first = rasterize(verts, faces, K, E, HEIGHT, WIDTH, "cpu", threads=1)
    second = rasterize(verts, faces, K, E, HEIGHT, WIDTH, "cpu", threads=2)
    origins, towards = rays()
    build = seconds(lambda: embree_scene(verts, faces), 1)
    scene = embree_scene(verts, faces)
    cast = seconds(lambda: scene.run(origins, towards), max(1, repeat // 3))
    hit = (scene.run(origins, towards) >= 0).reshape(HEIGHT, WIDTH)
    found: dict[str, Any] = {
        "triangles": len(faces),
        "pixels_covered": int((first[1] >= 0).sum()),
        "one_thread_s": one,
        "two_threads_s": two,
        "triangles_per_second_two_threads": len(faces) / two,
        "same_bits": all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True)),
        "embree_build_s": build,
        "embree_cast_s": cast,
        "embree_coverage_differs_px": int((hit != (first[1] >= 0)).sum()),
        "times_faster_than_embree": (build + cast) / two,
        "times_faster_than_embree_without_build": cast / two,
        "speedup_of_second_thread": one / two,
    }
    if len(faces) <= MOST_NAIVE:
        found["numpy_s"] = seconds(lambda: naive(verts, faces), 1)
        found["times_faster_than_numpy"] = found["numpy_s"] / two
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the rasteriser against ray casting and numpy.")
    parser.add_argument("--repeat", type=int, default=7, help="timed calls a number (default 7)")
    parser.add_argument("--quick", action="store_true", help="80,000 triangles instead of two million")
    options = parser.parse_args()
    results = {
        "image": f"{WIDTH}x{HEIGHT}",
        "machine": {
            "cpus": os.cpu_count(),
            "load_before": os.getloadavg()[0],
            "platform": platform.platform(),
        },
        "scenes": {name: measure(*mesh, options.repeat) for name, mesh in scenes(options.quick).items()},
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
