"""Trajectory DTW: does the material take the paths that the reference's takes?

Statistics: the paths of both sides that are drawn, the warped distance of every pair in reference radii, and
the cheapest matching. Formula: 1 − the mean matched cost, each capped at one radius. Source: protocol 4dcb-1,
Trajectory DTW.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.path_matching import match_paths
from scorer.metrics.base import Measurement
from scorer.scene import Scene

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]

CAP = 1.0
"""Largest cost of a path, reference radii."""


def measure(scene: Scene) -> Measurement:
    """Match the submission's paths to the reference's. A case without a reference world gives an empty
    measurement; one whose reference has no path in view gives no score.

    Raises what the registration and the sampling raise.
    """
    if scene.reference is None:
        return Measurement(detail={}, vouched=frozenset())
    detail: dict[str, Any] = {
        "alignment": scene.registration.detail(),
        "trajectory_h": scene.sampling.h,
        "trajectory_dtw_error": None,
    }
    paths = scene.paths
    if paths is None:
        return Measurement(detail, {"trajectory": {}})
    cost, partner = matched(paths.reference, paths.submission)
    error = float(cost.mean(dtype=np.float64)) / CAP
    detail |= {
        "trajectory_paths": list(paths.counts),
        "trajectory_rows": [len(paths.reference), len(paths.submission)],
        "trajectory_dtw_error": error,
        "trajectory_dtw_score": trajectory_score(error),
    }
    arrays = {
        "gt": paths.reference,
        "pred": paths.submission,
        "h": np.float32(scene.sampling.h),
        "cost_dtw": cost,
        "match_dtw": partner,
        "dtw_error": np.float32(error),
    }
    return Measurement(detail, {"trajectory": {name: np.asarray(array) for name, array in arrays.items()}})


def matched(reference: Floats, submission: Floats, threads: int | None = None) -> tuple[Floats, Longs]:
    """Cost float32 (n,) of each reference path in the cheapest matching, and its partner int64 (n,).

    reference, submission : float32 (n, F, 3) and (m, F, 3), NaN where a path is not to be seen. A path
    without a partner (−1) costs ``CAP``.
    """
    if not len(submission):
        return np.full(len(reference), CAP, np.float32), np.full(len(reference), -1, np.int64)
    partner, cost = match_paths(reference, submission, CAP, threads)
    return cost, partner


def trajectory_score(error: float) -> float:
    """1 for paths that coincide, 0 for a mean cost of the cap."""
    return max(0.0, 1.0 - error)
