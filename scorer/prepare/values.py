"""Checks of what networks return: a stored number that is none would spoil scores in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.prepare.clip import Clip


def half(values: NDArray[Any], clip: Clip, sample: int, what: str) -> NDArray[np.float16]:
    """``values`` as float16.

    Raises ``ValueError`` naming video and frame when one is not finite or too large.
    """
    require_finite(values, clip, sample, what)
    with np.errstate(over="ignore"):
        stored = np.asarray(values).astype(np.float16)
    if not np.isfinite(stored).all():
        largest = float(np.abs(values).max())
        raise ValueError(
            f"{clip.path}: frame {clip.frame(sample)}: {what} of {largest:g} does not fit into float16"
        )
    return stored


def require_finite(values: NDArray[Any], clip: Clip, sample: int, what: str) -> None:
    """Raise ``ValueError`` naming video and frame unless every value is finite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{clip.path}: frame {clip.frame(sample)}: {what} is not finite")


def require_shape(values: NDArray[Any], shape: tuple[int, ...], what: str) -> None:
    """Raise ``ValueError`` when a network returned something of another shape; that would be our fault."""
    if tuple(values.shape) != shape:
        raise ValueError(f"{what} came out as {tuple(values.shape)}; expected {shape}")
