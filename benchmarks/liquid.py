"""Tracers of a liquid: the search for the finest spacing against plain NumPy, and the voxelisation.

    python benchmarks/liquid.py [--cells 64] [--frames 100] [--helper scorer-vdb]

The plain version runs one trial only, at the spacing that the search found, so ``ratio`` is that of one
trial; ``search_s`` is the whole search.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import mantaflow
import naive_liquid

from scorer.liquid import helper
from scorer.liquid.advection import columns, finest_spacing
from scorer.liquid.fields import Fields
from scorer.liquid.helper import Helper


def sloshing(cells: int, frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Velocity, signed distance and times of a basin that is two fifths full."""
    x, y, z = np.meshgrid(*[(np.arange(cells) + 0.5) / cells] * 3, indexing="ij")
    way = np.stack(
        [np.sin(7 * y) * np.cos(9 * z), np.sin(8 * z) * np.cos(6 * x), 0.3 * np.sin(10 * x)], axis=-1
    )
    swing = np.cos(np.arange(frames) / 15)
    velocity = (0.12 * cells * swing[:, None, None, None, None] * way).astype(np.float32)
    level = 0.4 + 0.1 * np.sin(np.arange(frames) / 10)[:, None, None, None] * np.cos(3 * x)
    return velocity, ((z - level) * cells).astype(np.float32), np.arange(frames) / 8


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def voxelised(cells: int) -> float:
    """Seconds for one ball of 20,000 triangles."""
    vertices, faces = mantaflow.ball(0.4 * cells, [cells / 2] * 3, 100)
    phi = np.empty((cells,) * 3, np.float32)
    with Helper((cells,) * 3) as running:

        def one() -> None:
            running.ask_surface(vertices, faces)
            running.answer(phi, "ball")

        one()
        return min(timed(one)[0] for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--helper", help="path of scorer-vdb")
    options = parser.parse_args()
    if options.helper:
        os.environ[helper.VARIABLE] = options.helper
    velocity, phi, times = sloshing(options.cells, options.frames)
    fields = Fields.of(velocity, phi, times)
    columns(Fields(velocity[:2], times[:2], fields.bits[:2]), 4.0)  # compile
    search, (spacing, count) = timed(lambda: finest_spacing(fields))
    ours, _ = timed(lambda: columns(fields, spacing))
    plain, found = timed(lambda: naive_liquid.trial(velocity, phi, times, spacing, 16384))
    result = {
        "cells": options.cells,
        "frames": options.frames,
        "columns": count,
        "spacing": spacing,
        "search_s": search,
        "trial_s": ours,
        "plain_trial_s": plain,
        "ratio": plain / ours,
        "same_count": found is not None and found.shape[1] == count,
        "voxelise_frame_s": voxelised(options.cells),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
