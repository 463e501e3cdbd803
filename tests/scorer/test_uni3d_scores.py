"""Uni3D's two halves: the clouds that the geometry pass leaves, and the cosines that the model pass reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scorer import arrays
from scorer.estimates import EstimateError
from scorer.estimates_features import moge_points
from scorer.geometry.registration import scene_clouds
from scorer.metrics.render_features import FeatureFault
from scorer.metrics.scene_3d import measure as measure_scene
from scorer.metrics.uni3d import clouds, cosine, lone_cloud, measure
from scorer.scene import Scene
from scorer.subject import Subject
from world.reader import World

REAL, SYNTHETIC = "real/clip_rigid", "synthetic/rigid"


class Sums:
    """A stand-in for the network: a unit vector made of the cloud's mean and spread."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def encode(self, given: np.ndarray) -> np.ndarray:
        assert given.shape[1:] == (10_000, 3)
        self.seen += list(given)
        rows = np.concatenate([given.mean(axis=1), given.std(axis=1), (given**3).mean(axis=1)], axis=1)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def scene(worlds: Path, case: str, run: str, *, reference: bool) -> Scene:
    data = worlds / "data" / case
    return Scene(
        case=case,
        world_path=worlds / "runs" / case / run / "1" / "workspace" / "world",
        reference_path=data / "world" if reference else None,
        annotation_path=None,
        estimates_path=data / "estimates",
        video_path=worlds / "cases" / case / "reference.mp4",
    )


def subject(root: Path, case: str, **stored: np.ndarray) -> Subject:
    staged = arrays.stage(root, "uni3d_clouds", {"uni3d_clouds": stored})
    arrays.publish(root, "uni3d_clouds", staged)
    return Subject("uni3d", case, root / "render.mp4", 4, root, root)


def cloud(seed: int, count: int = 500) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32) * [1, 2, 3]


def test_clouds_of_a_synthetic_case_are_scene_3ds(fixture_worlds: Path) -> None:
    given = scene(fixture_worlds, SYNTHETIC, "similar", reference=True)
    found = clouds(given).arrays["uni3d_clouds"]
    registered = measure_scene(given).arrays["scene"]
    np.testing.assert_array_equal(found["submission_scene"], registered["pred"])
    np.testing.assert_array_equal(found["point_scene"], registered["gt"])
    assert given.reference is not None
    again = scene_clouds(given.reference, given.submission, given.registration)
    assert found["point_scene"] is again[0]  # shared, not computed once more


def test_the_cloud_of_a_real_case_is_the_submissions_own(fixture_worlds: Path) -> None:
    given = scene(fixture_worlds, REAL, "self", reference=False)
    (found,) = clouds(given).arrays["uni3d_clouds"].values()
    assert found.dtype == np.float64
    assert len(found) <= 65_536
    assert found.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-6)  # small enough not to be drawn from
    assert np.sqrt(np.square(found).sum(axis=1).mean()) == pytest.approx(1.0)


