"""EMD step: is as much of the material moving as far, in the same directions, at the same time?

Statistics: for each step the distance between the two sets of displacements, and how large both are. Formula:
1 − the sum of distances over the sum of magnitudes. Which material moves does not matter. Source: protocol
4dcb-1, EMD step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.distances import Projected, semd_projected
from scorer.geometry.raster_cpu import default_threads
from scorer.metrics.base import Measurement
from scorer.scene import Scene

Floats = NDArray[np.float32]

MIN_POINTS = 8
"""Displacements below which a side has no distribution."""
EPSILON = 1e-9
"""Keeps a step at which nothing moves from dividing by zero."""
CURVE_CAP = 1.0


@dataclass(frozen=True)
class Step:
    """One step that counts. distance, magnitude : reference radii. answered : whether the submission has
    enough displacements to compare.
    """

    distance: float
    magnitude: float
    answered: bool

    @property
    def share(self) -> float:
        """The distance in magnitudes, capped; the cap when there is nothing to compare."""
        return min(CURVE_CAP, self.distance / (self.magnitude + EPSILON)) if self.answered else CURVE_CAP


def measure(scene: Scene) -> Measurement:
    """Compare the displacements of every step. A case without a reference world gives an empty measurement;
    when either side has no path in view, or neither moves at all, there is no score.

    Raises what the registration and the sampling raise.
    """
    if scene.reference is None:
        return Measurement(detail={}, vouched=frozenset())
    detail: dict[str, Any] = {"alignment": scene.registration.detail(), "emd_step_score": None}
    paths = scene.paths
    if paths is None or not len(paths.reference) or not len(paths.submission):
        return Measurement(detail, {"dynamics": {}})
    started = time.monotonic()
    counted = steps(paths.reference, paths.submission)
    detail |= {
        "emd_step_score": emd_step_score(counted),
        "dynamics_paths": [len(paths.reference), len(paths.submission)],
        "dynamics_frames": paths.reference.shape[1],
        "dynamics_seconds": round(time.monotonic() - started, 2),
    }
    curve = np.array([step.share for step in counted], np.float32)
    return Measurement(detail, {"dynamics": {"emd_step": curve}})


def steps(reference: Floats, submission: Floats, threads: int | None = None) -> list[Step]:
    """The steps t → t + 1 at which at least ``MIN_POINTS`` reference paths are in view, in order.

    reference, submission : float32 (n, F, 3) and (m, F, 3), NaN where a path is not to be seen. The number of
    threads does not touch the result.
    """

    def at(t: int) -> Step | None:
        return _step(_displacements(reference, t), _displacements(submission, t))

    found = _mapped(at, range(reference.shape[1] - 1), threads)
    return [step for step in found if step is not None]


def emd_step_score(counted: list[Step]) -> float | None:
    """1 for equal displacements, 0 when they differ by as much as both move; None when nothing moves."""
    magnitude = sum(step.magnitude for step in counted)
    if magnitude == 0.0:
        return None
    return max(0.0, 1.0 - sum(step.distance for step in counted) / magnitude)


def _displacements(paths: Floats, t: int) -> Floats:
    """Of the paths in view at t and t + 1, float32 (k, 3)."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved: Floats = paths[:, t + 1] - paths[:, t]
    kept: Floats = moved[np.isfinite(moved).all(axis=1)]
    return kept


def _step(ours: Floats, theirs: Floats) -> Step | None:
    if len(ours) < MIN_POINTS:
        return None
    magnitude = _magnitude(ours) + _magnitude(theirs)
    if len(theirs) < MIN_POINTS:
        return Step(magnitude, magnitude, False)
    return Step(semd_projected(Projected(ours), Projected(theirs)), magnitude, True)


def _magnitude(moved: Floats) -> float:
    """Root mean square of all components of ``moved`` (k, 3); 0 of nothing."""
    return float(np.sqrt(np.float32(np.square(moved).mean(dtype=np.float64)))) if len(moved) else 0.0


def _mapped(
    work: Callable[[int], Step | None], items: Iterable[int], threads: int | None
) -> list[Step | None]:
    count = default_threads() if threads is None else threads
    if count <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, items))
