"""Occupancy DTW: is there matter in the same places, in the same order of time?

Statistics: the distances between the material of 16 frames of each side, in reference radii. Formula: 1 − the
mean along their cheapest warp over the cap. Source: protocol 4dcb-1, Occupancy DTW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import SEED
from scorer.geometry.distances import Projected, semd_projected
from scorer.geometry.raster_cpu import default_threads
from scorer.geometry.sampling import frame_samples, visible
from scorer.metrics.base import Measurement
from scorer.scene import Scene

Floats = NDArray[np.float32]

FRAMES = 16
CAP = 0.5
"""Largest distance between two frames' matter, reference radii."""

Clouds = dict[int, Projected | None]
"""A frame's matter, projected; None when none is in view."""


def measure(scene: Scene) -> Measurement:
    """Compare what is where. A case without a reference world gives an empty measurement; one whose reference
    shows no material gives no score.

    Raises what the registration and the sampling raise.
    """
    if scene.reference is None:
        return Measurement(detail={}, vouched=frozenset())
    chosen = frame_list(scene.reference.frames)
    ours = _clouds(scene, scene.sampling.reference, chosen)
    kept = [frame for frame in chosen if ours[frame] is not None]
    theirs = _clouds(scene, scene.sampling.submission, kept)
    cross = distances([ours[frame] for frame in kept], [theirs[frame] for frame in kept])
    error = warp(cross) if kept else None
    detail: dict[str, Any] = {
        "alignment": scene.registration.detail(),
        "occupancy_dtw_error": error,
        "occupancy_dtw_score": None if error is None else occupancy_score(error),
        "occupancy_frames": kept,
    }
    arrays: dict[str, NDArray[Any]] = {"cross": cross, "frames": np.array(kept, np.int64)} if kept else {}
    return Measurement(detail, {"occupancy": arrays})


def frame_list(frames: int) -> list[int]:
    """16 frames from the first to the last of so many, at equal steps rounded down; some twice when there are
    fewer.
    """
    spaced: list[int] = np.linspace(0, frames - 1, FRAMES).astype(int).tolist()
    return spaced


def distances(
    ours: Sequence[Projected | None], theirs: Sequence[Projected | None], threads: int | None = None
) -> Floats:
    """Sliced Wasserstein distance of every pair, float32 (k, l), capped; the cap where a side has nothing."""
    out = np.full((len(ours), len(theirs)), CAP, np.float32)

    def row(i: int) -> None:
        for j, other in enumerate(theirs):
            here = ours[i]
            if here is not None and other is not None:
                out[i, j] = min(semd_projected(here, other), CAP)

    _in_threads(row, range(len(ours)), threads)
    return out


def warp(cross: ArrayLike) -> float:
    """Mean of ``cross`` (k, l) along its cheapest path from corner to corner; of equal sums the one of fewest
    cells (not so in the paths' warp). Float64.
    """
    rows = np.asarray(cross, np.float64).tolist()
    nowhere = (np.inf, 0)
    above = [(0.0, 0)] + [nowhere] * len(rows[0])
    for costs in rows:
        line = [nowhere]
        for j, cost in enumerate(costs):
            total, steps = min(above[j + 1], line[j], above[j])
            line.append((total + cost, steps + 1))
        above = line
    total, steps = above[-1]
    return float(total / steps)


def occupancy_score(error: float) -> float:
    """1 for the same matter at all times, 0 for a mean distance of the cap."""
    return max(0.0, 1.0 - error / CAP)


def _clouds(scene: Scene, materials: Any, frames: Sequence[int]) -> Clouds:
    """The samples in view at each of ``frames``, sorted along every direction once."""
    h = scene.sampling.h
    clouds: Clouds = dict.fromkeys(frames)
    if h is None:
        return clouds
    assert scene.reference is not None
    for frame in clouds:
        rng = np.random.default_rng([SEED, frame])
        points = frame_samples(materials, frame, h, rng).positions
        seen = points[visible(points, scene.registration, scene.reference)]
        clouds[frame] = Projected(seen) if len(seen) else None
    return clouds


def _in_threads(work: Callable[[int], None], items: range, threads: int | None) -> None:
    count = default_threads() if threads is None else threads
    with ThreadPoolExecutor(max(1, count)) as pool:
        for _ in pool.map(work, items):
            pass
