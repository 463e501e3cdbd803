"""The similarity that all 3D metrics rest on: golden G17, plain second implementations, and what cannot be
registered.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from body_world import Body, BodyWorld, mini_world, noisy, random_similarity, transformed, turn
from hypothesis import given, settings
from hypothesis import strategies as st
from raster_scenes import random_rotation
from scipy.spatial.distance import cdist

from scorer.geometry import multistart, registration, surface
from scorer.geometry.closest_pairs import closest, distances_both_ways
from scorer.geometry.icp import fit_views
from scorer.geometry.registration import register, scene_clouds
from scorer.geometry.similarity import Similarity, fit_similarity
from scorer.geometry.surface import dynamic_surface, surfaces

seeds = st.integers(0, 2**32 - 1)


def without_motion(world: BodyWorld) -> BodyWorld:
    return replace(world, bodies={n: replace(b, moving=False) for n, b in world.bodies.items()})


def same(one, two) -> bool:
    return one.scale == two.scale and all(
        a.tobytes() == b.tobytes() for a, b in ((one.rotation, two.rotation), (one.offset, two.offset))
    )


# The similarity that fits pairs best.


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(3, 50))
def test_a_similarity_is_recovered_from_pairs(seed, count):
    rng = np.random.default_rng(seed)
    true = Similarity(*random_similarity(rng))
    source = rng.normal(size=(count, 3))
    found = fit_similarity(source, true(source))
    np.testing.assert_allclose(found(source), true(source), atol=1e-8)
    assert found.scale == pytest.approx(true.scale)
    rough = fit_similarity(source, true(source), np.float32)
    np.testing.assert_allclose(rough(source), true(source), atol=1e-3 * true.scale + 1e-5)


def test_no_other_similarity_fits_better():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(30, 3)), rng.normal(size=(30, 3)) * [1, 1, -1]

    def cost(placed: Similarity) -> float:
        return float(np.square(placed(source) - target).sum())

    best = fit_similarity(source, target)
    assert np.linalg.det(best.rotation) == pytest.approx(1)
    for _ in range(200):
        nudge = Similarity(1 + rng.normal() * 0.02, turn(rng.normal() * 0.02), rng.normal(size=3) * 0.02)
        other = Similarity(
            best.scale * nudge.scale, best.rotation @ nudge.rotation, best.offset + nudge.offset
        )
        assert cost(other) > cost(best)


def test_pairs_that_fix_no_similarity_are_refused():
    point = np.ones((4, 3))
    with pytest.raises(ValueError, match="single point"):
        fit_similarity(point, point)
    with pytest.raises(ValueError, match="no pairs"):
        fit_similarity(np.empty((0, 3)), np.empty((0, 3)))
    for bad in (math.nan, math.inf):
        target = np.eye(3)
        target[0, 0] = bad
        with pytest.raises(ValueError, match="not finite or too large"):
            fit_similarity(np.eye(3), target)
    with pytest.raises(ValueError, match="not finite or too large"):
        fit_similarity(1e30 * np.eye(3), 1e30 * np.eye(3), np.float32)
    flat = fit_similarity(np.eye(3), point[:3])
    assert flat.scale == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(flat(np.eye(3)), point[:3], atol=1e-12)


# Closest points.


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(1, 40), st.integers(1, 40))
def test_closest_points_agree_with_all_pairs(seed, count, others):
    rng = np.random.default_rng(seed)
    a = rng.integers(-3, 4, (3, count, 3)).astype(np.float32)  # whole numbers: many as close as another
    b = rng.integers(-3, 4, (3, others, 3)).astype(np.float32)
    squared, row = closest(a, b)
    for frame in range(3):
        gaps = np.rint(cdist(a[frame], b[frame], "sqeuclidean")).astype(np.float32)
        np.testing.assert_array_equal(squared[frame], gaps.min(axis=1))
        np.testing.assert_array_equal(row[frame], gaps.argmin(axis=1))
        there, back = distances_both_ways(a[frame], b[frame])
        np.testing.assert_array_equal(there, gaps.min(axis=1))
        np.testing.assert_array_equal(back, gaps.min(axis=0))


def test_closest_points_of_more_than_one_block():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(700, 3)).astype(np.float32), rng.normal(size=(2500, 3)).astype(np.float32)
    there, back = distances_both_ways(a, b)
    gaps = cdist(a, b, "sqeuclidean")
    np.testing.assert_allclose(there, gaps.min(axis=1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(back, gaps.min(axis=0), rtol=1e-5, atol=1e-7)


# The multi-start fit.


def golden_clouds() -> tuple[np.ndarray, np.ndarray]:
    """G17: a moving cloud, and the same under the inverse of the similarity to be found, rows shuffled."""
    g = np.random.default_rng(11)
    t = np.arange(5)[:, None]
    gt = g.normal(size=(600, 3)) * [3, 1, 0.5] + np.stack([0.4 * t, 0.1 * t**2, 0 * t], axis=-1)
    pred = (gt - [1, -2, 3]) @ turn(math.radians(70)) / 0.5
    return gt.astype(np.float32), np.stack([frame[g.permutation(600)] for frame in pred]).astype(np.float32)


def test_golden_g17():
    found = multistart.fit(*golden_clouds(), radius=1.0)
    assert found.scale == pytest.approx(0.5, abs=1e-5)
    np.testing.assert_allclose(found.rotation, turn(math.radians(70)), atol=1e-5)
    np.testing.assert_allclose(found.offset, [1, -2, 3], atol=1e-5)


def test_the_starts():
    turns = multistart.cube_rotations()
    assert len(turns) == len({matrix.tobytes() for matrix in turns}) == 24
    for matrix, diagonal in zip(turns, [(-1, -1, 1), (-1, 1, -1), (1, -1, -1), (1, 1, 1)], strict=False):
        np.testing.assert_array_equal(matrix, np.diag(diagonal))
    for a, b in itertools.product(turns[:6], turns):
        assert any(np.array_equal(a @ b, matrix) for matrix in turns)
    gt, pred = golden_clouds()
    assert len(multistart.starts(gt, pred)) == 26
    assert len(multistart.starts(gt, pred[:1].repeat(5, axis=0))) == 25
    assert len(multistart.starts(gt[:1], pred[:1])) == 25
    for start in multistart.starts(gt, pred):
        assert start.rotation.dtype == np.float32
        assert np.linalg.det(start.rotation) == pytest.approx(1, abs=1e-5)


def test_frame_numbers():
    assert multistart.frame_numbers(12, 16) == [0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11]
    assert multistart.frame_numbers(1, 16) == [0] * 16
    assert multistart.frame_numbers(300, 4) == [0, 99, 199, 299]


def test_the_objective_agrees_with_all_pairs_and_with_any_number_of_threads():
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(3, 600, 3)).astype(np.float32) for _ in range(2))
    cap = np.float32(0.25)
    gaps = [cdist(a, b) for a, b in zip(x, y, strict=True)]
    shares = [np.mean([np.minimum(1, gap.min(axis=axis) / cap) for gap in gaps]) for axis in (0, 1)]
    one = multistart.objective(x, y, cap, threads=1)
    assert one == pytest.approx(0.5 * sum(shares), abs=1e-6)
    assert multistart.objective(x, y, cap, threads=2) == one


def naive_step(x: np.ndarray, y: np.ndarray, start: multistart.Start) -> Similarity:
    """One round of the multi-start fit with loops and a full sort."""
    pairs = []
    moved = start.move(y)
    for way in ("there", "back"):
        found = []
        for frame in range(len(x)):
            gaps = cdist(moved[frame], x[frame], "sqeuclidean")
            gaps = gaps if way == "there" else gaps.T
            for i, j in enumerate(gaps.argmin(axis=1)):
                found.append((gaps[i, j], frame, *((i, j) if way == "there" else (j, i))))
        pairs += sorted(found)[: int(x.shape[0] * x.shape[1] * 0.8)]
    source = np.array([y[frame, i] for _, frame, i, _ in pairs])
    return fit_similarity(source, np.array([x[frame, j] for _, frame, _, j in pairs]))


def test_a_round_of_the_fit_agrees_with_a_plain_one(monkeypatch):
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(2, 60, 3)).astype(np.float32) for _ in range(2))
    start = multistart.Start(np.float32(0.8), turn(0.3).astype(np.float32), np.float32([0.1, 0, 0]))
    monkeypatch.setattr(multistart, "ITERATIONS", 1)
    found, expected = multistart.refine(start, x, y), naive_step(x, y, start)
    assert found.scale == pytest.approx(expected.scale, rel=1e-5)
    np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-5)
    np.testing.assert_allclose(found.offset, expected.offset, atol=1e-5)


def test_a_surface_without_extent_is_refused():
    gt, _ = golden_clouds()
    for sides in ((gt, np.ones_like(gt)), (np.ones_like(gt), gt)):
        with pytest.raises(ValueError, match=r"^dynamic surface cloud has zero RMS radius$"):
            multistart.fit(*sides, 1.0)


# The fit of what two cameras see.


@pytest.mark.parametrize("seed", range(3))
def test_views_that_differ_by_a_small_turn_are_laid_on_each_other(seed):
    rng = np.random.default_rng(seed)
    cloud = rng.uniform(-1, 1, (3000, 3)) + np.array([0, 0, 4])
    true = Similarity(1.7, turn(0.01), np.array([0.01, -0.02, 0.01]))
    other = (cloud - true.offset) @ true.rotation / true.scale
    found = fit_views(cloud.astype(np.float32), other.astype(np.float32)[::-1].copy())
    np.testing.assert_allclose(found(other), cloud, atol=1e-5)


def test_a_view_of_its_own_is_left_alone():
    cloud = np.random.default_rng(4).uniform(1, 2, (500, 3)).astype(np.float32)
    found = fit_views(cloud, cloud.copy())
    assert found.scale == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.rotation, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found.offset, 0, atol=1e-12)


# Points on moving surfaces.


def test_surface_points_lie_on_the_moving_bodies_by_area():
    world = mini_world()
    points = dynamic_surface(world, 0)
    ball = np.abs(np.linalg.norm(points - np.float32([-0.8, 0.3, 0.45]), axis=1) - 0.4) < 0.02
    (ball_area, slab_area), total = (area(world, number) for number in (2, 10)), area(world, 2, 10)
    assert ball_area + slab_area == pytest.approx(total)
    assert ball.mean() == pytest.approx(ball_area / total, abs=0.02)
    assert points.shape == (8192, 3)
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points, dynamic_surface(world, 0))


def area(world: BodyWorld, *numbers: int) -> float:
    meshes = (world.object_mesh(number, 0) for number in numbers)
    corners = np.concatenate([vertices[faces] for vertices, faces in meshes]).astype(float)
    sides = corners[:, 1:] - corners[:, :1]
    return float(np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1).sum() / 2)


def test_bodies_come_in_the_order_of_their_ids_as_text():
    """ "10" before "2": the generator's draws land on other triangles than in numeric order."""
    world = mini_world(frames=1)
    a, b, c = np.moveaxis(surface._triangles(world, 0), 1, 0)
    slab, slab_faces = world.object_mesh(10, 0)
    np.testing.assert_array_equal(a[: len(slab_faces)], slab[slab_faces[:, 0]])
    weights = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    rng = np.random.default_rng([0, 0])
    rows = rng.choice(len(a), 8192, p=weights / weights.sum())
    u, v = rng.random((2, 8192))
    r = np.sqrt(u)
    expected = [(1 - r[i]) * a[k] + r[i] * (1 - v[i]) * b[k] + r[i] * v[i] * c[k] for i, k in enumerate(rows)]
    np.testing.assert_allclose(dynamic_surface(world, 0), expected, atol=1e-6)


