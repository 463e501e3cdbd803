"""Bootstrap intervals of the means: resample cases, keep the rule of aggregation.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile interval. Cases are resampled, not
readings, since a case's metrics go together; trials are averaged within their case first.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contract.aggregate import Scored
from contract.constants import SEED
from contract.metrics import BY_KEY, MAIN_FAMILIES, METRICS

RESAMPLES = 2_000
LEVEL = 0.95
OVERALL = "Overall"

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Bounds of a 95 % interval."""

    low: float
    high: float


def case_means(runs: Sequence[Scored]) -> Values:
    """(cases, metrics) means over trials in order of case name; NaN where nothing counts."""
    cases = sorted({run.case for run in runs})
    means = np.full((len(cases), len(METRICS)), np.nan)
    for index, case in enumerate(cases):
        trials = [run for run in runs if run.case == case]
        for column, metric in enumerate(METRICS):
            numbers = [number for run in trials if (number := run.number(metric)) is not None]
            if numbers:
                means[index, column] = sum(numbers) / len(numbers)
    return means


def intervals(runs: Sequence[Scored]) -> dict[str, Interval]:
    """Intervals by metric key, family name and ``Overall``; what has no number at all is left out.

    With a single case there is nothing to resample and every interval has zero width.
    """
    means = case_means(runs)
    count = len(means)
    rng = np.random.default_rng(SEED)
    picked = rng.integers(0, count, (RESAMPLES, count))
    sampled = np.stack([_mean(means[picked, column]) for column in range(means.shape[1])], axis=1)
    found = {metric.key: sampled[:, column] for column, metric in enumerate(METRICS)}
    units = np.stack([_unit(metric.key, found[metric.key]) for metric in METRICS], axis=1)
    families = []
    for family in MAIN_FAMILIES:
        columns = [column for column, metric in enumerate(METRICS) if metric.family == family]
        families.append(_mean(units[:, columns]))
        found[family] = families[-1]
    found[OVERALL] = _mean(np.stack(families, axis=1))
    return {name: bounds for name, values in found.items() if (bounds := _bounds(values)) is not None}


def _unit(key: str, values: Values) -> Values:
    metric = BY_KEY[key]
    share = (values - metric.low) / (metric.high - metric.low)
    return share if metric.higher_is_better else 1.0 - share


def _mean(values: Values) -> Values:
    with warnings.catch_warnings():
        # A resample may hold no case to which a metric applies.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=1))


def _bounds(values: Values) -> Interval | None:
    held = values[np.isfinite(values)]
    if held.size == 0:
        return None
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    low, high = np.percentile(held, [tail, 100.0 - tail])
    return Interval(float(low), float(high))
