"""States by precedence, and averages that drop nothing silently."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import aggregate, states
from contract.aggregate import Scored
from contract.metrics import BY_KEY, METRICS

TRANSPARENT_CASE = "real/internet_22_viscous_honey_dripping"


def test_precedence() -> None:
    # not_applicable > excluded > error > uncomputable > number
    assert states.reading("scene_3d", TRANSPARENT_CASE, 0.5, error="no_video").value == "not_applicable"
    assert states.reading("dynamic_iou", TRANSPARENT_CASE, 0.5, error="no_video") == states.Reading(
        "excluded", "transparent"
    )
    assert states.reading("dynamic_iou", "real/a", None, error="no_video", vouched=False) == states.Reading(
        "error", "no_video"
    )
    assert states.reading("dynamic_iou", "real/a", 0.5, vouched=False).value == "uncomputable"
    assert states.reading("dynamic_iou", "real/a", "error").cause == "metric_failure"
    assert states.reading("dynamic_iou", "real/a", None).cause == "no_pairing"
    assert states.reading("dynamic_iou", "real/a", math.nan) == states.Reading("error", "degenerate")
    assert states.reading("dynamic_iou", "real/a", 0.5) == states.Reading(0.5)


def test_cosine_is_mapped_in_the_reward() -> None:
    assert states.reading("semantic_dinov3", "real/a", 0.9).value == pytest.approx(0.95)
    assert states.reading("geophys_dinov3", "real/a", 0.9).value == 0.9


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ValueError: rasterises to no covered pixel", "empty_first_frame"),
        ("no visible geometry", "empty_first_frame"),
        ("boom", "metric_failure"),
    ],
)
def test_failure_cause(text: str, cause: str) -> None:
    assert states.failure_cause(text) == cause
    assert states.reading("scene_3d", "synthetic/a", "error", failures=text).cause == cause


def full(value: object) -> dict[str, object]:
    return {metric.key: value for metric in METRICS}


def test_errors_count_as_the_worst_value() -> None:
    summary = aggregate.summarise([Scored("real/a", full(1.0)), Scored("real/b", full("error"))])
    assert summary.metrics["dynamic_iou"].value == 0.5
    assert summary.metrics["depth_error"].value == 1.5
    assert summary.metrics["dynamic_iou"].states == {"number": 1, "error": 1}


@pytest.mark.parametrize("state", ["not_applicable", "excluded", "uncomputable", None])
def test_states_that_are_left_out_are_counted(state: str | None) -> None:
    summary = aggregate.summarise([Scored("real/a", full(0.25)), Scored("real/b", full(state))])
    mean = summary.metrics["scene_3d"]
    assert (mean.value, mean.cases) == (0.25, 1)
    assert mean.states == {"number": 1, state or "missing": 1}


def test_trials_are_averaged_first() -> None:
    readings = [("real/a", 0.0), ("real/a", 1.0), ("real/b", 1.0)]
    runs = [Scored(case, {"dynamic_iou": value}) for case, value in readings]
    assert aggregate.summarise(runs).metrics["dynamic_iou"].value == 0.75


def test_geometry_quality_leaves_refused_worlds_out() -> None:
    runs = [Scored("real/a", full(0.5)), Scored("real/b", full("error"), gates_open=False)]
    summary = aggregate.summarise(runs)
    assert summary.metrics["mesh_watertight"].value == 0.5
    assert summary.metrics["mesh_watertight"].states == {"number": 1, "error": 1}
    assert summary.metrics["dynamic_iou"].value == 0.25
    # A metric that failed on a well-formed world counts as the worst value there too.
    failed = aggregate.summarise([runs[0], Scored("real/b", full("error"))])
    assert failed.metrics["mesh_watertight"].value == 0.25


def test_overall_is_the_mean_of_the_families() -> None:
    reward: dict[str, object] = full(0.0)
    reward.update(
        semantic_dinov3=1.0, dynamic_iou=0.5, flow_distribution=0.5, track2d_dtw=0.5, depth_error=0.5
    )
    summary = aggregate.summarise([Scored("real/a", reward)])
    assert summary.families["2.5D Geometry"] == 0.75
    assert summary.overall == pytest.approx((1.0 + 0.5 + 0.75 + 0.0 + 0.0) / 5)
    assert len(summary.overall_families) == 5


def test_additional_metrics_do_not_enter_overall() -> None:
    low, high = full(0.5), full(0.5)
    high.update(occupancy_dtw=1.0, mesh_watertight=1.0, semantic_tips=1.0)
    assert aggregate.summarise([Scored("a/a", low)]).overall == pytest.approx(
        aggregate.summarise([Scored("a/a", high)]).overall
    )


def test_an_empty_selection_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to summarise"):
        aggregate.summarise([])


@pytest.mark.parametrize("value", ["excelent", True, math.nan, [1.0]])
def test_unknown_readings_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="dynamic_iou"):
        aggregate.counted(BY_KEY["dynamic_iou"], value)


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([*states.STATES, None])), min_size=1, max_size=20))
def test_mean_never_rises_when_a_number_fails(values: list[float | str | None]) -> None:
    metric = BY_KEY["dynamic_iou"]
    failed = ["error" if isinstance(value, float) else value for value in values]
    before, after = (
        aggregate.metric_mean(
            metric, [Scored(f"real/{index}", {metric.key: value}) for index, value in enumerate(readings)]
        ).value
        for readings in (values, failed)
    )
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after <= before
