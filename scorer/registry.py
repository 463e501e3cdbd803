"""Which types are built, and the module of each. A type that is not listed here is not offered."""

from __future__ import annotations

from collections.abc import Mapping

Registry = Mapping[str, str]
"""Type name → dotted name of the module with its ``measure(scene) -> Measurement``."""

BUILT: Registry = {
    "dynamic_iou": "scorer.metrics.dynamic_iou",
    "scene_3d": "scorer.metrics.scene_3d",
    "trajectory": "scorer.metrics.trajectory",
    "dynamics": "scorer.metrics.dynamics",
    "occupancy": "scorer.metrics.occupancy",
    "interpenetration": "scorer.metrics.interpenetration",
    "mesh": "scorer.metrics.mesh",
    "flow": "scorer.metrics.flow",
    "track2d": "scorer.metrics.track2d",
    "depth": "scorer.metrics.depth",
}
