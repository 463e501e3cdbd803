"""Semantic similarity: hand-computed cosines, strides, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scorer.estimates import EstimateError
from scorer.metrics.render_features import BATCH, FeatureFault, batches
from scorer.metrics.semantic import cosines, mean_cosine, measure
from scorer.subject import Subject
from world.video import VideoError, frames, write_video

FRAMES = 19


class Colours:
    """A stand-in for a network: the mean colour, centred. Remembers the sizes of its batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def embed(self, images: np.ndarray) -> np.ndarray:
        assert images.dtype == np.uint8
        self.sizes.append(len(images))
        return (images.mean(axis=(1, 2)) - 127.5).astype(np.float32)


class Broken:
    def embed(self, images: np.ndarray) -> np.ndarray:
        return np.full((len(images), 3), np.nan, np.float32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    images = [np.full((16, 16, 3), 0, np.uint8) + rng.integers(0, 255, 3, np.uint8) for _ in range(FRAMES)]
    write_video(tmp_path / "render.mp4", images, 24, crf=0)
    return tmp_path


def subject(root: Path, unit: str = "semantic_tips") -> Subject:
    return Subject(unit, "real/x", root / "render.mp4", FRAMES, root, root)


def estimate(root: Path, stride: int = 1, name: str = "tips", **members: Any) -> np.ndarray:
    images = np.stack(list(frames(root / "render.mp4", stride)))
    rows = Colours().embed(images)
    np.savez(root / f"semantic_{name}.npz", **{"embeddings": rows, "stride": np.int64(stride), **members})
    return rows


def test_hand_computed_cosines() -> None:
    a = np.array([[3, 4], [1, 0], [2, 0], [0, 0], [1e-20, 0]], np.float32)
    b = np.array([[4, 3], [0, 5], [-7, 0], [1, 1], [1e-20, 0]], np.float32)
    found = cosines(a, b)
    assert found.dtype == np.float32
    assert found == pytest.approx([0.96, 0.0, -1.0, 0.0, 1e-16])  # the last is shorter than can be divided by
    assert mean_cosine(found) == pytest.approx((0.96 - 1.0) / 5)


def test_a_naive_version_agrees() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 40, 1024)).astype(np.float32)
    expected = [
        sum(float(x) * float(y) for x, y in zip(p, q, strict=True))
        / math.sqrt(sum(float(x) ** 2 for x in p))
        / math.sqrt(sum(float(y) ** 2 for y in q))
        for p, q in zip(a, b, strict=True)
    ]
    assert cosines(a, b) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("width", [1, 3, 1024])
def test_any_vector_has_cosine_one_with_itself_to_the_last_bit(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(300, width)).astype(np.float32)
    assert set(cosines(rows, rows).tolist()) == {1.0}
    assert mean_cosine(cosines(rows, rows)) == 1.0


def test_a_video_with_itself(root: Path) -> None:
    rows = estimate(root)
    model = Colours()
    found = measure(subject(root), model)
    assert found.detail == {
        "semantic_tips": 1.0,
        "semantic_per_frame": {"semantic_tips": [1.0] * FRAMES},
        "semantic_frames": FRAMES,
        "semantic_stride": 1,
    }
    assert model.sizes == [BATCH, BATCH, 3]
    assert found.vouched is None
    np.testing.assert_array_equal(found.arrays["embeddings_tips"]["render"], rows)
    assert found.arrays["embeddings_tips"]["cosine"].dtype == np.float32


def test_the_stride_is_the_estimates(root: Path) -> None:
    rows = estimate(root, stride=4, name="dinov3")
    found = measure(subject(root, "semantic_dinov3"), Colours())
    assert (found.detail["semantic_frames"], found.detail["semantic_stride"]) == (5, 4)
    np.testing.assert_array_equal(found.arrays["embeddings_dinov3"]["render"], rows)


def test_opposite_features_have_cosine_minus_one(root: Path) -> None:
    rows = estimate(root)
    estimate(root, embeddings=-rows)
    assert measure(subject(root), Colours()).detail["semantic_tips"] == -1.0


def test_a_case_that_nobody_has_prepared_is_uncomputable(root: Path) -> None:
    found = measure(subject(root), Colours())
    assert (found.detail, found.vouched, found.causes) == (
        {}, frozenset(), {"semantic_tips": "reference_empty"}
    )  # fmt: skip


def test_an_estimate_of_another_video_is_the_operators_fault(root: Path) -> None:
    rows = estimate(root)
    estimate(root, embeddings=rows[:-1])
    with pytest.raises(EstimateError, match="holds 18 rows at stride 1; the reference video of 19 frames"):
        measure(subject(root), Colours())


def test_an_estimate_by_another_checkpoint_is_the_operators_fault(root: Path) -> None:
    def noted(text: str) -> Subject:
        estimate(root, provenance=np.array(text))
        return replace(subject(root), checkpoint="ours")

    assert measure(noted('{"checkpoint": "ours"}'), Colours()).detail["semantic_tips"] == 1.0
    assert measure(noted("[]"), Colours()).detail["semantic_tips"] == 1.0  # says nothing
    with pytest.raises(EstimateError, match="made with another checkpoint"):
        measure(noted('{"checkpoint": "theirs"}'), Colours())
    with pytest.raises(EstimateError, match="'provenance' cannot be read"):
        measure(noted("{"), Colours())


def test_a_render_that_ends_early_is_the_submissions_fault(root: Path) -> None:
    estimate(root)
    images = list(frames(root / "render.mp4"))
    write_video(root / "render.mp4", images[:-1], 24)
    with pytest.raises(ValueError, match="reference and render must have the same frame count") as raised:
        measure(subject(root), Colours())
    assert not getattr(raised.value, "infrastructure", False)
    (root / "render.mp4").write_bytes(b"junk" * 100)
    with pytest.raises(VideoError):
        measure(subject(root), Colours())


def test_a_network_that_gives_no_numbers_is_no_fault_of_the_submission(root: Path) -> None:
    estimate(root)
    with pytest.raises(FeatureFault) as raised:
        measure(subject(root), Broken())
    assert raised.value.infrastructure


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (8, [8]), (9, [8, 1])])
def test_batches(count: int, sizes: list[int]) -> None:
    images = [np.full((2, 2, 3), index, np.uint8) for index in range(count)]
    found = list(batches(images, 8))
    assert [len(batch) for batch in found] == sizes
    if found:
        assert np.concatenate(found)[:, 0, 0, 0].tolist() == list(range(count))
