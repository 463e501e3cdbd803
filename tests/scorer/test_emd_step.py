"""EMD step against its formula, written out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scorer.geometry.distances import semd
from scorer.metrics.dynamics import emd_step_score, measure, steps


def cloud(
    count: int, frames: int, seed: int, drift: tuple[float, float, float] = (0.1, 0.0, 0.0)
) -> np.ndarray:
    g = np.random.default_rng(seed)
    start = g.normal(size=(count, 1, 3))
    steps = np.array(drift) + 0.03 * g.normal(size=(count, frames, 3))
    return (start + np.cumsum(steps, axis=1)).astype(np.float32)


def fake(ours: np.ndarray, theirs: np.ndarray) -> Any:
    return SimpleNamespace(
        reference=object(),
        registration=SimpleNamespace(detail=dict),
        paths=SimpleNamespace(reference=ours, submission=theirs),
    )


def naive(ours: np.ndarray, theirs: np.ndarray) -> tuple[float | None, list[float]]:
    distances, magnitudes, curve = [], [], []
    for t in range(ours.shape[1] - 1):
        u, v = (np.diff(paths[:, t : t + 2], axis=1)[:, 0] for paths in (ours, theirs))
        u, v = (moved[np.isfinite(moved).all(axis=1)].astype(np.float64) for moved in (u, v))
        if len(u) < 8:
            continue
        magnitude = sum(np.sqrt((moved**2).mean()) for moved in (u, v) if len(moved))
        distance = semd(u, v) if len(v) >= 8 else magnitude
        distances.append(distance)
        magnitudes.append(magnitude)
        curve.append(min(1.0, distance / (magnitude + 1e-9)) if len(v) >= 8 else 1.0)
    total = sum(magnitudes)
    return (max(0.0, 1.0 - sum(distances) / total) if total else None), curve


def score(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    found: float | None = measure(fake(ours, theirs)).detail["emd_step_score"]
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 0.85])
def test_agrees_with_the_formula(share: float) -> None:
    """With most of 40 paths out of view, some steps have fewer than eight on one side."""
    ours, theirs = cloud(40, 8, 0), cloud(35, 8, 1, (0.0, 0.1, 0.0))
    for paths in (ours, theirs):
        paths[np.random.default_rng(len(paths)).random(paths.shape[:2]) < np.sqrt(share) - 0.15 * share] = (
            np.nan
        )
    expected, curve = naive(ours, theirs)
    found = measure(fake(ours, theirs))
    assert found.detail["emd_step_score"] == (None if expected is None else pytest.approx(expected, abs=1e-6))
    np.testing.assert_allclose(found.arrays["dynamics"]["emd_step"], curve, atol=1e-6)
    assert found.arrays["dynamics"]["emd_step"].dtype == np.float32


def test_calibration() -> None:
    still = np.broadcast_to(np.random.default_rng(0).normal(size=(200, 1, 3)), (200, 6, 3)).astype(np.float32)
    along = still + 0.1 * np.arange(6, dtype=np.float32)[None, :, None] * np.float32([1, 0, 0])
    across = still + 0.1 * np.arange(6, dtype=np.float32)[None, :, None] * np.float32([0, 1, 0])
    twice = still + 0.2 * np.arange(6, dtype=np.float32)[None, :, None] * np.float32([1, 0, 0])
    back = still - 0.1 * np.arange(6, dtype=np.float32)[None, :, None] * np.float32([1, 0, 0])
    assert score(along, along[::-1]) == pytest.approx(1.0, abs=1e-6)
    assert score(along, back) == pytest.approx(0.0, abs=0.05)
    assert 0.6 < score(along, twice) < 0.7
    assert 0.2 < score(along, across) < 0.35
    assert score(along, still) == pytest.approx(0.0, abs=0.05)


def test_nothing_moves_on_either_side() -> None:
    still = np.broadcast_to(np.random.default_rng(0).normal(size=(20, 1, 3)), (20, 6, 3)).astype(np.float32)
    found = measure(fake(still, still))
    assert found.detail["emd_step_score"] is None
    assert found.detail["dynamics_paths"] == [20, 20]
    np.testing.assert_array_equal(found.arrays["dynamics"]["emd_step"], np.zeros(5, np.float32))


def test_a_submission_without_paths_gives_no_score_and_no_counts() -> None:
    found = measure(fake(cloud(20, 5, 0), np.zeros((0, 5, 3), np.float32)))
    assert found.detail == {"alignment": {}, "emd_step_score": None}
    assert found.arrays == {"dynamics": {}}
    assert found.vouched is None
    assert found.causes == {}


def test_a_reference_without_paths_gives_no_score() -> None:
    scene = fake(cloud(20, 5, 0), cloud(20, 5, 0))
    scene.paths = None
    assert measure(scene).detail == {"alignment": {}, "emd_step_score": None}


def test_fields_beside_the_score() -> None:
    detail = measure(fake(cloud(20, 5, 0), cloud(20, 5, 1))).detail
    assert detail["dynamics_paths"] == [20, 20]
    assert detail["dynamics_frames"] == 5
    assert detail["dynamics_seconds"] == round(detail["dynamics_seconds"], 2) >= 0.0


@pytest.mark.parametrize(("frames", "count"), [(1, 20), (5, 7)])
def test_one_frame_and_too_few_paths_count_no_step(frames: int, count: int) -> None:
    found = measure(fake(cloud(count, frames, 0), cloud(count, frames, 1)))
    assert found.detail["emd_step_score"] is None
    assert found.arrays["dynamics"]["emd_step"].shape == (0,)


def test_a_step_that_the_submission_cannot_answer_counts_in_full() -> None:
    ours, theirs = cloud(20, 3, 0), cloud(20, 3, 0)
    theirs[:15, 2] = np.nan
    first, second = steps(ours, theirs)
    assert first.share == pytest.approx(0.0, abs=1e-6)
    assert not second.answered
    assert second.share == 1.0
    assert second.distance == second.magnitude
    expected = 1.0 - second.magnitude / (first.magnitude + second.magnitude)
    assert emd_step_score([first, second]) == pytest.approx(expected, abs=1e-6)


def test_threads_change_no_bit() -> None:
    ours, theirs = cloud(100, 9, 0), cloud(100, 9, 1)
    assert steps(ours, theirs, threads=1) == steps(ours, theirs, threads=2)


def test_more_noise_scores_less() -> None:
    ours = cloud(300, 6, 0)
    noise = np.random.default_rng(9).normal(size=ours.shape).astype(np.float32)
    scores = [score(ours, ours + np.float32(s) * noise) for s in (0.0, 0.02, 0.1, 0.5)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0, abs=1e-6)
