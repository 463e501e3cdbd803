"""How fast point-set distances and the registration are, beside plain versions of the same in one run.

    python benchmarks/distances.py [--repeat 5] [--quick] > distances.json

Sliced Wasserstein: 16,384 points, 128 directions, beside a float64 matrix product sorted along its columns.
Capped Chamfer: 100,000 points a side on surfaces, in volumes and far apart, beside SciPy's default tree
without a cap. Registration: a world of 1920x1080 pixels (65,536 points of either frame 0 are compared) with
moving surfaces of 8192 points at 16 frames, 26 starts. Times are the least of the repeats, in seconds (other
work on the machine only adds), with the CPU time of the same calls; compile time is left out.
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
from scipy.spatial import cKDTree

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from body_world import BodyWorld, mini_world, noisy, turn

from scorer.geometry.distances import Projected, bounded_chamfer, directions, semd, semd_projected
from scorer.geometry.registration import register

CAP = 0.5


def seconds(work: Callable[[], object], repeat: int) -> dict[str, float]:
    """Least wall time, and least CPU time, after one call that is not counted."""
    work()
    wall, cpu = [], []
    for _ in range(repeat):
        start, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return {"wall_s": min(wall), "cpu_s": min(cpu)}


def plain_semd(x: np.ndarray, y: np.ndarray) -> float:
    unit = directions(x.shape[1]).astype(np.float64)
    steps = np.linspace(0, 1, 8192)
    rows = []
    for side in (x, y):
        values = np.sort(side.astype(np.float64) @ unit.T, axis=0)
        position = steps * (len(values) - 1)
        low = np.floor(position).astype(int)
        high = np.minimum(low + 1, len(values) - 1)
        weight = (position - low)[:, None]
        rows.append(values[low] * (1 - weight) + values[high] * weight)
    return float(np.sqrt(np.mean((rows[0] - rows[1]) ** 2)))


def plain_chamfer(x: np.ndarray, y: np.ndarray) -> float:
    there, back = cKDTree(y).query(x, workers=2)[0], cKDTree(x).query(y, workers=2)[0]
    return float(0.5 * (np.minimum(there, CAP).mean() + np.minimum(back, CAP).mean()))


def wasserstein(points: int, repeat: int) -> dict[str, Any]:
    x, y = (np.random.default_rng(seed).normal(size=(points, 3)).astype(np.float32) for seed in (0, 1))
    ours, plain = seconds(lambda: semd(x, y), repeat), seconds(lambda: plain_semd(x, y), repeat)
    a, b = Projected(x), Projected(y)
    return {
        "points": points,
        "directions": len(directions(3)),
        **ours,
        "of_projected_clouds": seconds(lambda: semd_projected(a, b), repeat),
        "plain": plain,
        "times_faster_cpu": plain["cpu_s"] / ours["cpu_s"],
        "difference": abs(semd(x, y) - plain_semd(x, y)),
    }


def clouds(points: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    def sphere(seed: int) -> np.ndarray:
        p = np.random.default_rng(seed).normal(size=(points, 3))
        return (p / np.linalg.norm(p, axis=1, keepdims=True)).astype(np.float32)

    volumes = [np.random.default_rng(seed).random((points, 3), np.float32) for seed in (2, 3)]
    blob = (np.random.default_rng(4).normal(size=(points, 3)) * 0.05 + [10, 0, 0]).astype(np.float32)
    return {
        "surface": (sphere(0), sphere(1)),
        "volume": (volumes[0], volumes[1]),
        "far apart": (sphere(0), blob),
        "a tenth in reach": (sphere(0), np.concatenate([sphere(1)[: points // 10], blob[points // 10 :]])),
    }


def chamfer(x: np.ndarray, y: np.ndarray, repeat: int) -> dict[str, Any]:
    ours = seconds(lambda: bounded_chamfer(x, y, CAP, threads=2), repeat)
    one = seconds(lambda: bounded_chamfer(x, y, CAP, threads=1), repeat)
    plain = seconds(lambda: plain_chamfer(x, y), max(1, repeat // 2))
    return {
        "points_a_side": len(x),
        **ours,
        "one_thread": one,
        "plain": plain,
        "times_faster_wall": plain["wall_s"] / ours["wall_s"],
        "times_faster_cpu": plain["cpu_s"] / ours["cpu_s"],
        "difference": abs(bounded_chamfer(x, y, CAP) - plain_chamfer(x, y)),
        "same_bits": bounded_chamfer(x, y, CAP, threads=1) == bounded_chamfer(x, y, CAP, threads=2),
    }


def large_world(quick: bool) -> BodyWorld:
    scale = 4 if quick else 16
    return mini_world(
        frames=16,
        height=90 * scale * 3 // 4,
        width=120 * scale,
        intrinsics=np.array([[110.0 * scale, 0, 60 * scale], [0, 110 * scale, 34 * scale], [0, 0, 1]]),
    )


def registration(quick: bool) -> dict[str, Any]:
    """One call each: a submission with noise, and one whose camera is turned away so far that the fit of the
    views runs to its end.
    """
    world = large_world(quick)
    rough = noisy(world, 0.01)
    turned = noisy(world, 0.05)
    turned.extrinsic = world.extrinsic.copy()
    turned.extrinsic[:3, :3] = world.extrinsic[:3, :3] @ turn(0.2)
    found = {}
    for name, submission in {"noise": rough, "noise and a turned camera": turned}.items():
        fitted = register(world, submission)
        one, two = (register(world, submission, threads=threads) for threads in (1, 2))
        found[name] = {
            "points": [len(cloud) for cloud in fitted.clouds or ()],
            "candidates": dict(fitted.candidate_errors),
            "same_bits": one.detail() == two.detail(),
            **seconds(lambda submission=submission: register(world, submission), 1),  # type: ignore[misc]
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time point-set distances and the registration.")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls a number (default 5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the points, a small image")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    results = {
        "machine": {
            "cpus": os.cpu_count(),
            "load_before": os.getloadavg()[0],
            "platform": platform.platform(),
        },
        "sliced_wasserstein": wasserstein(16_384 // share, options.repeat),
        "capped_chamfer": {
            name: chamfer(*pair, options.repeat) for name, pair in clouds(100_000 // share).items()
        },
        "registration": registration(options.quick),
        "load_after": os.getloadavg()[0],
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
