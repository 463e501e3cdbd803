"""Track 2D DTW: the public scorer's readings, golden G9, a plain second implementation, gates and states."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from estimates import (
    EMPTY,
    MemoryWorld,
    exact_tracks,
    moving_world,
    scene_s_world,
    write_estimates,
    write_tracks,
)
from real_scenes import REAL_RUNS, agree, fixture_scene, memory_scene

from scorer.analytic.tracks import track_points
from scorer.estimates import EstimateError, TrackEstimate, track_estimate
from scorer.metrics.track2d import (
    CAP,
    MOTION,
    Paths,
    deviation,
    displacement,
    drift,
    measure,
    read_gates,
    texture_gate,
    track_error,
    travel,
)
from world.video import frames, write_video


def tracks_g9() -> tuple[TrackEstimate, np.random.Generator]:
    g = np.random.default_rng(7)
    start = g.uniform([0, 0], [320, 240], (40, 2))
    tracks = (start[:, None] + 4 * np.cumsum(g.normal(size=(40, 15, 2)), 1)).astype(np.float32)
    visible = g.random((40, 15)) > 0.2
    tracks[3, :4], visible[3, :4] = np.nan, False
    background = g.random(40) > 0.4
    queries = np.column_stack([np.zeros(40), start]).astype(np.float32)
    return TrackEstimate(tracks, visible, queries, ~background, 1), g


def test_g9():
    estimate, g = tracks_g9()
    assert travel(estimate).sum(dtype=float) == pytest.approx(946.46588, abs=2e-4)
    assert drift(estimate)[0] == pytest.approx((-0.2138443, -0.62970734), abs=2e-6)
    answer = (estimate.tracks + 3 * g.normal(size=(40, 15, 2))).astype(np.float32)
    answered = estimate.visible & (g.random((40, 15)) > 0.3)
    answered[5] = False
    cost = Paths.of(estimate, answer, answered, np.ones(40, bool), 400.0).cost()
    assert cost[:3] == pytest.approx([0.01130772, 0.00761544, 0.01503521], abs=1e-8)
    assert cost.mean(dtype=float) == pytest.approx(0.010478104, abs=1e-8)
    assert cost[5] == np.float32(CAP)
    assert 1 - track_error(cost) == pytest.approx(0.65072989, abs=3e-7)


def naive_dtw(x: list, y: list) -> float:
    """Mean distance along the cheapest warp; ties go left, up, then across."""
    if not x or not y:
        return math.inf
    table: dict[tuple[int, int], tuple[float, int]] = {}
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            before = [table[c] for c in ((i, j - 1), (i - 1, j), (i - 1, j - 1)) if c in table]
            best = min(before, key=lambda entry: entry[0]) if before else (0.0, 0)
            table[i, j] = (math.dist(a, b) + best[0], best[1] + 1)
    total, steps = table[len(x) - 1, len(y) - 1]
    return total / steps


def naive_score(estimate: TrackEstimate, answer, answered, size: tuple[int, int], trackable=None) -> float:
    """The whole formula again with lists."""
    diagonal = math.hypot(*size)
    count, length = estimate.visible.shape
    background = [q for q in range(count) if not estimate.on_mask[q]] or list(range(count))
    moved = [
        [[0.0 if math.isnan(v) else v for v in map(float, estimate.tracks[q, t])] for t in range(length)]
        for q in range(count)
    ]
    for q in range(count):
        for t in range(length):
            moved[q][t] = [v - float(o) for v, o in zip(moved[q][t], estimate.queries[q, 1:], strict=True)]
    costs = []
    drifts = []
    for t in range(length):
        seen = [moved[q][t] for q in background if estimate.visible[q, t]]
        drifts.append([statistics.median(c) for c in zip(*seen, strict=True)] if seen else [0.0, 0.0])
    for q in range(count):
        far = max(
            (math.dist(moved[q][t], drifts[t]) for t in range(length) if estimate.visible[q, t]), default=0
        )
        if far <= 0.02 * diagonal or (trackable is not None and not trackable[q]):
            continue
        x = [estimate.tracks[q, t] / diagonal for t in range(length) if estimate.visible[q, t]]
        y = [answer[q, t] / diagonal for t in range(length) if estimate.visible[q, t] and answered[q, t]]
        costs.append(min(naive_dtw(x, y), 0.03))
    return max(0.0, 1 - sum(costs) / len(costs) / 0.03)


@pytest.mark.parametrize("seed", range(3))
def test_random_estimates_equal_the_plain_formula(tmp_path, seed):
    world = moving_world(6)
    rng = np.random.default_rng(seed)
    exact = exact_tracks(world, count=40)
    lost = rng.random(exact["visible"].shape) < 0.2
    exact["tracks"] = exact["tracks"] + rng.normal(size=exact["tracks"].shape) * 0.8 + 0.4
    exact["tracks"][lost] = np.nan
    exact["visible"] &= ~lost
    exact["on_mask"] = rng.random(len(lost)) < 0.4
    write_tracks(tmp_path, **exact)
    found = measure(memory_scene(world, tmp_path))
    estimate = track_estimate(tmp_path)
    answer, answered = track_points(world, estimate.queries)
    expected = naive_score(estimate, answer, answered, (48, 64))
    assert 0 < found.detail["track2d_moving"] < len(lost)
    assert found.detail["track2d_dtw_score"] == pytest.approx(expected, abs=1e-6)
    check_arrays(found, estimate)


def check_arrays(found, estimate: TrackEstimate) -> None:
    """The stored paths fit the detail, and the score can be worked out from them alone."""
    stored, detail = found.arrays["track2d"], found.detail
    count = detail["track2d_moving"]
    assert stored["moving"].shape == (len(estimate.tracks),)
    assert stored["moving"].sum() == count
    assert stored["gt"].dtype == stored["pred"].dtype == stored["cost_dtw"].dtype == np.float32
    assert stored["gt"].shape == stored["pred"].shape == (count, detail["track2d_frames"], 2)
    assert stored["on_mask"].shape == stored["cost_dtw"].shape == (count,)
    assert not (np.isnan(stored["gt"]) & ~np.isnan(stored["pred"])).any()
    assert stored["cost_dtw"].max() <= np.float32(CAP)
    assert stored["cost_dtw"].mean() / 0.03 == pytest.approx(detail["track2d_dtw_error"], abs=1e-6)
    assert detail["track2d_dtw_score"] == max(0.0, 1 - detail["track2d_dtw_error"])
    assert (float(stored["cap"]), float(stored["motion"])) == pytest.approx((0.03, 0.02))
    assert ("trackable" in stored) == ("texture" in stored) == (detail["track2d_trackable"] is not None)


@pytest.mark.parametrize("run", REAL_RUNS)
def test_fixture_worlds_read_as_in_the_public_scorer(fixture_worlds, run):
    expected = json.loads((fixture_worlds / "expected_detail.json").read_text(encoding="utf-8"))[run]
    scene = fixture_scene(fixture_worlds, run)
    found = measure(scene)
    agree(dict(found.detail), expected, ("track2d",))
    check_arrays(found, track_estimate(scene.estimates_path))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("world", [moving_world(7), scene_s_world(7)], ids=["cube", "s"])
def test_a_perfect_reconstruction_scores_one(tmp_path, stride, world):
    write_estimates(tmp_path, world, stride, count=60)
    found = measure(memory_scene(world, tmp_path)).detail
    assert found["track2d_moving"] > 0
    assert found["track2d_dtw_score"] == 1.0
    assert found["track2d_stride"] == stride


def test_scores_fall_with_delay_and_noise(tmp_path):
    write_tracks(tmp_path, **exact_tracks(moving_world(8), count=200))
    scores = []
    for delay in (0, 1, 2, 4):
        world = moving_world(8, shift=lambda t, d=delay: (0.12 * max(t - d, 0), 0.03 * max(t - d, 0), 0))
        scores.append(measure(memory_scene(world, tmp_path)).detail["track2d_dtw_score"])
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0
    assert scores[-1] < 0.5


def test_no_file_is_uncomputable(tmp_path):
    found = measure(memory_scene(moving_world(3), tmp_path / "estimates"))
    assert found.detail == {}
    assert found.arrays == {}
    assert found.vouched == frozenset()
    assert found.causes == {"track2d_dtw": "submission_empty"}


REDUCED = {"moving", "motion", "stride"}


def test_nothing_moves_in_the_reference(tmp_path):
    still = moving_world(4, shift=lambda t: (0, 0, 0))
    write_tracks(tmp_path, **exact_tracks(still, count=50))
    found = measure(memory_scene(moving_world(4), tmp_path))
    assert found.detail["track2d_moving"] == 0
    assert found.detail["track2d_dtw_error"] is None
    assert "track2d_dtw_score" not in found.detail
    assert "track2d_frames" not in found.detail
    assert found.detail["track2d_extracted"] is True
    assert found.causes == {"track2d_dtw": "reference_empty"}
    assert found.arrays["track2d"].keys() == REDUCED


def test_nothing_answers(tmp_path):
    write_tracks(tmp_path, **exact_tracks(moving_world(4), count=50))
    found = measure(memory_scene(MemoryWorld({1: [EMPTY] * 4}), tmp_path))
    assert found.detail["track2d_moving"] > 0
    assert found.detail["track2d_extracted"] is False
    assert found.detail["track2d_dtw_error"] is None
    assert found.causes == {"track2d_dtw": "submission_empty"}
    assert found.arrays["track2d"].keys() == REDUCED


def test_neither_is_the_reference_s(tmp_path):
    still = moving_world(4, shift=lambda t: (0, 0, 0))
    write_tracks(tmp_path, **exact_tracks(still, count=50))
    found = measure(memory_scene(MemoryWorld({1: [EMPTY] * 4}), tmp_path))
    assert found.causes == {"track2d_dtw": "reference_empty"}


def test_moving_points_without_an_answer_cost_the_cap(tmp_path):
    write_tracks(tmp_path, **exact_tracks(moving_world(6), count=200))
    world = moving_world(6)
    del world.meshes[2]
    world.materials = ()
    found = measure(memory_scene(world, tmp_path))
    assert found.detail["track2d_extracted"] is True
    assert found.detail["track2d_dtw_score"] < 0.2


def test_another_timeline_is_the_operators_fault(tmp_path):
    path = write_tracks(tmp_path, **exact_tracks(moving_world(4), count=50))
    with pytest.raises(EstimateError) as caught:
        measure(memory_scene(moving_world(5), tmp_path))
    expected = "'tracks' holds 4 frames; expected 5, at stride 1 of 5 frames"
    assert str(caught.value) == f"{path}: {expected}"


def test_a_query_whose_pixel_lies_outside_the_image_is_an_error(tmp_path):
    """The prepare stage's grid makes such queries, and the protocol has this for them."""
    exact = exact_tracks(moving_world(3), count=50)
    exact["queries"][1, 1] = 63.5  # rounds to 64
    write_tracks(tmp_path, **exact)
    with pytest.raises(IndexError, match="query 1"):
        measure(memory_scene(moving_world(3), tmp_path))


