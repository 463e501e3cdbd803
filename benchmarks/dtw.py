"""How many cells of the warped distance are filled a second, beside a plain compiled loop, in one run.

    python benchmarks/dtw.py [--paths 1024] [--frames 300] [--threads 2] > dtw.json

The plain loop is the definition, one pair after the other, compiled; values are compared. ``cells`` counts
the whole table of every pair, also of pairs that pruning spares, in billions. ``cpu`` are processor seconds
of all threads, which other work on the machine disturbs less. ``memory`` is what a call on a quarter of the
paths adds at its peak, MB, the matrix of costs included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from scorer.geometry.dtw import dtw_matrix


@njit(nogil=True)
def plain(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    la, lb = a.shape[1], b.shape[1]
    for p in range(len(a)):
        for q in range(len(b)):
            value = np.full(lb + 1, np.inf, np.float32)
            steps = np.zeros(lb + 1, np.float32)
            corner = np.float32(0.0)
            for i in range(la):
                diagonal, diagonal_steps = corner, np.float32(0.0)
                corner = np.float32(np.inf)
                value[0] = corner
                for j in range(lb):
                    x = a[p, i, 0] - b[q, j, 0]
                    y = a[p, i, 1] - b[q, j, 1]
                    z = a[p, i, 2] - b[q, j, 2]
                    best, count = value[j], steps[j]
                    if value[j + 1] < best:
                        best, count = value[j + 1], steps[j + 1]
                    if diagonal < best:
                        best, count = diagonal, diagonal_steps
                    diagonal, diagonal_steps = value[j + 1], steps[j + 1]
                    value[j + 1] = best + np.sqrt(x * x + y * y + z * z)
                    steps[j + 1] = count + np.float32(1.0)
            out[p, q] = value[lb] / steps[lb]


def walks(count: int, frames: int, seed: int, motion: float) -> np.ndarray:
    """Paths that start in a ball of radius one and end about ``motion`` away."""
    g = np.random.default_rng(seed)
    start = g.normal(size=(count, 1, 3))
    start *= g.random((count, 1, 1)) ** (1 / 3) / np.linalg.norm(start, axis=2, keepdims=True)
    path = np.cumsum(g.normal(size=(count, frames, 3)), axis=1) / np.sqrt(3.0 * frames)
    return (start + motion * path).astype(np.float32)


def timed(work: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def rates(cells: float, wall: float, cpu: float) -> dict[str, float]:
    return {
        "wall": round(wall, 3),
        "cpu": round(cpu, 3),
        "cells_per_second": round(cells / wall, 2),
        "cells_per_cpu_second": round(cells / cpu, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", type=int, default=1024)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    few = walks(8, 8, 0, 1.0)
    dtw_matrix(few, few, 1.0)
    plain(few, few, np.empty((8, 8), np.float32))
    cells = options.paths**2 * options.frames**2 / 1e9
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "paths": options.paths,
        "frames": options.frames,
        "threads": options.threads,
        "cells": round(cells, 2),
        "motion": {},
    }
    a, b = (walks(options.paths, options.frames, seed, 1.0) for seed in (1, 2))
    some = slice(0, max(1, options.paths // 16))
    out = np.empty((len(a[some]), len(b[some])), np.float32)
    wall, cpu, _ = timed(lambda: plain(a[some], b[some], out) or out)
    report["plain, one thread"] = rates(out.size * options.frames**2 / 1e9, wall, cpu)
    for threads in sorted({1, options.threads}):
        wall, cpu, found = timed(lambda threads=threads: dtw_matrix(a, b, threads=threads))
        report[f"without a cap, {threads} thread(s)"] = rates(cells, wall, cpu)
    report["largest_difference"] = float(np.abs(found[some, some] - out).max())
    base = report["plain, one thread"]["cells_per_cpu_second"]
    many = report[f"without a cap, {options.threads} thread(s)"]["cells_per_cpu_second"]
    report["ratio_per_cpu_second"] = round(many / base, 1)
    for motion in (0.0, 0.2, 0.5, 1.0):
        a, b = (walks(options.paths, options.frames, seed, motion) for seed in (1, 2))
        wall, cpu, found = timed(lambda a=a, b=b: dtw_matrix(a, b, 1.0, options.threads))
        capped = round(float((found == 1.0).mean()), 3)
        report["motion"][str(motion)] = {**rates(cells, wall, cpu), "pairs_at_the_cap": capped}
    tracemalloc.start()
    dtw_matrix(a[: options.paths // 4], b[: options.paths // 4], 1.0, options.threads)
    report["memory"] = round(tracemalloc.get_traced_memory()[1] / 1e6, 1)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
