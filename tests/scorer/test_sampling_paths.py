"""Paths of both sides, drawn, against the reference's counts and a second implementation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import naive_sampling as naive
import numpy as np
import pytest
from sampling_scenes import Archive, moved, random_material

from scorer.geometry.registration import Registration
from scorer.geometry.sampling import draw_rows, drawn_paths, paths, prepare_sampling, visible
from scorer.geometry.sampling.materials import MovedMaterial
from scorer.geometry.sampling.paths import born
from scorer.scene import Scene
from world.camera import look_at, to_camera
from world.reader import World

RUNS = (
    "cloth/coarse",
    "cloth/noisy",
    "fracture/nodynamics",
    "fracture/noisy",
    "grain/other",
    "mixed/nocloth",
    "near/self",
    "rigid/frozen",
    "rigid/late",
    "rigid/self",
    "rigid/similar",
    "tet/noisy",
)
KINDS = ("rigid", "bending", "sheet", "tets", "particles", "emitter", "broken", "crumbs", "soup")


def placement(**changes: object) -> Registration:
    facts = dict(
        scale=1.0,
        rotation=np.eye(3),
        offset=np.zeros(3),
        centre=np.array([0.0, 0.0, 3.0]),
        radius=1.0,
        residual=0.0,
        residual_start=0.0,
        selected="camera",
        candidate_errors={},
    )
    return Registration(**{**facts, **changes})  # type: ignore[arg-type]


@dataclass
class Camera:
    """As much of a world as visibility looks at."""

    width: int = 64
    height: int = 48
    focal: float = 60.0

    @property
    def intrinsics(self) -> np.ndarray:
        return np.array([[self.focal, 0, 32], [0, self.focal, 24], [0, 0, 1]], np.float64)


def _pair(fixture_worlds: Path, run: str) -> tuple[World, World, Registration, dict]:
    expected = json.loads((fixture_worlds / "expected_detail.json").read_text())[f"runs/synthetic/{run}/1"]
    reference = World(fixture_worlds / "data" / "synthetic" / run.split("/")[0] / "world")
    submission = World(fixture_worlds / "runs" / "synthetic" / run / "1" / "workspace" / "world")
    fitted = expected["alignment"]
    registration = placement(
        scale=fitted["scale"],
        radius=fitted["radius"],
        **{key: np.array(fitted[key]) for key in ("rotation", "offset", "centre")},
    )
    return reference, submission, registration, expected


@pytest.mark.parametrize("run", RUNS)
def test_the_reference_implementation_found_as_many(fixture_worlds: Path, run: str) -> None:
    reference, submission, registration, expected = _pair(fixture_worlds, run)
    sampling = prepare_sampling(reference, submission, registration)
    assert sampling.h == pytest.approx(expected["trajectory_h"], rel=1e-9)
    found = drawn_paths(sampling, registration, reference)
    assert found is not None
    assert list(found.counts) == expected["trajectory_paths"]
    assert [len(found.reference), len(found.submission)] == expected["trajectory_rows"]
    assert found.reference.dtype == found.submission.dtype == np.float32
    assert found.reference.shape[1:] == (reference.frames, 3)


def test_a_world_against_itself_has_the_same_paths(fixture_worlds: Path) -> None:
    reference, _, registration, _ = _pair(fixture_worlds, "rigid/self")
    same = placement(centre=registration.centre, radius=registration.radius)
    found = drawn_paths(prepare_sampling(reference, reference, same), same, reference)
    assert found is not None
    np.testing.assert_allclose(found.reference, found.submission, atol=2e-7)


def test_the_scene_holds_sampling_and_paths(fixture_worlds: Path) -> None:
    scene = Scene(
        "synthetic/grain",
        fixture_worlds / "runs/synthetic/grain/other/1/workspace/world",
        fixture_worlds / "data/synthetic/grain/world",
        None,
        fixture_worlds,
        fixture_worlds,
    )
    assert scene.sampling.h == pytest.approx(0.0017600693775519157, rel=1e-6)
    assert scene.paths is not None
    assert scene.paths.counts == (220, 150)
    bare = Scene("real/a", scene.world_path, None, None, fixture_worlds, fixture_worlds)
    with pytest.raises(ValueError, match="no reference world"):
        _ = bare.paths


@pytest.mark.parametrize("kind", KINDS)
def test_paths_of_one_material(kind: str) -> None:
    _same_paths([random_material(kind, 6, np.random.default_rng(7))], 0.2)


def test_paths_of_a_mixed_world() -> None:
    rng = np.random.default_rng(8)
    _same_paths([random_material(kind, 6, rng) for kind in KINDS], 0.25)


def _same_paths(archives: list[Archive], h: float) -> None:
    registration, camera = placement(), Camera(focal=120.0)

    def seen(points: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            p = points.astype(np.float64) + np.array([0, 0, 3])
            u, v = 120 * p[:, 0] / p[:, 2] + 32, 120 * p[:, 1] / p[:, 2] + 24
            return (p[:, 2] > 1e-3) & (u >= 0) & (u < 64) & (v >= 0) & (v < 48)

    found = paths([moved(a) for a in archives], h, registration, camera)  # type: ignore[arg-type]
    expected = naive.paths(archives, h, seen)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, atol=3e-7, rtol=2e-5)


def test_rows_of_the_paths_are_the_paths_of_the_rows() -> None:
    materials = [moved(random_material(kind, 40, np.random.default_rng(2))) for kind in ("broken", "emitter")]
    registration, camera = placement(), Camera()
    side = born(materials, 0.2, registration, camera)  # type: ignore[arg-type]
    assert len(side.groups) > 3
    every = side.paths(registration, camera)  # type: ignore[arg-type]
    rows = np.sort(np.random.default_rng(0).choice(len(side), len(side) // 3, replace=False))
    np.testing.assert_array_equal(side.paths(registration, camera, rows), every[rows])  # type: ignore[arg-type]
    assert side.paths(registration, camera, rows[:0]).shape == (0, 40, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ((10, 4), (4, 4)),
        ((4, 10), (4, 4)),
        ((9000, 0), (8192, 0)),
        ((5, 0), (5, 0)),
        ((20000, 9000), (8192, 8192)),
    ],
)
def test_drawing(sizes: tuple[int, int], rows: tuple[int, int]) -> None:
    drawn = draw_rows(*sizes)
    assert tuple(len(d) for d in drawn) == rows
    for size, side in zip(sizes, drawn, strict=True):
        if size > len(side):
            expected = np.random.default_rng([0, 1]).choice(size, len(side), replace=False)
            assert side.tolist() == sorted(expected.tolist())
        else:
            assert side.tolist() == list(range(size))


def test_visibility() -> None:
    camera, registration = Camera(), placement(centre=np.zeros(3), radius=2.0)
    metres = np.array(
        [
            [0, 0, 1.0],  # the principal point
            [-32 / 60, -24 / 60, 1.0],  # the upper left corner belongs to the image
            [32 / 60, 0, 1.0],  # the right edge does not
            [0, 0, 1e-3],  # nor does the near plane
            [0, 0, -1.0],
            [np.nan, 0, 1],
            [0, 0, np.inf],
        ]
    )
    seen = visible(metres / 2.0, registration, camera)  # type: ignore[arg-type]
    assert seen.tolist() == [True, True, False, False, False, False, False]
    assert visible(np.zeros((2, 0, 3)), registration, camera).shape == (2, 0)  # type: ignore[arg-type]


def test_a_column_born_with_others_only() -> None:
    """A triangle whose corners come one after the other is never sampled."""
    pos = np.zeros((4, 3, 3), np.float32)
    pos[:, 1, 0] = pos[:, 2, 1] = 1.0
    pos[0, 2] = np.nan
    late = moved(Archive("late", pos, np.array([[0, 1, 2]], np.int32)))
    assert len(born([late], 0.1, placement(), Camera())) == 0  # type: ignore[arg-type]


def test_paths_out_of_view_are_dropped() -> None:
    pos = np.zeros((3, 2, 3), np.float32)
    pos[:, 1] = 50.0
    pos[1, 0] = 50.0
    (path,) = paths([moved(Archive("p", pos))], 0.1, placement(), Camera())  # type: ignore[arg-type]
    assert np.isnan(path).all(axis=1).tolist() == [False, True, False]


def test_no_materials() -> None:
    assert len(born([], 0.1, placement(), Camera())) == 0  # type: ignore[arg-type]


def test_positions_are_mapped_as_the_registration_maps_them() -> None:
    rng = np.random.default_rng(3)
    pose = look_at([1.0, -4, 2], [0.0, 0, 0])
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    registration = placement(scale=1.7, rotation=turn, offset=rng.normal(size=3), radius=2.5)
    pos = rng.normal(size=(5, 9, 3)).astype(np.float32)
    pos[2, 4] = np.nan
    material = MovedMaterial(Archive("m", pos), pose, registration.map_submission)
    expected = registration.map_submission(to_camera(pos.reshape(-1, 3), pose)).reshape(pos.shape)
    np.testing.assert_allclose(material.pos, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(material.at(3), material.pos[3])
    columns = np.array([7, 0, 4])
    np.testing.assert_array_equal(material.take(1, 4, columns), material.pos[1:4, columns])
    assert material.births.tolist() == [0] * 9
    assert material.live.tolist() == [9, 9, 8, 9, 9]
