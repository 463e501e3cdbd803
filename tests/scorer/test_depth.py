"""Depth error: the public scorer's readings, golden G5, a plain second implementation, and its failures."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
from estimates import EMPTY, MemoryWorld, exact_disparity, moving_world, write_depth, write_estimates
from real_scenes import REAL_RUNS, agree, fixture_scene, memory_scene
from scipy.ndimage import map_coordinates

from scorer import scratch
from scorer.estimates import EstimateError
from scorer.geometry.raster import rasterize
from scorer.metrics.depth import downsample, frame_reading, measure, median, normalise, trimmed_mean, upsample


def frame_g5():
    g = np.random.default_rng(5)
    reference = g.random((40, 60)).astype(np.float32)
    depth = (1 + 3 * g.random((40, 60))).astype(np.float32)
    return reference, depth, g.random((40, 60)) > 0.3


def test_g5():
    reference, depth, covered = frame_g5()
    reading = frame_reading(reference, depth, covered)
    assert reading.error == pytest.approx(1.2725518, abs=2e-7)
    assert reading.median == pytest.approx(0.49788243, abs=1e-8)
    assert reading.deviation == pytest.approx(0.24905397, abs=1e-8)
    assert (reading.normalised[~covered] == 0).all()


def test_g5_nothing_covered():
    reference, depth, covered = frame_g5()
    reading = frame_reading(reference, depth, covered & False)
    assert reading.error == 1.0
    assert reading.covered == 0.0
    assert reading.median == pytest.approx(0.49178833, abs=1e-8)
    assert reading.deviation == pytest.approx(0.24852782, abs=1e-8)
    assert not reading.normalised.any()


def test_g5b():
    large = upsample(np.arange(12, dtype=np.float32).reshape(3, 4), 5, 7)
    assert large[0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert large[:, 0].tolist() == [0, 2, 4, 6, 8]
    small = downsample(large, (3, 4))
    assert small[0] == pytest.approx([1.0142858, 1.8714287, 2.7285714, 3.5857143], abs=5e-7)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 4, 5, 7), (2, 9, 31, 9), (1, 5, 4, 50), (7, 6, 1, 1)])
def test_enlarging_equals_sampling_at_the_stretched_positions(shape):
    h, w, height, width = shape
    grid = np.random.default_rng(h).normal(size=(h, w)).astype(np.float32)
    y = np.arange(height) * ((h - 1) / (height - 1) if height > 1 else 0)
    x = np.arange(width) * ((w - 1) / (width - 1) if width > 1 else 0)
    at = np.meshgrid(y, x, indexing="ij")
    expected = map_coordinates(grid.astype(float), at, order=1, mode="nearest")
    assert np.abs(upsample(grid, height, width) - expected).max() < 1e-5
    assert (upsample(grid, h, w) == grid).all()


def naive_frame(reference, depth) -> float:
    """One frame's error with sorted lists."""

    def scaled(values):
        values = sorted(values)
        n = len(values)
        median = (values[(n - 1) // 2] + values[n // 2]) / 2
        return median, max(sum(abs(v - median) for v in values) / n, 1e-8)

    pairs = [(a, 1 / d) for a, d in zip(reference.ravel(), depth.ravel(), strict=True) if 0 < d < np.inf]
    if not pairs:
        return 1.0
    (m, s), (n, t) = scaled([float(a) for a, _ in pairs]), scaled([float(b) for _, b in pairs])
    rest = sorted(abs((float(a) - m) / s - (float(b) - n) / t) for a, b in pairs)
    rest = rest[: len(rest) - int(0.01 * len(rest))]
    share = len(pairs) / depth.size
    return share * sum(rest) / len(rest) + 1 - share


@pytest.mark.parametrize("wall", [True, False])
def test_random_estimates_equal_the_plain_formula(tmp_path, wall):
    world = moving_world(4, wall=wall)
    maps = np.random.default_rng(1).random((4, 14, 28)).astype(np.float16)
    write_depth(tmp_path, maps, world.shape, fps=30.0)
    found = measure(memory_scene(world, tmp_path))
    expected = []
    for frame in range(4):
        at = np.meshgrid(np.linspace(0, 13, 48), np.linspace(0, 27, 64), indexing="ij")
        reference = map_coordinates(maps[frame].astype(float), at, order=1, mode="nearest")
        verts, faces, _ = world.soup(frame)
        depth = rasterize(verts, faces, world.intrinsics, world.extrinsic, 48, 64)[0]
        expected.append(naive_frame(reference, depth))
    detail = found.detail
    assert detail["depth_error"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert detail["depth_per_frame"] == pytest.approx(expected, abs=2e-6)
    assert (detail["depth_frames"], detail["depth_stride"], detail["fps"]) == (4, 1, 30.0)
    assert detail["depth_resolution"] == [48, 64]
    assert (detail["depth_valid_fraction"] == [1.0] * 4) == wall
    arrays = found.arrays["raster_depth"]
    assert arrays["disparity"].shape == arrays["valid"].shape == (4, 14, 28)
    assert arrays["disparity"].dtype == np.float16
    assert arrays["valid"].dtype == np.bool_
    assert arrays["valid"].all() == wall
    assert arrays["median"].dtype == arrays["deviation"].dtype == np.float32
    assert arrays["median"].shape == arrays["deviation"].shape == (4,)
    assert found.vouched is None


@pytest.mark.parametrize("run", REAL_RUNS)
def test_fixture_worlds_read_as_in_the_public_scorer(fixture_worlds, run):
    expected = json.loads((fixture_worlds / "expected_detail.json").read_text(encoding="utf-8"))[run]
    detail = measure(fixture_scene(fixture_worlds, run)).detail
    agree(dict(detail), expected, ("depth_", "fps"))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_perfect_reconstruction_has_no_error(tmp_path, stride):
    world = moving_world(5)
    write_estimates(tmp_path, world, stride, count=30)
    found = measure(memory_scene(world, tmp_path)).detail
    assert found["depth_error"] < 2e-3  # what float16 disparity loses
    assert found["depth_frames"] == (5 if stride == 1 else 3)


def test_scale_and_shift_of_the_estimate_do_not_matter_and_noise_does(tmp_path):
    world = moving_world(3)
    exact, rng = exact_disparity(world), np.random.default_rng(0)
    errors = []
    for level in (0.0, 0.02, 0.1, 0.5):
        noisy = exact + level * exact.std() * rng.normal(size=exact.shape)
        write_depth(tmp_path, 7 * noisy + 3, world.shape)
        errors.append(measure(memory_scene(world, tmp_path)).detail["depth_error"])
    assert errors == sorted(errors)
    assert errors[0] < 5e-3
    assert errors[-1] > 0.1


def test_the_wrong_way_round_costs_up_to_two(tmp_path):
    world = moving_world(2)
    write_depth(tmp_path, -exact_disparity(world), world.shape)
    assert 1 < measure(memory_scene(world, tmp_path)).detail["depth_error"] <= 2


def test_uncovered_frames_cost_one(tmp_path):
    world = MemoryWorld({1: [EMPTY] * 3})
    write_depth(tmp_path, np.ones((3, 4, 4)), world.shape)
    found = measure(memory_scene(world, tmp_path))
    assert found.detail["depth_error"] == 1.0
    assert not found.arrays["raster_depth"]["valid"].any()
    assert found.arrays["raster_depth"]["deviation"].tolist() == [np.float32(1e-8)] * 3


def test_a_flat_frame_does_not_divide_by_zero():
    flat = np.full((6, 8), 2, np.float32)
    reading = frame_reading(flat, flat, flat > 0)
    assert reading.error == 0.0
    assert normalise(flat.ravel())[2] == 1e-8


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101, 1000])
def test_median_equals_numpy_s(count):
    values = np.random.default_rng(count).normal(size=count).astype(np.float32)
    values[::3] = values[0]  # ties
    assert median(values) == np.median(values)
    assert median(values).dtype == np.float32


def test_the_largest_hundredth_is_left_out():
    values = np.arange(250, dtype=np.float32)[::-1]
    assert trimmed_mean(values) == np.arange(248).mean()
    assert trimmed_mean(values[:99]) == values[:99].mean()


def test_fewer_stored_maps_than_frames_cut_the_timeline(tmp_path):
    world = moving_world(5)
    write_depth(tmp_path, exact_disparity(world)[:2], world.shape)
    assert measure(memory_scene(world, tmp_path)).detail["depth_frames"] == 2


@pytest.mark.parametrize(("stored", "stride"), [(0, 1), (7, 2), (8, 1)])
def test_a_timeline_that_is_not_the_video_s_is_the_operators_fault(tmp_path, stored, stride):
    world = moving_world(6)
    path = write_depth(tmp_path, np.ones((stored, 4, 4)), world.shape, stride)
    with pytest.raises(EstimateError, match="'disparity'") as caught:
        measure(memory_scene(world, tmp_path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_disparity_must_be_finite(tmp_path, value):
    world = moving_world(3)
    maps = np.ones((3, 4, 5))
    maps[2, 1, 3] = value
    write_depth(tmp_path, maps, world.shape)
    with pytest.raises(
        EstimateError, match=r"depth\.h5: dataset 'disparity'\[2\] must be finite; at \(1, 3\)"
    ):
        measure(memory_scene(world, tmp_path))


def test_a_case_that_nobody_has_prepared_costs_the_submission_nothing(tmp_path):
    measurement = measure(memory_scene(moving_world(2), tmp_path))
    assert measurement.vouched == frozenset()
    assert measurement.detail == {}
    assert measurement.causes == {"depth_error": "reference_empty"}


def test_another_shape_is_the_operators_fault(tmp_path):
    path = write_depth(tmp_path, np.ones((2, 4, 4)), (2, 48, 65))
    with pytest.raises(EstimateError) as caught:
        measure(memory_scene(moving_world(2), tmp_path))
    assert str(caught.value) == f"{path}: cached depth of 2 frames at (48, 65) does not match (2, 48, 64)"


def test_large_results_go_to_a_mapped_file(tmp_path, monkeypatch):
    world = moving_world(3)
    write_depth(tmp_path, np.random.default_rng(2).random((3, 14, 28)), world.shape)
    held = measure(memory_scene(world, tmp_path)).arrays["raster_depth"]
    monkeypatch.setattr(scratch, "SPILL_BYTES", 0)
    mapped = measure(memory_scene(world, tmp_path)).arrays["raster_depth"]
    assert isinstance(mapped["disparity"], np.memmap)
    for name in held:
        assert held[name].tobytes() == mapped[name].tobytes()


def test_area_means_are_opencv_s():
    image = np.random.default_rng(3).random((48, 64)).astype(np.float32)
    assert (downsample(image, (12, 16)) == cv2.resize(image, (16, 12), interpolation=cv2.INTER_AREA)).all()
    blocks = image.reshape(12, 4, 16, 4).mean(axis=(1, 3))
    assert np.abs(downsample(image, (12, 16)) - blocks).max() < 1e-6
