"""Bootstrap draws and percentile intervals (Efron and Tibshirani, 1993)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vlm_judge.ratings import Matrix

LEVEL = (2.5, 97.5)
"""Percentiles of a 95 % interval."""


def draws(count: int, times: int, seed: int) -> Matrix:
    """How often each of ``count`` units is in each of ``times`` samples with replacement, float64 (times,
    count).

    One ``random.choice`` per pick from a Mersenne Twister: the published protocol's stream.
    """
    source = random.Random(seed)
    units = range(count)
    picked = np.array([[source.choice(units) for _ in units] for _ in range(times)], dtype=np.int64).reshape(
        times, count
    )
    counts = np.zeros((times, count))
    np.add.at(counts, (np.arange(times)[:, None], picked), 1.0)
    return counts


def interval(values: npt.ArrayLike) -> tuple[float, float] | None:
    """95 % percentile interval of the finite values, linear between ranks; None without any."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return None
    low, high = np.percentile(finite, LEVEL)
    return float(low), float(high)


def bounds(low_high: tuple[float, float] | None) -> list[float] | None:
    """An interval as JSON carries it."""
    return None if low_high is None else list(low_high)


def percentile(values: Sequence[float], q: float) -> float:
    """Value at rank (n − 1)·q/100 of the sorted values, linear in between."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), q))
