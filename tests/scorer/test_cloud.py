"""What a camera sees of a world, as points."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from body_world import BodyWorld, mini_world, random_similarity, transformed
from raster_scenes import random_camera

from scorer.geometry.cloud import (
    back_project,
    extent,
    frame_cloud,
    in_view,
    registered_cloud,
    subsample,
    visible_cloud,
)
from scorer.geometry.similarity import Similarity, fit_similarity
from world.camera import project

STAY = Similarity(1.0, np.eye(3), np.zeros(3))


def test_back_projection_agrees_with_a_loop_over_pixels():
    rng = np.random.default_rng(0)
    k, _ = random_camera(rng, 7, 9)
    depth = rng.uniform(1, 5, (7, 9)).astype(np.float32)
    depth[rng.random((7, 9)) < 0.3] = np.inf
    points, covered = back_project(depth, k)
    expected = [
        depth[row, column] * np.linalg.solve(k, [column + 0.5, row + 0.5, 1.0])
        for row in range(7)
        for column in range(9)
        if math.isfinite(depth[row, column])
    ]
    np.testing.assert_allclose(points, expected, rtol=1e-6)
    assert points.dtype == np.float32
    np.testing.assert_array_equal(covered, np.isfinite(depth))
    image, z = project(points, k, np.eye(4))
    np.testing.assert_allclose(image, np.argwhere(covered)[:, ::-1] + 0.5, atol=1e-4)
    np.testing.assert_allclose(z, depth[covered], rtol=1e-6)


def test_back_projection_of_nothing():
    points, covered = back_project(np.full((3, 4), np.inf, np.float32), np.eye(3))
    assert points.shape == (0, 3)
    assert not covered.any()


def test_a_frame_without_a_covered_pixel_is_refused_in_the_protocols_words():
    world = BodyWorld({})
    assert visible_cloud(world, 0).shape == (0, 3)
    with pytest.raises(ValueError, match=r"^world: frame 3 rasterises to no covered pixel$"):
        frame_cloud(world, 3)


def test_extent():
    points = np.float32([[1, 2, 3], [3, 2, 3]])
    centre, radius = extent(points)
    np.testing.assert_array_equal(centre, [2, 2, 3])
    assert radius == 1.0
    cloud = np.random.default_rng(1).normal(size=(500, 3)).astype(np.float32)
    centre, radius = extent(cloud)
    gaps = [math.dist(point, centre) ** 2 for point in cloud.astype(float)]
    assert radius == pytest.approx(math.sqrt(sum(gaps) / 500), rel=1e-12)
    for lone in (points[:1], np.repeat(points[:1], 4, axis=0)):
        with pytest.raises(ValueError, match=r"^a scene cloud of zero radius carries no unit of length$"):
            extent(lone)


def test_subsample_draws_in_the_generators_order():
    points = np.arange(300, dtype=np.float32).reshape(100, 3)
    assert subsample(points, 100, np.random.default_rng(0)) is points
    drawn = subsample(points, 40, np.random.default_rng(0))
    rows = np.random.default_rng(0).choice(100, 40, replace=False)
    np.testing.assert_array_equal(drawn, points[rows])
    assert len(np.unique(drawn[:, 0])) == 40


def test_a_world_that_stays_where_it_is_looks_the_same():
    world = mini_world()
    np.testing.assert_allclose(registered_cloud(world, world, STAY), frame_cloud(world), atol=1e-5)
    other = registered_cloud(world, world, STAY, frame=5)
    np.testing.assert_allclose(other, frame_cloud(world, 5), atol=1e-5)


def test_the_placing_takes_camera_frame_to_camera_frame():
    """A transformed world, seen by a camera of its own, placed by the similarity of the two camera frames."""
    rng = np.random.default_rng(2)
    world = mini_world()
    scale, rotation, offset = random_similarity(rng)
    _, elsewhere = random_camera(rng, 10, 10)
    moved = replace(transformed(world, scale, rotation, offset, camera=False), extrinsic=elsewhere)
    points = rng.normal(size=(20, 3))
    ours = (points - world.extrinsic[:3, 3]) @ world.extrinsic[:3, :3]
    theirs = (scale * points @ rotation.T + offset - elsewhere[:3, 3]) @ elsewhere[:3, :3]
    placed = fit_similarity(theirs, ours)
    np.testing.assert_allclose(registered_cloud(world, moved, placed), frame_cloud(world), atol=2e-4)


def test_a_world_placed_out_of_sight_or_nowhere_gives_no_points():
    world = mini_world()
    for placed in (
        Similarity(1.0, np.eye(3), np.array([0, 0, -1e4])),
        Similarity(0.0, np.eye(3), np.array([0, 0, 5.0])),
        Similarity(math.nan, np.eye(3), np.zeros(3)),
        Similarity(1e300, np.eye(3), np.zeros(3)),
    ):
        assert registered_cloud(world, world, placed).shape == (0, 3)


def test_in_view_agrees_with_a_loop():
    rng = np.random.default_rng(3)
    world = mini_world()
    points = rng.uniform(-4, 4, (300, 3))
    to_camera = np.linalg.inv(world.extrinsic)
    expected = []
    for point in points:
        x, y, z = (to_camera @ [*point, 1])[:3]
        u, v, _ = world.intrinsics @ [x / z, y / z, 1]
        expected.append(z > 1e-3 and 0 <= u < world.width and 0 <= v < world.height)
    assert in_view(points, world).tolist() == expected
    assert 20 < sum(expected) < 280


def test_borders_of_the_view():
    world = replace(mini_world(), extrinsic=np.eye(4), intrinsics=np.eye(3) * [1, 1, 1], width=4, height=2)
    points = [[0, 0, 1], [3.999, 1.999, 1], [4, 0, 1], [0, 2, 1], [-1e-9, 0, 1], [0, 0, 1e-3], [0, 0, 2e-3]]
    assert in_view(points, world).tolist() == [True, True, False, False, False, False, True]
    strange = [[np.nan, 0, 1], [0, 0, -1], [0, 0, 0], [np.inf, 0, 1], [0, 0, np.inf]]
    assert not in_view(strange, world).any()