def test_a_large_cloud_keeps_the_centre_and_radius_of_all_its_points(
    fixture_worlds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(scene(fixture_worlds, REAL, "self", reference=False).world_path)
    whole = lone_cloud(world)
    monkeypatch.setattr("scorer.metrics.uni3d.SCENE_POINTS", 100)
    drawn = lone_cloud(world)
    order = np.random.default_rng(0).choice(len(whole), 100, replace=False)
    np.testing.assert_array_equal(drawn, whole[order])


def test_a_cloud_with_itself(tmp_path: Path) -> None:
    points = cloud(1)
    model = Sums()
    found = measure(subject(tmp_path, SYNTHETIC, submission_scene=points, point_scene=points), model)
    assert found.detail == {"uni3d_point_scene": pytest.approx(1.0, abs=1e-6)}
    assert set(found.arrays["uni3d"]) == {"submission_scene", "reference_point_scene"}
    np.testing.assert_array_equal(model.seen[0], model.seen[1])  # each cloud is drawn with a fresh generator


def test_a_real_case_is_compared_with_moges_points(tmp_path: Path) -> None:
    points = cloud(2, 600).reshape(20, 30, 3)
    mask = np.ones((20, 30), bool)
    mask[0] = False
    points[0] = np.nan
    points[1, 0] = np.inf
    np.savez(tmp_path / "moge.npz", points=points.astype(np.float32), mask=mask)
    assert len(moge_points(tmp_path)) == 569
    ours = points.reshape(-1, 3)[31:]
    found = measure(subject(tmp_path, REAL, submission_scene=ours), Sums())
    assert found.detail == {"uni3d_moge_scene": pytest.approx(1.0, abs=1e-5)}
    assert set(found.arrays["uni3d"]) == {"submission_scene", "reference_moge_scene"}


def test_a_network_that_gives_no_numbers_is_no_fault_of_the_submission(tmp_path: Path) -> None:
    points = cloud(3)
    stored = subject(tmp_path, SYNTHETIC, submission_scene=points, point_scene=points)
    model = Sums()
    encode = model.encode
    model.encode = lambda given: encode(given) * np.float32(np.nan)  # type: ignore[method-assign]
    with pytest.raises(FeatureFault) as raised:
        measure(stored, model)
    assert raised.value.infrastructure


def test_a_missing_reference_is_uncomputable(tmp_path: Path) -> None:
    real = measure(subject(tmp_path, REAL, submission_scene=cloud(1)), Sums())
    assert real.detail == {"uni3d_moge_scene": None, "uni3d_moge_failure": "moge reference missing"}
    assert real.causes == {"uni3d_moge_scene": "reference_empty"}
    assert set(real.arrays["uni3d"]) == {"submission_scene"}
    synthetic = measure(subject(tmp_path, SYNTHETIC, submission_scene=cloud(1)), Sums())
    assert synthetic.detail == {"uni3d_point_scene": None, "uni3d_point_failure": "point reference missing"}
    assert synthetic.causes == {"uni3d_point_scene": "reference_empty"}


def test_a_moge_estimate_without_a_valid_point_is_an_empty_reference(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "moge.npz", points=np.full((2, 2, 3), np.nan, np.float32), mask=np.zeros((2, 2), bool)
    )
    found = measure(subject(tmp_path, REAL, submission_scene=cloud(1)), Sums())
    assert found.detail["uni3d_moge_scene"] is None
    assert found.causes == {"uni3d_moge_scene": "reference_empty"}


def test_an_empty_registered_cloud_is_uncomputable(tmp_path: Path) -> None:
    empty = np.zeros((0, 3), np.float32)
    found = measure(subject(tmp_path, SYNTHETIC, submission_scene=empty, point_scene=cloud(1)), Sums())
    assert found.detail == {"uni3d_point_scene": None}
    assert found.causes == {"uni3d_point_scene": "no_pairing"}


def test_a_transparent_case_has_nothing_to_compare(tmp_path: Path) -> None:
    case = "real/internet_22_viscous_honey_dripping"
    assert measure(subject(tmp_path, case, submission_scene=cloud(1)), Sums()).detail == {}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"points": np.zeros((4, 3), np.float32)},
        {"points": np.zeros((2, 2, 3), np.int64)},
        {"points": np.zeros((2, 2, 3), np.float32), "mask": np.zeros((2, 3), bool)},
        {"points": np.zeros((2, 2, 3), np.float32), "mask": np.zeros((2, 2), np.float32)},
    ],
)
def test_a_damaged_moge_estimate_is_the_operators_fault(tmp_path: Path, members: dict[str, Any]) -> None:
    np.savez(tmp_path / "moge.npz", **members)
    with pytest.raises(EstimateError):
        moge_points(tmp_path)
    with pytest.raises(FileNotFoundError):
        moge_points(tmp_path / "nowhere")


def test_a_mask_is_not_required(tmp_path: Path) -> None:
    np.savez(tmp_path / "moge.npz", points=np.ones((2, 2, 3), np.float16))
    found = moge_points(tmp_path)
    assert (found.shape, found.dtype) == ((4, 3), np.float32)


def test_cosines_stay_in_range() -> None:
    long = np.array([1.0001, 0], np.float32)
    assert cosine(long, long) == 1.0
    assert cosine(long, -long) == -1.0
    assert cosine(np.array([0.6, 0.8], np.float32), np.array([0.8, 0.6], np.float32)) == pytest.approx(0.96)
    assert cosine(None, long) is None
    assert cosine(long, None) is None