def test_surface_points_of_the_reference_are_those_in_view():
    world = mini_world()
    close = replace(world, intrinsics=np.array([[300.0, 0, 60], [0, 300, 45], [0, 0, 1]]))
    gt, pred = surfaces(close, world)
    assert gt.shape[1:] == pred.shape[1:] == (8192, 3)
    assert len(gt) == 16
    for frame, points in zip(multistart.frame_numbers(6, 16), gt, strict=True):
        drawn = dynamic_surface(close, frame)
        seen = drawn[registration_in_view(drawn, close)]
        assert 0 < len(seen) < 8192
        np.testing.assert_array_equal(points, [seen[i * len(seen) // 8192] for i in range(8192)])


def registration_in_view(points: np.ndarray, world: BodyWorld) -> np.ndarray:
    camera = (points - world.extrinsic[:3, 3]) @ world.extrinsic[:3, :3]
    image = camera @ world.intrinsics.T
    uv = image[:, :2] / image[:, 2:]
    return (camera[:, 2] > 1e-3) & ((uv >= 0) & (uv < [world.width, world.height])).all(axis=1)


def test_frames_without_moving_surface_are_left_out():
    world = mini_world()
    assert surfaces(world, without_motion(world)) is None
    assert surfaces(without_motion(world), world) is None
    behind = transformed(world, 1.0, np.eye(3), np.array([0, -50.0, 0]), camera=False)
    assert surfaces(behind, world) is None
    assert surfaces(world, behind) is not None
    brief = replace(world, bodies={n: replace(b, vertices=b.vertices[:3]) for n, b in world.bodies.items()})
    gt, pred = surfaces(world, brief)
    assert len(gt) == len(pred) == sum(frame < 3 for frame in multistart.frame_numbers(6, 16))
    flat = replace(world, bodies={2: Body(np.zeros((6, 3, 3)), np.array([[0, 1, 2]]), moving=True)})
    assert surfaces(world, flat) is None


# Both candidates together.


def test_a_world_registers_with_itself_as_it_is():
    world = mini_world()
    found = register(world, world)
    assert found.candidate_errors["camera"] == 0
    assert found.candidate_errors["mesh"] < 1e-6
    assert found.selected == "camera"
    assert found.residual == found.residual_start == 0
    assert found.scale == pytest.approx(1, abs=1e-9)
    detail = found.detail()
    assert set(detail) == {
        "scale", "rotation", "rotation_deg", "offset", "residual", "residual_start", "centre", "radius",
        "selected", "candidate_errors",
    }  # fmt: skip
    assert detail["rotation_deg"] == pytest.approx(0, abs=1e-4)
    points = np.random.default_rng(5).normal(size=(2, 7, 3))
    np.testing.assert_allclose(found.map_submission(points), found.map_reference(points), atol=1e-8)
    np.testing.assert_allclose(found.map_reference(points) * found.radius + found.centre, points)
    again = scene_clouds(world, world, replace(found, clouds=None))
    for kept, made in zip(found.clouds, again, strict=True):
        np.testing.assert_array_equal(kept, made)
        assert kept.dtype == np.float32


@pytest.mark.parametrize("seed", range(2))
def test_a_transformed_world_with_its_camera_is_put_back(seed):
    world = mini_world()
    scale, rotation, offset = random_similarity(np.random.default_rng(seed))
    found = register(world, transformed(world, scale, rotation, offset))
    assert found.scale == pytest.approx(1 / scale, rel=1e-5)
    np.testing.assert_allclose(found.rotation, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(found.offset, 0, atol=1e-4)
    assert max(found.candidate_errors.values()) < 1e-4
    assert found.residual < 1e-5


def test_a_camera_elsewhere_leaves_it_to_the_moving_surfaces():
    world = mini_world()
    rng = np.random.default_rng(6)
    scale, rotation, offset = random_similarity(rng)
    moved = transformed(world, scale, rotation, offset)
    extrinsic = moved.extrinsic.copy()
    extrinsic[:3, :3] = extrinsic[:3, :3] @ turn(1.2) @ random_rotation(rng)
    found = register(world, replace(moved, extrinsic=extrinsic))
    assert found.selected == "mesh"
    assert found.residual == found.candidate_errors["mesh"] < 1e-4
    assert found.residual_start == found.candidate_errors.get("camera", 0.5) > found.residual
    assert found.scale == pytest.approx(1 / scale, rel=1e-4)


@pytest.mark.parametrize(
    ("lead", "selected"), [(-1e-3, "camera"), (0.0, "camera"), (5e-7, "camera"), (2e-6, "mesh")]
)
def test_the_camera_keeps_what_is_as_good_to_rounding(monkeypatch, lead, selected):
    errors = iter([0.1, 0.1 - lead])
    monkeypatch.setattr(registration.Cloud, "bounded_chamfer", lambda *arguments: next(errors))
    world = mini_world()
    found = register(world, world)
    assert found.selected == selected
    assert found.candidate_errors == {"camera": 0.1, "mesh": 0.1 - lead}
    assert (found.residual, found.residual_start) == (found.candidate_errors[selected], 0.1)


def test_candidates_that_cannot_be_fitted_are_absent():
    world = mini_world()
    still = register(world, without_motion(world))
    assert dict(still.candidate_errors) == {"camera": 0}
    blind = replace(world, extrinsic=transformed(world, 1, turn(math.pi), np.zeros(3)).extrinsic)
    blind.extrinsic[:3, 3] = [0, -100, 0]
    blind.extrinsic[:3, :3] = -world.extrinsic[:3, :3] @ np.diag([1, -1, 1])
    found = register(world, blind)
    assert set(found.candidate_errors) == {"mesh"}
    assert found.residual_start == 0.5
    assert found.selected == "mesh"
    with pytest.raises(ValueError, match=r"^no visible-camera or dynamic-mesh registration candidate$"):
        register(world, without_motion(blind))
    with pytest.raises(ValueError, match=r"^no visible-camera or dynamic-mesh registration candidate$"):
        register(world, BodyWorld({}))
    with pytest.raises(ValueError, match="frame 0 rasterises to no covered pixel"):
        register(BodyWorld({}), world)


def test_a_world_of_one_frame_registers():
    world = mini_world(frames=1)
    found = register(world, transformed(world, 2.0, turn(0.4), np.array([1.0, 2, 3])))
    assert found.scale == pytest.approx(0.5, rel=1e-5)
    assert set(found.candidate_errors) == {"camera", "mesh"}


def test_exploded_coordinates_give_an_answer_or_one_line():
    world = mini_world(frames=2)
    for scale in (1e-12, 1e30, 1e37):
        wild = transformed(world, scale, np.eye(3), np.zeros(3), camera=False)
        try:
            found = register(world, wild)
        except ValueError as error:
            assert str(error)
            assert "\n" not in str(error)
        else:
            assert 0 <= found.residual <= 0.5


def test_the_number_of_threads_changes_no_bit():
    world = mini_world(height=180, width=240, intrinsics=np.array([[220.0, 0, 120], [0, 220, 90], [0, 0, 1]]))
    other = noisy(world, 0.02)
    one, two = (register(world, other, threads=threads) for threads in (1, 2))
    assert same(one, two)
    assert dict(one.candidate_errors) == dict(two.candidate_errors)
    assert one.residual == two.residual
    for a, b in zip(one.clouds, two.clouds, strict=True):
        assert a.tobytes() == b.tobytes()


def test_clouds_are_thinned_to_the_protocols_sizes(monkeypatch):
    monkeypatch.setattr(registration, "SCENE_POINTS", 500)
    monkeypatch.setattr(registration, "ICP_POINTS", 400)
    world = without_motion(mini_world(frames=1))
    found = register(world, noisy(world, 0.05))
    gt, pred = found.clouds
    assert len(gt) == len(pred) == 500
    visible = registration.frame_cloud(world, 0)
    rows = np.random.default_rng(0).choice(len(visible), 500, replace=False)
    np.testing.assert_allclose(gt, (visible[rows] - found.centre) / found.radius, atol=1e-6)
