"""Trajectory DTW on paths that are known, and against the reference's values."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from naive_dtw import naive_matrix
from scipy.optimize import linear_sum_assignment

from scorer.metrics import dynamics, occupancy, trajectory
from scorer.metrics.trajectory import matched, measure, trajectory_score
from scorer.scene import Scene

HERE = Path(__file__).parents[1] / "fixtures" / "worlds"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected_detail.json").read_text())
QUICK = ("cloth/coarse", "fracture/nodynamics", "grain/other")
SLOW = ("mixed/nocloth", "rigid/late", "tet/noisy")


def walks(count: int, length: int, seed: int) -> np.ndarray:
    g = np.random.default_rng(seed)
    start = 0.5 * g.normal(size=(count, 1, 3))
    return (start + np.cumsum(0.05 * g.normal(size=(count, length, 3)), axis=1)).astype(np.float32)


def fake(ours: np.ndarray | None, theirs: np.ndarray | None, h: float | None = 0.1) -> Any:
    paths = None
    if ours is not None and theirs is not None:
        paths = SimpleNamespace(reference=ours, submission=theirs, counts=(9 * len(ours), len(theirs)))
    return SimpleNamespace(
        reference=object(),
        registration=SimpleNamespace(detail=lambda: {"scale": 1.0}),
        sampling=SimpleNamespace(h=h),
        paths=paths,
    )


def test_agrees_with_plain_loops() -> None:
    ours, theirs = walks(23, 9, 0), walks(23, 9, 1)
    ours[np.random.default_rng(2).random(ours.shape[:2]) < 0.2] = np.nan
    gaps = np.minimum(naive_matrix(ours, theirs), 1.0)
    rows, columns = linear_sum_assignment(gaps)
    found = measure(fake(ours, theirs))
    error = gaps[rows, columns].mean()
    assert found.detail["trajectory_dtw_error"] == pytest.approx(error, abs=1e-6)
    assert found.detail["trajectory_dtw_score"] == pytest.approx(1.0 - error, abs=1e-6)


def test_what_is_stored() -> None:
    ours, theirs = walks(5, 6, 0), walks(5, 6, 1)
    found = measure(fake(ours, theirs))
    assert found.detail["trajectory_paths"] == [45, 5]
    assert found.detail["trajectory_rows"] == [5, 5]
    assert found.detail["trajectory_h"] == 0.1
    assert found.detail["alignment"] == {"scale": 1.0}
    stored = found.arrays["trajectory"]
    assert {name: (array.shape, array.dtype.str[1:]) for name, array in stored.items()} == {
        "gt": ((5, 6, 3), "f4"),
        "pred": ((5, 6, 3), "f4"),
        "h": ((), "f4"),
        "cost_dtw": ((5,), "f4"),
        "match_dtw": ((5,), "i8"),
        "dtw_error": ((), "f4"),
    }
    assert sorted(stored["match_dtw"]) == [0, 1, 2, 3, 4]


def test_the_same_paths_in_another_order_score_one() -> None:
    ours = walks(80, 12, 0)
    order = np.random.default_rng(0).permutation(80)
    cost, partner = matched(ours, ours[order])
    assert not cost.any()
    np.testing.assert_array_equal(order[partner], np.arange(80))


def test_noise_and_a_shift_cost_more_the_more_there_is() -> None:
    ours = walks(60, 20, 0)
    noise = np.random.default_rng(1).normal(size=ours.shape).astype(np.float32)
    errors = [matched(ours, ours + np.float32(s) * noise)[0].mean() for s in (0.0, 0.01, 0.05, 0.2)]
    assert errors == sorted(errors)
    assert len(set(errors)) == 4
    assert matched(ours, ours + np.float32([9.0, 0.0, 0.0]))[0].mean() == 1.0


def test_a_submission_without_paths_scores_zero() -> None:
    found = measure(fake(walks(5, 6, 0), np.zeros((0, 6, 3), np.float32)))
    assert found.detail["trajectory_dtw_error"] == 1.0
    assert found.detail["trajectory_dtw_score"] == 0.0
    assert found.detail["trajectory_rows"] == [5, 0]
    assert (found.arrays["trajectory"]["match_dtw"] == -1).all()
    assert (found.arrays["trajectory"]["cost_dtw"] == 1.0).all()


@pytest.mark.parametrize("h", [None, 0.1])
def test_a_reference_without_paths_gives_no_score(h: float | None) -> None:
    found = measure(fake(None, None, h))
    assert found.detail["trajectory_h"] == h
    assert found.detail["trajectory_dtw_error"] is None
    assert "trajectory_dtw_score" not in found.detail
    assert "trajectory_paths" not in found.detail
    assert found.arrays == {"trajectory": {}}


def test_a_case_without_a_reference_world_vouches_for_nothing() -> None:
    for metric in (trajectory, dynamics, occupancy):
        found = metric.measure(SimpleNamespace(reference=None))
        assert found.detail == {}
        assert found.vouched == frozenset()


def test_one_and_two_threads_agree_to_the_bit() -> None:
    ours, theirs = walks(70, 15, 0), walks(70, 15, 1)
    one, two = (matched(ours, theirs, threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_score_is_never_negative() -> None:
    assert trajectory_score(1.0 + 1e-7) == 0.0
    assert trajectory_score(0.25) == 0.75


@cache
def scene(run: str) -> Scene:
    case = f"synthetic/{run.split('/')[0]}"
    return Scene(
        case=case,
        world_path=HERE / "runs" / "synthetic" / run / "1" / "workspace" / "world",
        reference_path=HERE / "data" / case / "world",
        annotation_path=None,
        estimates_path=HERE / "none",
        video_path=HERE / "cases" / case / "reference.mp4",
    )


def check(run: str, prefixes: tuple[str, ...], detail: Any) -> None:
    expected = EXPECTED[f"runs/synthetic/{run}/1"]
    own = {key: value for key, value in expected.items() if key.startswith(prefixes)}
    assert own
    for key, value in own.items():
        assert detail[key] == pytest.approx(value, abs=2e-6), key


@pytest.mark.parametrize("run", [*QUICK, *(pytest.param(run, marks=pytest.mark.slow) for run in SLOW)])
def test_the_reference_scorers_values(run: str) -> None:
    """All three metrics, because the sampling behind them is what takes the time."""
    check(run, ("trajectory",), trajectory.measure(scene(run)).detail)
    check(run, ("emd_", "dynamics_"), dynamics.measure(scene(run)).detail)
    check(run, ("occupancy",), occupancy.measure(scene(run)).detail)
