"""How fast materials are sampled and followed, beside plain NumPy, in one run.

    python benchmarks/sampling.py [--quick] > sampling.json

Enclosure: the cells of a box around a closed sphere and around an open, wavy sheet, 20,000 triangles each,
beside the sum over every triangle, compiled and in NumPy. Coordinates: mean value coordinates of points
inside the sphere. Sums over all pairs are timed on fewer points and scaled. Affine shortcut: following a
rigid body with and without it. Whole takes: voxel edge, sampling at birth, following 8192 paths; peak memory
is the process's so far. Times are single calls after one that compiles; other work on the machine adds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from sampling_scenes import CUBE, CUBE_FACES, Archive, moved, sheet, swept, uv_sphere

from scorer.geometry.sampling import following
from scorer.geometry.sampling.calibration import voxel_edge
from scorer.geometry.sampling.enclosure import inside_cells
from scorer.geometry.sampling.following import Interior
from scorer.geometry.sampling.mean_value import Cage, mean_value_weights
from scorer.geometry.sampling.paths import born, draw_rows
from scorer.geometry.sampling.shells import Shape
from scorer.geometry.sampling.solid_angles import winding_by_turns
from scorer.geometry.sampling.topology import Shells


class View:
    """A placement and a camera that see everything."""

    centre = np.array([0.0, 0.0, 3.0])
    radius = 1.0
    width, height = 640, 480
    intrinsics = np.array([[100.0, 0, 320], [0, 100.0, 240], [0, 0, 1]])


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def enclosure(corners: np.ndarray, faces: np.ndarray, h: float, few: int) -> dict[str, Any]:
    shape = Shape.of(Shells.of(faces, len(corners)), corners.astype(np.float64))
    box = shape.boxes(h)[0]
    number = box.probe(np.random.default_rng(0))
    cell = box.cells(number)
    mesh = shape.mesh(0)
    inside_cells(*mesh, cell[:9], box, number[:9], h)
    ours, inside = seconds(lambda: inside_cells(*mesh, cell, box, number, h))
    some = np.random.default_rng(1).choice(len(cell), few, replace=False)
    middle = (cell[some] + 0.5) * h
    winding_by_turns(mesh[0], mesh[1], middle[:2])
    compiled, (exact, _) = seconds(lambda: winding_by_turns(mesh[0], mesh[1], middle))
    plain, _ = seconds(lambda: pairwise_winding(mesh[0][mesh[1]], middle[:32]))
    clear = np.abs(np.abs(exact) - 0.5) > 1e-5
    return {
        "cells": len(cell),
        "triangles": len(faces),
        "rim_edges": len(mesh[2]),
        "seconds": ours,
        "compiled_sum_s_scaled": compiled * len(cell) / few,
        "numpy_s_scaled": plain * len(cell) / 32,
        "times_faster_than_compiled_sum": compiled * len(cell) / few / ours,
        "times_faster_than_numpy": plain * len(cell) / 32 / ours,
        "differing_of_compared": int((inside[some] != (np.abs(exact) > 0.5))[clear].sum()),
        "compared": int(clear.sum()),
    }


def pairwise_winding(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """All pairs of points and triangles at once."""
    a, b, c = np.moveaxis(corners[None] - points[:, None, None], 2, 0)
    la, lb, lc = (np.linalg.norm(x, axis=-1) for x in (a, b, c))
    cosine = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    return np.arctan2((a * np.cross(b, c)).sum(-1), cosine).sum(-1) / (2 * np.pi)


def coordinates(corners: np.ndarray, faces: np.ndarray, points: int, few: int) -> dict[str, Any]:
    cage = Cage.of(corners.astype(np.float64), faces)
    inside = np.random.default_rng(0).uniform(-0.3, 0.3, (points, 3))
    mean_value_weights(cage, inside[:2])
    ours, weights = seconds(lambda: mean_value_weights(cage, inside))
    theirs, expected = seconds(lambda: pairwise_coordinates(cage.corners, faces, inside[:few]))
    return {
        "points": points,
        "triangles": len(faces),
        "one_thread_s": ours,
        "nanoseconds_a_pair": ours / points / len(faces) * 1e9,
        "numpy_s_scaled": theirs * points / few,
        "times_faster": theirs * points / few / ours,
        "largest_difference": float(np.abs(weights[:few] - expected).max()),
    }


def pairwise_coordinates(corners: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """All pairs of points and triangles at once; for points off the surface."""
    v = corners[faces][None] - points[:, None, None]
    d = np.linalg.norm(v, axis=-1)
    u = v / d[..., None]
    chord = np.stack(
        [np.linalg.norm(u[..., (i + 1) % 3, :] - u[..., (i + 2) % 3, :], axis=-1) for i in range(3)], -1
    )
    theta = 2 * np.arcsin(np.minimum(chord / 2, 1))
    eta, sine = theta.sum(-1) / 2, np.sin(theta)
    ahead, behind = [1, 2, 0], [2, 0, 1]
    c = (
        2 * np.sin(eta)[..., None] * np.sin(eta[..., None] - theta) / (sine[..., ahead] * sine[..., behind])
        - 1
    )
    s = np.sign(np.linalg.det(u))[..., None] * np.sqrt(np.maximum(0, 1 - c**2))
    share = (theta - c[..., ahead] * theta[..., behind] - c[..., behind] * theta[..., ahead]) / (
        d * sine[..., ahead] * s[..., behind]
    )
    total = np.zeros((len(points), len(corners)))
    for row in range(len(points)):
        np.add.at(total[row], faces.reshape(-1), share[row].reshape(-1))
    return (total / total.sum(1, keepdims=True)).astype(np.float32)


def take(archive: Archive) -> dict[str, Any]:
    """Edge, samples at birth, drawing, paths."""
    material, view = [moved(archive)], View()
    edge, h = seconds(lambda: voxel_edge(material))
    sampled, side = seconds(lambda: born(material, h, view, view))  # type: ignore[arg-type]
    rows = draw_rows(len(side), len(side))[0]
    followed, paths = seconds(lambda: side.paths(view, view, rows))  # type: ignore[arg-type]
    return {
        "frames": archive.pos.shape[0],
        "columns": archive.pos.shape[1],
        "triangles": 0 if archive.faces is None else len(archive.faces),
        "paths": len(side),
        "drawn": len(paths),
        "edge_s": edge,
        "born_s": sampled,
        "followed_s": followed,
        "peak_rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def shortcut(corners: np.ndarray, faces: np.ndarray, frames: int, points: int) -> dict[str, Any]:
    pos = swept(corners, frames, np.random.default_rng(0))
    inside = np.random.default_rng(1).uniform(-0.3, 0.3, (points, 3))
    cage = Cage.of(pos[0].astype(np.float64), faces)
    quick, first = seconds(lambda: Interior(cage, True, inside).follow(pos))
    summed, second = seconds(lambda: Interior(cage, False, inside).follow(pos))
    return {
        "seconds": quick,
        "without_s": summed,
        "times_faster": summed / quick,
        "largest_difference_radii": float(np.abs(first - second).max()),
    }


def emitter(count: int, frames: int) -> Archive:
    rng = np.random.default_rng(0)
    pos = np.repeat(rng.uniform(-1, 1, (1, count, 3)).astype(np.float32), frames, 0)
    pos[np.arange(frames)[:, None] < rng.integers(0, frames, count)] = np.nan
    return Archive("emitter", pos)


def crumbs(count: int, frames: int) -> Archive:
    rng = np.random.default_rng(0)
    verts = np.concatenate([(CUBE - 0.5) * 0.05 + rng.uniform(-1, 1, 3) for _ in range(count)])
    faces = np.concatenate([CUBE_FACES + 8 * number for number in range(count)])
    return Archive("crumbs", swept(verts, frames, rng), faces.astype(np.int32))


def main() -> None:
    parser = argparse.ArgumentParser(description="Time material sampling against plain NumPy.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    quick = parser.parse_args().quick
    rings, frames, points = (32, 24, 1024) if quick else (100, 120, 8192)
    ball, sides = uv_sphere(rings, rings)
    cloth, quads = sheet(rings)
    cloth[:, 2] = 0.2 * np.sin(7 * cloth[:, 0]) * np.cos(5 * cloth[:, 1])
    body = ball * np.float32(0.5)
    warm = uv_sphere(6, 6)
    for closed in (True, False):
        Interior(Cage.of(warm[0].astype(np.float64), warm[1]), closed, np.zeros((9, 3))).follow(warm[0][None])
    for archive in (Archive("ball", warm[0][None], warm[1]), emitter(50, 3), crumbs(3, 3)):
        take(archive)
    rng = np.random.default_rng(0)
    results = {
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "platform": platform.platform()},
        "enclosure": {
            "sphere": enclosure(ball, sides, 0.0505, points // 8),
            "sheet": enclosure(cloth, quads, 0.0138 if not quick else 0.03, points // 8),
        },
        "coordinates": coordinates(body, sides, points // 4, 16),
        "affine_shortcut": shortcut(body, sides, frames, points),
        "takes": {
            "rigid body": take(Archive("rigid", swept(body, frames, rng), sides)),
            "bending body": take(Archive("bending", swept(body, frames, rng, 0.005), sides)),
            "wavy sheet": take(Archive("sheet", swept(cloth - 0.5, frames, rng, 0.01), quads)),
            "crumbs": take(crumbs(500 if quick else 5000, frames)),
            "emitter": take(emitter(20_000 if quick else 200_000, frames)),
        },
        "history_mib_at_a_time": following.HISTORY_BYTES >> 20,
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
