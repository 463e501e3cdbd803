"""Scene 3D: how close is what the submission shows at frame 0 to what the reference shows?

Statistics: the two visible clouds after registration, in reference radii. Formula: 1 − their capped symmetric
Chamfer distance over the cap. Source: protocol 4dcb-1, Scene 3D.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.distances import bounded_chamfer
from scorer.geometry.registration import SCENE_CAP, scene_clouds
from scorer.metrics.base import Measurement
from scorer.scene import Scene

Floats = NDArray[np.float32]


def measure(scene: Scene) -> Measurement:
    """Compare the registered frame-0 clouds. A case without a reference world gives an empty measurement.

    Raises what the registration raises.
    """
    if scene.reference is None:
        return Measurement(detail={}, vouched=frozenset())
    registration = scene.registration
    gt, pred = scene_clouds(scene.reference, scene.submission, registration)
    error = scene_error(gt, pred)
    return Measurement(
        detail={
            "alignment": registration.detail(),
            "scene_error": error,
            "scene_score": scene_score(error),
        },
        arrays={"scene": {"gt": gt, "pred": pred}},
    )


def scene_error(gt: Floats, pred: Floats) -> float:
    """Capped symmetric Chamfer distance of two clouds (n, 3) in radii; the cap when either is empty."""
    return bounded_chamfer(gt, pred, SCENE_CAP)


def scene_score(error: float) -> float:
    """1 at no distance, 0 at the cap."""
    return max(0.0, 1.0 - error / SCENE_CAP)
