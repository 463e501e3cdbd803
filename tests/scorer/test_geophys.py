"""GeoPhys: hand-computed paths, the protocol's golden values, a naive version, what cannot be compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scorer.estimates import EstimateError
from scorer.metrics import geophys
from scorer.metrics.geophys import (
    STATISTICS,
    agreement,
    measure,
    prediction_errors,
    relative_gaps,
    statistics,
)
from scorer.subject import Subject
from world.video import write_video

FRAMES = 10


def naive(path: np.ndarray) -> dict[str, float]:
    """Straight from the definition, point by point, with a projector in place of a basis."""
    z = [row.astype(float) for row in path]
    count = len(z)
    v = [z[t + 1] - z[t] for t in range(count - 1)]
    norms = [math.sqrt(float(x @ x)) for x in v]
    mean = sum(norms) / len(norms)
    angles = [
        math.acos(min(1.0, max(-1.0, float(v[t] @ v[t + 1]) / (norms[t] * norms[t + 1]))))
        for t in range(len(v) - 1)
        if norms[t] * norms[t + 1] > 1e-9
    ]
    turn = sum(angles) / len(angles)
    errors = []
    for t in range(5, count - 1):
        window = np.stack(z[t - 5 : t + 1])
        centre = window.mean(axis=0)
        span = (window - centre).T
        residual = z[t + 1] - centre
        residual = residual - span @ (np.linalg.pinv(span, rcond=1e-10) @ residual)
        errors.append(float(np.linalg.norm(residual)))
    return {
        "speed": math.sqrt(sum((x - mean) ** 2 for x in norms) / len(norms)),
        "curv": turn,
        "ang": math.sqrt(sum((x - turn) ** 2 for x in angles) / len(angles)),
        "accel": sum(float((v[t + 1] - v[t]) @ (v[t + 1] - v[t])) for t in range(len(v) - 1)) / (len(v) - 1),
        "perr": sum(errors) / len(errors),
    }


def test_golden_values() -> None:
    rng = np.random.default_rng(4)
    gt = np.cumsum(rng.normal(size=(20, 32)), axis=0)
    pred = gt + 0.2 * rng.normal(size=(20, 32))
    found = statistics(gt)
    expected = {
        "speed": 0.70363441, "curv": 1.59028975, "ang": 0.15752655, "accel": 67.518245, "perr": 5.2581394
    }  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-7)
    assert agreement(relative_gaps(found, statistics(pred))) == pytest.approx(0.96949357, abs=1e-8)


@pytest.mark.parametrize(("frames", "width"), [(8, 3), (9, 2), (30, 40), (12, 1024)])
def test_a_naive_version_agrees(frames: int, width: int) -> None:
    path = np.random.default_rng(frames).normal(size=(frames, width)).astype(np.float32)
    assert statistics(path) == pytest.approx(naive(path), rel=1e-9, abs=1e-9)


def test_an_even_straight_line_is_perfectly_predictable() -> None:
    path = np.outer(np.arange(12.0), [3.0, 4.0, 0.0])
    found = statistics(path)
    assert found == pytest.approx(dict.fromkeys(STATISTICS, 0.0), abs=1e-7)


def test_a_square_turns_by_right_angles() -> None:
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    path = np.concatenate([corners] * 3)
    path[8:] += [0.0, 0.0, 2.0]  # the last four points lie two above the plane of all before
    found = statistics(path)
    steps = [1.0] * 7 + [math.sqrt(5)] + [1.0] * 3
    assert found["speed"] == pytest.approx(float(np.std(steps)))
    assert prediction_errors(path)[:2] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert prediction_errors(path)[2] == pytest.approx(2.0)
    right = statistics(np.concatenate([corners] * 3))
    assert right["curv"] == pytest.approx(math.pi / 2)
    assert right["ang"] == pytest.approx(0.0, abs=1e-12)
    assert right["accel"] == pytest.approx(2.0)


def test_a_path_that_stands_still_has_no_angles() -> None:
    still = statistics(np.ones((9, 4)))
    assert (still["speed"], still["accel"], still["perr"]) == (0.0, 0.0, 0.0)
    assert math.isnan(still["curv"])
    assert math.isnan(still["ang"])
    assert agreement(relative_gaps(still, still)) == 1.0
    moving = statistics(np.random.default_rng(0).normal(size=(9, 20)))
    gaps = relative_gaps(still, moving)
    assert set(gaps) == {"speed", "accel", "perr"}
    assert agreement(gaps) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("shape", [(7, 4), (0, 4), (20,)])
def test_too_short_paths_have_no_statistics(shape: tuple[int, ...]) -> None:
    found = statistics(np.zeros(shape))
    assert all(math.isnan(value) for value in found.values())
    assert relative_gaps(found, found) == {}
    assert agreement({}) is None


class Means:
    """A stand-in for the network: each patch's mean colour, and the block that was asked for."""

    def __init__(self) -> None:
        self.layers: list[int | None] = []

    def patches(self, frames: np.ndarray, layer: int | None = None) -> np.ndarray:
        self.layers.append(layer)
        count, height, width, _ = frames.shape
        grid = frames.reshape(count, 2, height // 2, 2, width // 2, 3).mean(axis=(2, 4))
        return grid.astype(np.float32)


def clip(path: Path, count: int = FRAMES) -> np.ndarray:
    rng = np.random.default_rng(1)
    images = [np.full((16, 16, 3), 0, np.uint8) + rng.integers(0, 255, 3, np.uint8) for _ in range(count)]
    write_video(path, images, 24, crf=0)
    from world.video import frames

    return np.stack(list(frames(path)))


def subject(root: Path, frames: int = FRAMES) -> Subject:
    return Subject("geophys_dinov3", "real/x", root / "render.mp4", frames, root, root)


def estimate(root: Path, **members: Any) -> None:
    np.savez(root / "geophys_dinov3.npz", **{"stride": np.int64(1), "layer": np.int64(18), **members})


def test_a_video_agrees_with_itself(tmp_path: Path) -> None:
    images = clip(tmp_path / "render.mp4")
    estimate(tmp_path, trajectory=Means().patches(images).mean(axis=(1, 2)))
    model = Means()
    found = measure(subject(tmp_path), model)
    assert found.detail["geophys_dinov3_score"] == 1.0
    signals = found.detail["geophys_dinov3_signals"]
    assert (signals["layer"], signals["readout"]) == (18, "spatial average pooling")
    assert signals["gaps"] == dict.fromkeys(STATISTICS, 0.0)
    assert model.layers == [18, 18]  # ten frames are two batches
    arrays = found.arrays["geophys_dinov3"]
    assert (arrays["render"].shape, arrays["render"].dtype) == ((FRAMES, 3), np.float32)
    assert (int(arrays["stride"]), int(arrays["layer"])) == (1, 18)


def test_seven_frames_are_uncomputable(tmp_path: Path) -> None:
    images = clip(tmp_path / "render.mp4", 7)
    estimate(tmp_path, trajectory=Means().patches(images).mean(axis=(1, 2)))
    found = measure(subject(tmp_path, 7), Means())
    assert found.detail["geophys_dinov3_score"] is None
    assert found.causes == {"geophys_dinov3": "no_pairing"}
    assert all(math.isnan(value) for value in found.detail["geophys_dinov3_signals"]["gt"].values())


def test_a_case_that_nobody_has_prepared_is_uncomputable(tmp_path: Path) -> None:
    found = measure(subject(tmp_path), Means())
    assert (found.vouched, found.causes) == (frozenset(), {"geophys_dinov3": "reference_empty"})


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"trajectory": np.ones((9, 3), np.float32)}, "has 10 samples"),
        ({"trajectory": np.ones((FRAMES, 4), np.float32)}, "the model at hand gives 3"),
        ({"trajectory": np.full((FRAMES, 3), np.nan, np.float32)}, "not finite"),
        ({"trajectory": np.ones((FRAMES, 3), np.int64)}, "expected"),
        ({"trajectory": np.ones((FRAMES, 3, 1), np.float32)}, "expected"),
        ({"trajectory": np.ones((0, 3), np.float32)}, "is empty"),
        ({"trajectory": np.ones((FRAMES, 3), np.float32), "layer": np.int64(17)}, "read at layer 17"),
        ({"trajectory": np.ones((FRAMES, 3), np.float32), "stride": np.int64(0)}, "'stride' is 0"),
        ({"trajectory": np.ones((FRAMES, 3), np.float32), "stride": np.float64(1)}, "'stride' holds float64"),
        ({}, "has no member 'trajectory'"),
        ({"trajectory": np.array([{}], object)}, "trajectory"),
    ],
)
def test_an_estimate_that_cannot_be_right_is_the_operators_fault(
    tmp_path: Path, members: dict[str, Any], text: str
) -> None:
    clip(tmp_path / "render.mp4")
    estimate(tmp_path, **members)
    with pytest.raises(EstimateError, match=text) as raised:
        measure(subject(tmp_path), Means())
    assert raised.value.infrastructure
    assert str(tmp_path / "geophys_dinov3.npz") in str(raised.value)


def test_junk_and_a_directory_in_place_of_the_estimate(tmp_path: Path) -> None:
    clip(tmp_path / "render.mp4")
    path = tmp_path / "geophys_dinov3.npz"
    path.write_bytes(b"junk")
    with pytest.raises(EstimateError):
        measure(subject(tmp_path), Means())
    path.unlink()
    path.mkdir()
    with pytest.raises(EstimateError):
        measure(subject(tmp_path), Means())


def test_the_block_is_the_one_that_prepare_reads() -> None:
    assert geophys.LAYER == 18
