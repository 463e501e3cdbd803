"""Means of a series of frame scores over groups of frames (spec 70 §7.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np

Series = Sequence[Optional[float]]


def group_mean(values: Series, group: Sequence[bool] | np.ndarray, start: int) -> float | None:
    """Mean of the scores that are there, from ``start`` on, in ``group``; None where there is none."""
    chosen = [
        float(value)
        for frame, (value, inside) in enumerate(zip(values, group))
        if frame >= start and inside and value is not None
    ]
    return float(np.mean(chosen)) if chosen else None


def scalars(
    values: Series, visible: np.ndarray, invisible: np.ndarray, start: int
) -> dict[str, float | None]:
    """The two reported means of a series."""
    return {
        "visible": group_mean(values, visible, start),
        "invisible": group_mean(values, invisible, start),
    }
