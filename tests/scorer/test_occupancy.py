"""Occupancy DTW: which frames, which distances, which warp."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.geometry.distances import Projected, semd
from scorer.metrics import occupancy
from scorer.metrics.occupancy import distances, frame_list, measure, occupancy_score, warp


def blob(at: float, count: int = 60) -> np.ndarray:
    points = 0.1 * np.random.default_rng(0).normal(size=(count, 3))
    return (points + np.array([at, 0.0, 0.0])).astype(np.float32)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Materials are functions from a frame to its points; what lies beyond x = 5 is out of view."""

    def samples(materials: Any, frame: int, h: float, rng: np.random.Generator) -> Any:
        assert h == 0.1
        assert rng.random() == np.random.default_rng([0, frame]).random()
        return SimpleNamespace(positions=materials(frame))

    monkeypatch.setattr(occupancy, "frame_samples", samples)
    monkeypatch.setattr(occupancy, "visible", lambda points, registration, reference: points[:, 0] < 5.0)
    return SimpleNamespace(
        reference=SimpleNamespace(frames=31),
        registration=SimpleNamespace(detail=dict),
        sampling=SimpleNamespace(
            h=0.1, reference=lambda f: blob(0.01 * f), submission=lambda f: blob(0.01 * f)
        ),
    )


def test_frames() -> None:
    assert frame_list(10) == [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 6, 7, 7, 8, 9]
    assert frame_list(12) == [0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11]
    assert frame_list(1) == [0] * 16
    assert frame_list(16) == list(range(16))
    assert frame_list(300)[-1] == 299


def naive_warp(cross: np.ndarray) -> float:
    """Every path through the table, by recursion."""

    def best(i: int, j: int) -> tuple[float, int]:
        if i < 0 or j < 0:
            return (0.0, 0) if i == j == -1 else (float("inf"), 0)
        total, cells = min(best(i - 1, j), best(i, j - 1), best(i - 1, j - 1))
        return total + float(cross[i, j]), cells + 1

    total, cells = best(len(cross) - 1, cross.shape[1] - 1)
    return total / cells


def test_warp_has_the_golden_values() -> None:
    assert warp([[0.1, 0.2], [0.3, 0.4]]) == pytest.approx(0.25)
    gaps = np.abs(np.subtract.outer([0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 2]))
    assert warp(gaps) == pytest.approx(1 / 6)
    assert warp([[0.3]]) == 0.3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5))
def test_warp_agrees_with_recursion(seed: int, rows: int, columns: int) -> None:
    cross = np.random.default_rng(seed).integers(0, 3, (rows, columns)) / 4.0
    assert warp(cross) == pytest.approx(naive_warp(cross))


def test_distances_are_those_of_the_clouds_capped() -> None:
    clouds = [blob(0.0), blob(0.2, 33), blob(3.0)]
    projected = [*map(Projected, clouds), None]
    found = distances(projected, projected)
    assert found.dtype == np.float32
    for i in range(4):
        for j in range(4):
            expected = 0.5 if 3 in (i, j) else min(semd(clouds[i], clouds[j]), 0.5)
            assert found[i, j] == np.float32(expected)
    np.testing.assert_array_equal(found, distances(projected, projected, threads=1))


def test_the_same_matter_scores_one(scene: Any) -> None:
    found = measure(scene)
    assert found.detail["occupancy_dtw_error"] == 0.0
    assert found.detail["occupancy_dtw_score"] == 1.0
    assert found.detail["occupancy_frames"] == frame_list(31)
    assert found.arrays["occupancy"]["cross"].shape == (16, 16)
    assert found.arrays["occupancy"]["cross"].dtype == np.float32
    assert found.arrays["occupancy"]["frames"].dtype == np.int64


def test_agrees_with_plain_loops(scene: Any) -> None:
    scene.sampling.submission = lambda f: blob(0.2 - 0.01 * f, 40)
    frames = frame_list(31)
    cross = np.array(
        [[min(semd(blob(0.01 * a), blob(0.2 - 0.01 * b, 40)), 0.5) for b in frames] for a in frames],
        np.float32,
    )
    error = warp(cross)
    found = measure(scene)
    np.testing.assert_allclose(found.arrays["occupancy"]["cross"], cross, atol=1e-6)
    assert found.detail["occupancy_dtw_error"] == pytest.approx(error, abs=1e-6)
    assert found.detail["occupancy_dtw_score"] == pytest.approx(1.0 - error / 0.5, abs=1e-6)


def test_frames_without_reference_matter_in_view_are_left_out(scene: Any) -> None:
    scene.sampling.reference = lambda f: blob(0.01 * f if f % 4 else 9.0)
    found = measure(scene)
    assert found.detail["occupancy_frames"] == [f for f in frame_list(31) if f % 4]
    assert found.detail["occupancy_dtw_error"] == 0.0


def test_a_submission_that_is_nowhere_scores_zero(scene: Any) -> None:
    scene.sampling.submission = lambda f: np.zeros((0, 3), np.float32)
    found = measure(scene)
    assert (found.arrays["occupancy"]["cross"] == 0.5).all()
    assert found.detail["occupancy_dtw_error"] == 0.5
    assert found.detail["occupancy_dtw_score"] == 0.0


@pytest.mark.parametrize("how", ["no voxel edge", "never in view"])
def test_a_reference_without_matter_gives_no_score(scene: Any, how: str) -> None:
    if how == "no voxel edge":
        scene.sampling.h = None
    else:
        scene.sampling.reference = lambda f: blob(9.0)
    found = measure(scene)
    assert found.detail["occupancy_dtw_error"] is None
    assert found.detail["occupancy_dtw_score"] is None
    assert found.detail["occupancy_frames"] == []
    assert found.arrays == {"occupancy": {}}


def test_each_frame_is_sampled_once(scene: Any) -> None:
    seen: list[int] = []

    def points(frame: int) -> np.ndarray:
        seen.append(frame)
        return blob(0.0)

    scene.reference.frames = 4
    scene.sampling.reference = points
    assert len(measure(scene).detail["occupancy_frames"]) == 16
    assert seen == [0, 1, 2, 3]


def test_a_delay_costs_more_the_longer_it_is(scene: Any) -> None:
    scene.reference.frames = 8
    scene.sampling.reference = lambda f: blob(0.05 * f)
    errors = []
    for delay in (0, 1, 3, 6):
        scene.sampling.submission = lambda f, delay=delay: blob(0.05 * max(0, f - delay))
        errors.append(measure(scene).detail["occupancy_dtw_error"])
    assert errors == sorted(errors)
    assert errors[0] == 0.0 < errors[1]


def test_the_score_is_never_negative() -> None:
    assert occupancy_score(0.5) == 0.0
    assert occupancy_score(0.5 + 1e-7) == 0.0
    assert occupancy_score(0.125) == 0.75
