"""How readings become averages. The rule is data and code in one place, and it never drops a run silently.

* a number counts as itself; ``error`` counts as the metric's worst value (0 for every similarity, 2 for
depth_error);
* ``not_applicable``, ``excluded`` and ``uncomputable`` are left out and counted;
* a missing reading (the run was never scored, or not on this metric) is left out and counted as ``missing``;
* the geometry quality metrics describe well-formed worlds: a world that its gate refused is left out of them;
* trials of one case are averaged first, then cases;
* a family is the mean of its main metrics' means, Overall the mean of the five main families. ``depth_error``
  enters a family on the unit scale, as 1 − error/2. How it enters the published Overall is not published:
  this is our rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contract.metrics import BY_KEY, MAIN_FAMILIES, METRICS, QUALITY, Metric
from contract.states import ERROR, STATES

NUMBER, MISSING = "number", "missing"
OVERALL_RULE = (
    "Overall = mean of the five families (Perceptual, 2D Dynamics, 2.5D Geometry, 3D Geometry, 3D Dynamics), "
    "each the mean of its metrics' means over the cases to which they apply; errors count as the metric's "
    "worst value; depth_error enters as 1 − error/2."
)


@dataclass(frozen=True)
class MetricMean:
    """Mean of one metric over cases, None when no case counts; ``states`` counts every reading."""

    key: str
    value: float | None
    cases: int
    states: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """Means of every metric, of the families on the unit scale, and Overall (None when a family has no
    number).
    """

    metrics: Mapping[str, MetricMean]
    families: Mapping[str, float | None]
    overall: float | None
    overall_families: tuple[str, ...]
    """The families that Overall rests on: all five, or fewer when some have no number at all."""


def counted(metric: Metric, value: object) -> float | None:
    """The number with which a reading enters a mean, or None when it is left out.

    Raises ``ValueError`` for something that is neither a finite number nor a state.
    """
    if isinstance(value, str):
        if value not in STATES:
            raise ValueError(f"{metric.key}: {value!r} is no state of a reading")
        return metric.worst if value == ERROR else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"{metric.key}: {value!r} is neither a number nor a state")
    return float(value)


@dataclass(frozen=True)
class Scored:
    """One scored run: its case, its ``reward.json``, and whether both gates were open."""

    case: str
    reward: Mapping[str, object]
    gates_open: bool = True

    def number(self, metric: Metric) -> float | None:
        """What the run contributes to a metric's mean; None when it is left out."""
        value = self.reward.get(metric.key)
        if value == ERROR and metric.family == QUALITY and not self.gates_open:
            return None
        return counted(metric, value)


def metric_mean(metric: Metric, runs: Iterable[Scored]) -> MetricMean:
    """Mean over cases of the mean over trials; a reading that is absent is counted as missing."""
    trials: dict[str, list[float]] = {}
    states: Counter[str] = Counter()
    for run in runs:
        value, number = run.reward.get(metric.key), run.number(metric)
        states[MISSING if value is None else value if isinstance(value, str) else NUMBER] += 1
        if number is not None:
            trials.setdefault(run.case, []).append(number)
    means = [sum(values) / len(values) for _, values in sorted(trials.items())]
    return MetricMean(metric.key, sum(means) / len(means) if means else None, len(means), dict(states))


def summarise(runs: Iterable[Scored]) -> Summary:
    """Summarise the scored runs of one system. Raises ``ValueError`` when there are none."""
    rows = list(runs)
    if not rows:
        raise ValueError("nothing to summarise: the selection holds no run")
    metrics = {metric.key: metric_mean(metric, rows) for metric in METRICS}
    families: dict[str, float | None] = {}
    for family in MAIN_FAMILIES:
        units = [
            BY_KEY[key].unit(mean.value)
            for key, mean in metrics.items()
            if BY_KEY[key].family == family and mean.value is not None
        ]
        families[family] = sum(units) / len(units) if units else None
    present = {family: value for family, value in families.items() if value is not None}
    overall = sum(present.values()) / len(present) if present else None
    return Summary(metrics, families, overall, tuple(present))
