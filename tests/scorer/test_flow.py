"""Flow distribution: the public scorer's readings, golden G7, a plain second implementation, all statuses."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from estimates import (
    EMPTY,
    MemoryMaterial,
    MemoryWorld,
    exact_flow,
    moving_world,
    scene_s_world,
    write_estimates,
    write_flow,
)
from real_scenes import REAL_RUNS, agree, fixture_scene, memory_scene

from scorer import arrays, scratch
from scorer.estimates import EstimateError
from scorer.metrics.flow import SAMPLE, drawn, flow_distribution, flow_gap, measure, read_step


def test_g7():
    g = np.random.default_rng(6)
    u = (2 * g.normal(size=(30, 40, 2))).astype(np.float32)
    v = (2 * g.normal(size=(30, 40, 2)) + 1).astype(np.float32)
    mask = g.random((30, 40)) > 0.2
    assert mask.sum() == 950
    assert flow_gap(u[mask], v[mask]) == pytest.approx(0.23603003, abs=2e-7)


@pytest.mark.parametrize(
    ("u", "v", "gap"),
    [
        ((3, 0), (0, 0), 0.98538831),
        ((0, 3), (0, 0), 1.0),
        ((0, 3), (0, -3), 1.0),
        ((0, 3), (3, 0), 0.70589961),
    ],
)
def test_g7b(u, v, gap):
    reference, submission = (np.tile(np.float32(w), (500, 1)) for w in (u, v))
    assert flow_gap(reference, submission) == pytest.approx(gap, abs=2e-6)


def naive_gap(u: np.ndarray, v: np.ndarray) -> float:
    """The gap again in float64, a direction at a time."""
    u, v = u.astype(float), v.astype(float)
    normals = np.random.default_rng(0).normal(size=(128, 2))
    total = 0.0
    for x, y in normals:
        direction = np.array([x, y]) / np.hypot(x, y)
        at = np.linspace(0, len(u) - 1, 8192)
        a, b = (np.interp(at, np.arange(len(w)), np.sort(w @ direction)) for w in (u, v))
        total += np.mean((a - b) ** 2) / 128
    rms = np.sqrt(np.mean(u**2)) + np.sqrt(np.mean(v**2))
    return min(1.0, np.sqrt(total) / rms)


@pytest.mark.parametrize("count", [1, 2, 950, 8192, 9001])
def test_random_sets_equal_the_plain_formula(count):
    g = np.random.default_rng(count)
    u = (g.normal(size=(count, 2)) * [3, 1]).astype(np.float32)
    v = (u + 0.5 * g.normal(size=(count, 2)) + [0.3, 0]).astype(np.float32)
    assert flow_gap(u, v) == pytest.approx(naive_gap(u, v), abs=1e-6)


def test_of_many_pixels_the_same_are_drawn_on_both_sides_every_time():
    g = np.random.default_rng(8)
    theirs = (3 * g.normal(size=(90, 100, 2))).astype(np.float32)
    ours = (theirs + g.normal(size=theirs.shape)).astype(np.float32)
    given, known = g.random((2, 90, 100)) > 0.1
    reading = read_step(theirs, given, ours, known)
    moves = (np.linalg.norm(theirs, axis=2) > 0.5) | (np.linalg.norm(ours, axis=2) > 0.5)
    assert (reading.evaluated == (given & known & moves)).all()
    count = int(reading.evaluated.sum())
    assert count > SAMPLE
    chosen = np.random.default_rng(0).permutation(count)[:SAMPLE]
    expected = naive_gap(theirs[reading.evaluated][chosen], ours[reading.evaluated][chosen])
    assert reading.gap == pytest.approx(expected, abs=1e-6)
    assert read_step(theirs, given, theirs, known).gap == 0.0
    assert (drawn(np.arange(SAMPLE)) == np.arange(SAMPLE)).all()
    assert len(set(drawn(np.arange(3 * SAMPLE)).tolist())) == SAMPLE


def test_nothing_moves_has_no_gap_and_exploded_flow_is_the_largest():
    assert flow_gap(np.zeros((5, 2), np.float32), np.zeros((5, 2), np.float32)) is None
    huge = np.full((5, 2), 3e38, np.float32)
    assert flow_gap(np.ones((5, 2), np.float32), huge) == 1.0


def field(*vectors) -> np.ndarray:
    return np.float32(vectors).reshape(1, -1, 2)


def flags(*values) -> np.ndarray:
    return np.array(values, bool).reshape(1, -1)


MOVES, RESTS = (2, 0), (0.5, 0)  # exactly half a pixel does not move


@pytest.mark.parametrize(
    ("theirs", "given", "ours", "known", "status", "compared"),
    [
        ((MOVES, RESTS), (1, 1), (RESTS, RESTS), (1, 1), "ok", (1, 0)),
        ((RESTS, RESTS), (1, 1), (RESTS, MOVES), (1, 1), "ok", (0, 1)),
        ((MOVES, MOVES), (0, 0), (MOVES, MOVES), (1, 1), "no_reference_coverage", (0, 0)),
        ((MOVES, RESTS), (1, 1), (MOVES, RESTS), (0, 0), "no_prediction_coverage", (0, 0)),
        ((RESTS, RESTS), (1, 0), (MOVES, MOVES), (0, 1), "no_prediction_coverage", (0, 0)),
        ((MOVES, RESTS), (1, 1), (RESTS, RESTS), (0, 1), "no_prediction_coverage", (0, 0)),
        ((RESTS, RESTS), (1, 1), (RESTS, RESTS), (1, 1), "stationary", (0, 0)),
        ((RESTS, MOVES), (1, 0), (RESTS, MOVES), (1, 0), "stationary", (0, 0)),
    ],
)
def test_status(theirs, given, ours, known, status, compared):
    reading = read_step(field(*theirs), flags(*given), field(*ours), flags(*known))
    assert reading.status == status
    assert (reading.evaluated == flags(*compared)).all()
    assert (reading.gap is None) == (status != "ok")


def test_formula():
    assert flow_distribution([0.2, 0.4], 0) == pytest.approx(0.7)
    assert flow_distribution([0.2], 3) == pytest.approx(1 - 3.2 / 4)
    assert flow_distribution([], 2) == 0.0
    assert flow_distribution([], 0) is None


@pytest.mark.parametrize("run", REAL_RUNS)
def test_fixture_worlds_read_as_in_the_public_scorer(fixture_worlds, run):
    expected = json.loads((fixture_worlds / "expected_detail.json").read_text(encoding="utf-8"))[run]
    found = measure(fixture_scene(fixture_worlds, run))
    agree(dict(found.detail), expected, ("flow",))
    check_arrays(found)


def check_arrays(found) -> None:
    """The stored fields fit the detail."""
    stored, detail = found.arrays["flow"], found.detail
    steps = detail["flow_frames"]
    assert stored["flow"].dtype == np.float16
    assert stored["flow"].shape[0] == steps
    assert stored["valid"].dtype == stored["evaluated"].dtype == np.bool_
    assert stored["valid"].shape == stored["evaluated"].shape == stored["flow"].shape[:3]
    assert stored["evaluated"].mean() == pytest.approx(detail["flow_evaluated_fraction"])
    assert (stored["flow"][~stored["valid"]] == 0).all()
    assert not (stored["evaluated"] & ~stored["valid"]).any()
    assert stored["stride"].dtype == np.int64
    assert int(stored["stride"]) == detail["flow_stride"]
    ok = detail["flow_frame_status"].count("ok")
    assert ("distribution" in stored) == (ok > 0)
    if ok:
        assert stored["distribution"].shape == (ok,)
        missed = detail["flow_distribution_frames"] - ok
        score = 1 - (stored["distribution"].sum(dtype=float) + missed) / (ok + missed)
        assert score == pytest.approx(detail["flow_distribution_score"], abs=1e-6)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("world", [moving_world(5), scene_s_world(5)], ids=["cube", "s"])
def test_a_perfect_reconstruction_scores_one(tmp_path, stride, world):
    write_estimates(tmp_path, world, stride, count=30)
    found = measure(memory_scene(world, tmp_path))
    assert found.detail["flow_distribution_score"] > 0.9995  # what float16 flow loses
    assert set(found.detail["flow_frame_status"]) == {"ok"}
    assert found.detail["flow_frames"] == (4 if stride == 1 else 2)
    check_arrays(found)


def test_scores_fall_with_the_speed_s_error_and_still_worlds_score_little(tmp_path):
    write_flow(tmp_path, *exact_flow(moving_world(5)))
    scores = []
    for factor in (1.0, 1.3, 2.0, 4.0):
        world = moving_world(5, shift=lambda t, factor=factor: (0.12 * factor * t, 0.03 * factor * t, 0))
        scores.append(measure(memory_scene(world, tmp_path)).detail["flow_distribution_score"])
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.6
    still = moving_world(5, shift=lambda t: (0, 0, 0))
    assert measure(memory_scene(still, tmp_path)).detail["flow_distribution_score"] < 0.1


def test_nothing_shown_counts_every_moving_step_as_missed(tmp_path):
    write_flow(tmp_path, *exact_flow(moving_world(4)))
    found = measure(memory_scene(MemoryWorld({1: [EMPTY] * 4}), tmp_path))
    assert found.detail["flow_distribution_score"] == 0.0
    assert found.detail["flow_frame_status"] == ["no_prediction_coverage"] * 3
    assert found.detail["flow_evaluated_fraction"] == 0.0
    check_arrays(found)


def test_a_reference_at_rest_is_uncomputable(tmp_path):
    still = moving_world(4, shift=lambda t: (0, 0, 0))
    write_flow(tmp_path, *exact_flow(still))
    found = measure(memory_scene(still, tmp_path))
    assert found.detail["flow_distribution_score"] is None
    assert found.detail["flow_distribution_frames"] == 0
    assert set(found.detail["flow_frame_status"]) == {"stationary"}
    assert found.causes == {"flow_distribution": "reference_empty"}
    check_arrays(found)


def test_no_file_is_uncomputable(tmp_path):
    found = measure(memory_scene(moving_world(3), tmp_path / "estimates"))
    assert found.detail == {}
    assert found.arrays == {}
    assert found.vouched == frozenset()
    assert found.causes == {"flow_distribution": "reference_empty"}


@pytest.mark.parametrize(("flow", "valid"), [((3, 48, 63, 2), (3, 48, 63)), ((3, 48, 64, 2), (2, 48, 64)),
                                             ((3, 48, 64, 3), (3, 48, 64))])  # fmt: skip
def test_another_shape_is_the_operators_fault(tmp_path, flow, valid):
    path = write_flow(tmp_path, np.zeros(flow), np.ones(valid))
    with pytest.raises(EstimateError) as caught:
        measure(memory_scene(moving_world(4), tmp_path))
    expected = f"Flow arrays must match the submission resolution (48, 64): flow={flow}, valid={valid}"
    assert str(caught.value) == f"{path}: {expected}"


@pytest.mark.parametrize(("frames", "stored", "stride"), [(4, 3, 9), (4, 0, 1), (4, 3, 4), (7, 6, 2)])
def test_a_timeline_that_is_not_the_video_s_is_the_operators_fault(tmp_path, frames, stored, stride):
    path = write_flow(tmp_path, np.zeros((stored, 48, 64, 2)), np.ones((stored, 48, 64)), stride)
    with pytest.raises(EstimateError, match=f"stride {stride} of {frames} frames") as caught:
        measure(memory_scene(moving_world(frames), tmp_path))
    assert str(path) in str(caught.value)


def test_a_video_of_a_single_frame_is_an_error(tmp_path):
    write_flow(tmp_path, np.zeros((1, 48, 64, 2)), np.ones((1, 48, 64)))
    with pytest.raises(ValueError, match="two sampled frames") as caught:
        measure(memory_scene(moving_world(1), tmp_path))
    assert not isinstance(caught.value, EstimateError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_only_valid_flow_must_be_finite(tmp_path, value):
    world = moving_world(3)
    flow, valid = exact_flow(world)
    whole = measure_with(tmp_path, world, flow, valid)
    row, column = (int(axis[0]) for axis in np.nonzero(np.linalg.norm(flow[1], axis=-1) > 1))
    valid[1, row : row + 4, column] = False
    without = measure_with(tmp_path, world, flow, valid)
    flow[1, row : row + 4, column, 1] = value
    assert measure_with(tmp_path, world, flow, valid) == without
    assert without != whole
    valid[1, row + 1, column] = True
    with pytest.raises(
        EstimateError, match=rf"flow\.h5: dataset 'flow'\[1\] must be finite.*\({row + 1}, {column}\)"
    ):
        measure_with(tmp_path, world, flow, valid)


def measure_with(tmp_path, world, flow, valid):
    write_flow(tmp_path, flow, valid)
    return measure(memory_scene(world, tmp_path)).detail


def test_one_step_too_many_is_a_frame_counted_otherwise(tmp_path):
    world = moving_world(4)
    flow, valid = (np.concatenate([part, part[:1]]) for part in exact_flow(world))
    assert measure_with(tmp_path, world, flow, valid)["flow_frames"] == 3


def test_fewer_stored_steps_than_frames_cut_the_timeline(tmp_path):
    world = moving_world(5)
    flow, valid = exact_flow(world)
    write_flow(tmp_path, flow[:2], valid[:2])
    assert measure(memory_scene(world, tmp_path)).detail["flow_frames"] == 2


def test_flow_beyond_float16_is_stored_as_its_largest(tmp_path):
    world = moving_world(2, shift=lambda t: (2e4 * t, 0, 0))
    write_flow(tmp_path, np.ones((1, 48, 64, 2)), np.ones((1, 48, 64)))
    found = measure(memory_scene(world, tmp_path))
    assert found.arrays["flow"]["flow"].max() == np.finfo(np.float16).max
    assert found.detail["flow_distribution_score"] == pytest.approx(0, abs=0.2)


def test_large_fields_go_to_a_mapped_file_and_are_staged_from_there(tmp_path, monkeypatch):
    world = moving_world(4)
    write_flow(tmp_path, *exact_flow(world))
    held = measure(memory_scene(world, tmp_path))
    monkeypatch.setattr(scratch, "SPILL_BYTES", 0)
    mapped = measure(memory_scene(world, tmp_path))
    assert isinstance(mapped.arrays["flow"]["flow"], np.memmap)
    assert mapped.detail == held.detail
    out = tmp_path / "results"
    out.mkdir()
    staged = arrays.stage(out, "flow", mapped.arrays)
    with h5py.File(out / staged["flow.h5"]) as file:
        for name, array in held.arrays["flow"].items():
            assert (file[name][()] == array).all()
        assert file["flow"].chunks == (1, 48, 64, 2)
        assert file["valid"].dtype == np.bool_


def test_a_disk_too_small_for_the_fields_is_no_fault_of_the_submission(tmp_path, monkeypatch):
    from scorer.child import is_infrastructure

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_flow(tmp_path, *exact_flow(moving_world(3)))
    monkeypatch.setattr(scratch, "SPILL_BYTES", 0)
    monkeypatch.setattr(scratch.os, "posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        measure(memory_scene(moving_world(3), tmp_path))
    assert is_infrastructure(caught.value)


def test_two_runs_give_the_same_bits(tmp_path):
    world = scene_s_world(3)
    write_flow(tmp_path, *exact_flow(world))
    world.materials = tuple(MemoryMaterial(m.ids, m.pos * np.float32(1.001)) for m in world.materials)
    first, second = (measure(memory_scene(world, tmp_path)) for _ in range(2))
    assert first.detail == second.detail
    for name in first.arrays["flow"]:
        assert first.arrays["flow"][name].tobytes() == second.arrays["flow"][name].tobytes()