@pytest.mark.parametrize("query", [(0, 64, 5), (0, -1, 5), (0, 5, 48), (3, 5, 5), (-1, 5, 5), (0.5, 5, 5)])
def test_a_query_outside_the_video_is_the_operators_fault(tmp_path, query):
    exact = exact_tracks(moving_world(3), count=50)
    exact["queries"][1] = query
    write_tracks(tmp_path, **exact)
    with pytest.raises(EstimateError, match=r"tracks\.npz: 'queries'\[1\]"):
        measure(memory_scene(moving_world(3), tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_only_visible_tracks_must_be_finite(tmp_path, value):
    world = moving_world(4)
    exact = exact_tracks(world, count=200)
    exact["visible"][3, 2] = False
    write_tracks(tmp_path, **exact)
    before = measure(memory_scene(world, tmp_path)).detail
    exact["tracks"][3, 2] = value
    write_tracks(tmp_path, **exact)
    assert measure(memory_scene(world, tmp_path)).detail == before
    exact["visible"][3, 2] = True
    write_tracks(tmp_path, **exact)
    with pytest.raises(EstimateError, match=r"tracks\.npz: 'tracks' must be finite.*\(3, 2\)"):
        measure(memory_scene(world, tmp_path))


def test_travel_ignores_hidden_frames_and_the_background_s_drift():
    tracks = np.zeros((4, 3, 2), np.float32)
    tracks[:, 1:] = (5, -2)  # all drift
    tracks[3, 2] += (30, 40)
    visible = np.ones((4, 3), bool)
    queries = np.zeros((4, 3), np.float32)
    estimate = TrackEstimate(tracks, visible, queries, np.array([0, 0, 0, 1], bool), 1)
    assert travel(estimate).tolist() == [0, 0, 0, 50]
    visible[3, 2] = False
    assert travel(estimate).tolist() == [0, 0, 0, 0]
    visible[:3, 1] = False
    assert drift(estimate).tolist() == [[0, 0], [0, 0], [5, -2]]
    visible[0] = False
    assert travel(estimate)[0] == 0


def test_without_background_all_points_tell_the_drift():
    tracks = np.zeros((3, 1, 2), np.float32)
    tracks[:, 0] = [(1, 0), (2, 0), (4, 0)]
    estimate = TrackEstimate(tracks, np.ones((3, 1), bool), np.zeros((3, 3), np.float32), np.ones(3, bool), 1)
    assert drift(estimate).tolist() == [[2, 0]]
    even = TrackEstimate(
        tracks, np.ones((3, 1), bool), np.zeros((3, 3), np.float32), np.array([0, 1, 0], bool), 1
    )
    assert drift(even).tolist() == [[2.5, 0]]


def test_a_lost_point_counts_as_the_origin():
    estimate, _ = tracks_g9()
    assert (displacement(estimate)[3, :4] == -estimate.queries[3, 1:]).all()


def test_exactly_the_threshold_does_not_move():
    tracks = np.zeros((2, 2, 2), np.float32)
    tracks[0, 1, 0], tracks[1, 1, 0] = 8.0, np.nextafter(np.float32(8), np.float32(9))
    queries = np.zeros((2, 3), np.float32)
    estimate = TrackEstimate(tracks, np.array([[1, 1], [1, 1]], bool), queries, np.ones(2, bool), 1)
    # The drift is half way between the two: take it from a third, still point instead.
    still = TrackEstimate(
        np.concatenate([tracks, tracks[:1] * 0]), np.ones((3, 2), bool), np.zeros((3, 3), np.float32),
        np.array([1, 1, 0], bool), 1,
    )  # fmt: skip
    assert read_gates(still, None, 8.0 / MOTION).moving.tolist() == [False, True, False]
    assert not read_gates(estimate, None, 400.0).moving.any()


def naive_deviation(grey: np.ndarray, row: int, column: int) -> float:
    """Window of 11 × 11 with the border mirrored, edge pixels included."""
    height, width = grey.shape

    def mirrored(k: int, n: int) -> int:
        while not 0 <= k < n:
            k = -k - 1 if k < 0 else 2 * n - 1 - k
        return k

    values = [
        float(grey[mirrored(row + i, height), mirrored(column + j, width)])
        for i in range(-5, 6)
        for j in range(-5, 6)
    ]
    return math.sqrt(max(statistics.fmean(v * v for v in values) - statistics.fmean(values) ** 2, 0.0))


def test_deviation_equals_the_plain_window():
    image = np.random.default_rng(2).integers(0, 256, (30, 40, 3), np.uint8)
    grey = np.rint(image @ np.array([0.299, 0.587, 0.114]))
    found = deviation(image)
    for row, column in ((0, 0), (29, 39), (12, 3), (4, 38), (15, 20)):
        assert found[row, column] == pytest.approx(naive_deviation(grey, row, column), abs=0.1)


def texture_video(path: Path) -> Path:
    """Flat on the left, busy on the right."""
    image = np.full((48, 64, 3), 120, np.uint8)
    image[:, 18:] = np.random.default_rng(0).integers(0, 256, (48, 46, 1))
    write_video(path, [image] * 2, 24)
    return path


def test_the_texture_gate_reads_the_first_frame(tmp_path):
    video = texture_video(tmp_path / "reference.mp4")
    exact = exact_tracks(moving_world(6), count=200)
    write_tracks(tmp_path, **exact)
    estimate = track_estimate(tmp_path)
    gate = texture_gate(video, estimate)
    sharp = deviation(next(iter(frames(video))))
    x, y = (np.rint(estimate.queries[:, k]).astype(int) for k in (1, 2))
    assert (gate == (sharp[y, x] > 0.5)).all()
    assert gate[x > 26].all()
    assert not gate[x < 8].any()
    found = measure(memory_scene(moving_world(6), tmp_path, video))
    assert found.detail["track2d_trackable"] == gate.sum()
    assert 0 < found.detail["track2d_moving"] < found.detail["track2d_moving_ungated"]
    answer, answered = track_points(moving_world(6), estimate.queries)
    expected = naive_score(estimate, answer, answered, (48, 64), gate)
    assert found.detail["track2d_dtw_score"] == pytest.approx(expected, abs=1e-6)
    check_arrays(found, estimate)


def test_there_is_no_texture_gate_without_a_usable_frame(tmp_path):
    video = texture_video(tmp_path / "reference.mp4")
    write_tracks(tmp_path, **exact_tracks(moving_world(3), count=50))
    estimate = track_estimate(tmp_path)
    assert texture_gate(video, estimate) is not None
    assert texture_gate(tmp_path / "missing.mp4", estimate) is None
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(video.read_bytes()[:200])
    assert texture_gate(broken, estimate) is None
    shifted = TrackEstimate(
        estimate.tracks, estimate.visible, estimate.queries + np.float32([0, 63, 0]), estimate.on_mask, 1
    )
    assert texture_gate(video, shifted) is None
    fewer = TrackEstimate(estimate.tracks, estimate.visible, estimate.queries[:-1], estimate.on_mask, 1)
    assert texture_gate(video, fewer) is None
    found = measure(memory_scene(moving_world(3), tmp_path, broken))
    assert found.detail["track2d_trackable"] is None
    assert found.detail["track2d_moving"] == found.detail["track2d_moving_ungated"]
