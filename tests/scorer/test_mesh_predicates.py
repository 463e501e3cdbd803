"""Orientation signs against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.geometry import predicates

FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-3, 3).map(float),
    st.floats(-2, 2, width=32),
)


def sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def rational(points: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in point] for point in points]


def rational_orient(points: np.ndarray) -> int:
    *others, last = rational(points)
    rows = [[x - y for x, y in zip(point, last, strict=True)] for point in others]
    if len(rows) == 2:
        (a, b), (c, d) = rows
        return sign(a * d - b * c)
    u, v, w = rows
    return sign(
        u[0] * (v[1] * w[2] - v[2] * w[1])
        + u[1] * (v[2] * w[0] - v[0] * w[2])
        + u[2] * (v[0] * w[1] - v[1] * w[0])
    )


def check(points: np.ndarray) -> None:
    flat = [float(x) for x in points.ravel()]
    expected = rational_orient(points)
    if points.shape == (3, 2):
        assert predicates.orient_2d(*flat) == expected
        assert predicates.orient_2d_exact(*flat) == expected
        return
    assert predicates.orient_3d(*flat) == expected
    assert predicates.orient_3d_exact(*flat) == expected
    assert predicates.orient_3d_filtered(*flat) in (expected, 2)


@given(st.lists(FLOATS, min_size=12, max_size=12))
@settings(max_examples=400, deadline=None)
def test_any_float32(values: list[float]) -> None:
    check(np.array(values[:6]).reshape(3, 2))
    check(np.array(values).reshape(4, 3))


@pytest.mark.parametrize("seed", range(4))
def test_nearly_flat_points(seed: int) -> None:
    """Points of a plane rounded to float32: determinants far below what float64 can tell."""
    rng = np.random.default_rng(seed)
    unsure = 0
    for _ in range(150):
        weights = rng.integers(-3, 4, (4, 2))
        if rng.random() < 0.5:
            basis, origin = rng.integers(-99, 100, (2, 3)), rng.integers(-999, 1000, 3)
            points = (weights @ basis + origin) * 2.0 ** int(rng.integers(-40, 40))
        else:
            points = weights @ rng.normal(size=(2, 3)) + 10 * rng.normal(size=3)
        points = points.astype(np.float32).astype(float)
        check(points)
        check(points[:3, :2].copy())
        unsure += predicates.orient_3d_filtered(*points.ravel()) == 2
    assert unsure > 10


def test_extremes_of_float32() -> None:
    tiny, huge = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)
    for scale in (tiny, huge, 1.0):
        check(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]) * scale)
    check(np.array([[0, 0, 0], [huge, 0, 0], [0, 1, 0], [huge, 1, tiny]]))
    check(np.array([[tiny, 0, 0], [huge, 0, 0], [0, huge, 0], [0, 0, tiny]]))
    check(np.array([[huge, huge], [-huge, -huge], [tiny, tiny]]))


@given(st.lists(st.floats(-1e30, 1e30), max_size=48))
@settings(max_examples=200, deadline=None)
def test_sum_sign(terms: list[float]) -> None:
    cancelling = np.array([*terms, *(-x for x in reversed(terms)), *terms[:1]])
    for values in (np.array(terms), cancelling):
        assert predicates.sum_sign(values, len(values)) == sign(sum(map(Fraction, values), Fraction(0)))


def test_collinear() -> None:
    step = np.float32(0.1)
    assert predicates.collinear(*[0.0] * 3, *[float(step)] * 3, *[float(2 * step)] * 3)
    assert predicates.collinear(1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 7.0, 8.0, 9.5)
    assert not predicates.collinear(
        0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, float(np.nextafter(np.float32(2), 3))
    )
