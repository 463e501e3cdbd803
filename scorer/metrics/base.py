"""What every metric returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from scorer.scene import Scene


@dataclass(frozen=True)
class Measurement:
    """Outcome of one metric type on one world.

    detail : fields for ``reward.detail.json``, among them the metric's raw number(s) under their detail keys.
    arrays : ``{group: {name: array}}``, one file a group in ``results/``.
    vouched : reward keys that the metric stands for; None means every key of its type. A key that is not
        vouched for, or whose raw number is None, becomes ``uncomputable``.
    causes : cause to store for a key that becomes ``uncomputable`` (default ``no_pairing``).
    """

    detail: Mapping[str, Any]
    arrays: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    vouched: frozenset[str] | None = None
    causes: Mapping[str, str] = field(default_factory=dict)


class Metric(Protocol):
    """A module in ``scorer/metrics`` with this function is a metric."""

    def measure(self, scene: Scene) -> Measurement:
        """Read the scene and measure. Exceptions become the type's ``error``."""
