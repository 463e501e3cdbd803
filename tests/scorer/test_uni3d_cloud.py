"""Normalisation and sampling of clouds, against a version point by point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.estimators.uni3d_cloud import COLOUR, POINTS, RADIUS, normalised, sampled, unit_cloud


def naive(points):
    pytest.importorskip("torch")
    from naive_uni3d import naive_unit_cloud

    return naive_unit_cloud(points)


def test_constants_are_those_of_the_protocol():
    assert (POINTS, COLOUR, RADIUS) == (10_000, 0.4, 99.0)


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 1000])
def test_the_unit_cloud_is_the_naive_one(count):
    rng = np.random.default_rng(count)
    points = rng.normal(size=(count, 3)) * [1, 5, 0.2] + [3, -4, 9]
    found = unit_cloud(points)
    assert found.dtype == np.float32
    assert found.shape == (count, 3)
    # A lone point has nothing but rounding to be scaled by.
    assert np.abs(found - naive(points)).max() < 2e-6 * 10
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.integers(0, 10_000), st.floats(1e-3, 1e3), st.floats(-10, 10))
def test_the_unit_cloud_is_the_naive_one_at_any_scale(count, seed, scale, shift):
    points = (np.random.default_rng(seed).normal(size=(count, 3)) + shift) * scale
    assert np.abs(unit_cloud(points) - naive(points)).max() < 1e-3


def test_one_percent_lies_on_the_sphere():
    points = np.random.default_rng(3).normal(size=(5000, 3))
    norms = np.linalg.norm(unit_cloud(points), axis=1)
    assert np.count_nonzero(np.abs(norms - 1) < 1e-6) == 50
    assert np.count_nonzero(norms < 1 - 1e-6) == 4950


def test_rows_that_are_not_finite_are_dropped_before_anything_is_measured():
    points = np.random.default_rng(4).normal(size=(200, 3))
    dirty = np.insert(points, [0, 50, 200], [[np.nan, 0, 0], [0, np.inf, 0], [0, 0, -np.inf]], axis=0)
    assert (unit_cloud(dirty) == unit_cloud(points)).all()
    beyond = np.vstack([points, [[1e300, 0, 0]]])  # finite, but not as float32
    assert (unit_cloud(beyond) == unit_cloud(points)).all()


@pytest.mark.parametrize("value", [0.0, 7.25, -3.0])
def test_a_cloud_of_one_place_is_the_centre(value):
    assert (unit_cloud(np.full((5, 3), value)) == 0).all()


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.empty((0, 3)), "no finite point"),
        (np.full((4, 3), np.nan), "no finite point"),
        (np.zeros((4, 2)), "is .n, 3."),
        (np.zeros(3), "is .n, 3."),
        ([[3e38, 0, 0], [3e38, 1, 0]], "too large"),
        ([[1e25, 0, 0], [0, 1, 0], [0, 0, 1]], "too large"),
    ],
)
def test_what_is_no_cloud_is_refused(points, words):
    with pytest.raises(ValueError, match=words):
        unit_cloud(points)


@pytest.mark.parametrize("count", [1, 9_999, 10_000, 10_001, 25_000])
def test_points_are_drawn_as_the_protocol_says(count):
    points = np.arange(3 * count, dtype=np.float32).reshape(-1, 3)
    found = sampled(points, np.random.default_rng(0))
    drawn = np.random.default_rng(0).choice(count, 10_000, replace=count < 10_000)
    assert found.dtype == np.float32
    assert (found == points[drawn]).all()
    distinct = len(np.unique(found[:, 0]))
    assert distinct == 10_000 if count >= 10_000 else distinct <= count
    if count == 10_000:
        assert (found != points).any()  # a permutation: the order drawn is kept


def test_the_whole_cloud_is_measured_before_points_are_drawn():
    points = np.random.default_rng(6).normal(size=(30_000, 3))
    found = normalised(points, np.random.default_rng(0))
    assert found.shape == (10_000, 3)
    assert found.dtype == np.float32
    drawn = np.random.default_rng(0).choice(30_000, 10_000, replace=False)
    assert (found == unit_cloud(points)[drawn]).all()
    assert (found == normalised(points, np.random.default_rng(0))).all()


def test_the_given_points_are_left_alone():
    points = np.random.default_rng(7).normal(size=(50, 3)).astype(np.float32)
    before = points.copy()
    normalised(points, np.random.default_rng(0))
    assert (points == before).all()
