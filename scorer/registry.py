"""Which types are built, and the module of each; which model each unit runs. What is not listed here is not
offered.
"""

from __future__ import annotations

from collections.abc import Mapping

from contract.metrics import MODEL_UNITS

__all__ = ["BUILT", "MODEL_UNITS", "Registry", "model_key"]

Registry = Mapping[str, str]
"""Type name → dotted name of the module with its ``measure``; ``model_key(unit)`` → dotted name of the
estimator that the unit runs.

``measure(scene) -> Measurement``; of a type with models ``measure(subject, model) -> Measurement``, where
``model`` is what the estimator loaded. ``uni3d`` has ``clouds(scene) -> Measurement`` besides.
"""


def model_key(unit: str) -> str:
    """Where a registry names the unit's estimator."""
    return f"{unit} model"


BUILT: Registry = {
    "dynamic_iou": "scorer.metrics.dynamic_iou",
    "scene_3d": "scorer.metrics.scene_3d",
    "trajectory": "scorer.metrics.trajectory",
    "dynamics": "scorer.metrics.dynamics",
    "occupancy": "scorer.metrics.occupancy",
    "interpenetration": "scorer.metrics.interpenetration",
    "mesh": "scorer.metrics.mesh",
    "uni3d": "scorer.metrics.uni3d",
    "flow": "scorer.metrics.flow",
    "track2d": "scorer.metrics.track2d",
    "semantic": "scorer.metrics.semantic",
    "geophys": "scorer.metrics.geophys",
    "depth": "scorer.metrics.depth",
    model_key("semantic_dinov3"): "scorer.estimators.dinov3.DINOV3",
    model_key("semantic_tips"): "scorer.estimators.tipsv2.TIPSV2",
    model_key("geophys_dinov3"): "scorer.estimators.dinov3.DINOV3",
    model_key("uni3d"): "scorer.estimators.uni3d.UNI3D",
}
