"""Point-set distances against the protocol's golden values and plain second implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from scorer.geometry import distances
from scorer.geometry.distances import (
    Cloud,
    Projected,
    bounded_chamfer,
    clean,
    directions,
    nearest,
    semd,
    semd_projected,
)

EMPTY = "a distance was asked for on an empty cloud"
sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)


def rg(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def naive_semd(x: np.ndarray, y: np.ndarray) -> float:
    """Order 2, in float64, with numpy's interpolation and a loop over the directions."""
    total = 0.0
    for unit in directions(x.shape[1]).astype(np.float64):
        rows = [np.sort(side.astype(np.float32).astype(np.float64) @ unit) for side in (x, y)]
        p, q = (np.interp(np.linspace(0, len(row) - 1, 8192), np.arange(len(row)), row) for row in rows)
        total += np.mean((p - q) ** 2)
    return math.sqrt(total / 128)


def naive_chamfer(x: np.ndarray, y: np.ndarray, cap: float) -> float:
    gaps = cdist(x.astype(np.float32), y.astype(np.float32))
    return 0.5 * (np.minimum(gaps.min(axis=1), cap).mean() + np.minimum(gaps.min(axis=0), cap).mean())


def test_golden_sliced_wasserstein():
    g = rg(1)
    x, y = g.normal(size=(1000, 2)), g.normal(size=(700, 2)) + np.array([1, 0])
    assert semd(x, y) == pytest.approx(0.73864788, abs=1e-8)
    g = rg(2)
    assert semd(g.normal(size=(9000, 3)), 2 * g.normal(size=(9000, 3))) == pytest.approx(0.98901188, abs=1e-8)
    g = rg(1)
    a = g.normal(size=(1000, 3)).astype(np.float32)
    b = (g.normal(size=(700, 3)) * 1.5 + 0.2).astype(np.float32)
    assert semd(a, b) == pytest.approx(0.541006, abs=5e-7)
    assert semd(a, a + np.float32([0.1, 0, 0])) == pytest.approx(0.0621310, abs=1e-7)
    assert bounded_chamfer(a, b, 0.5) == pytest.approx(0.3154896, abs=1e-7)


def test_golden_directions_and_quantiles():
    spec = [
        (0.18881711923692265, -0.19839032737660414, 0.9617636786063786),
        (-0.8606476680520013, -0.5041839369958746, 0.07130321978699085),
    ]
    np.testing.assert_array_equal(directions(3)[[0, 127]], np.float32(spec))
    assert directions(3).shape == (128, 3)
    assert directions(2).dtype == np.float32
    assert not directions(3).flags.writeable
    out = np.empty(5, np.float32)
    distances._resample(np.float32([0, 1, 4]), out)
    np.testing.assert_array_equal(out, np.float32([0, 0.5, 1, 2.5, 4]))


@pytest.mark.parametrize(("count", "error"), [(4096, 1.5e-4), (65536, 2.4e-3)])
def test_quantile_positions_carry_the_protocols_rounding(count, error):
    low, high, weight, rest = distances._steps(count, 8192)
    positions = low + weight.astype(np.float64)
    off = np.abs(positions - np.linspace(0, count - 1, 8192)).max()
    assert off == pytest.approx(error, rel=0.03)
    assert high.max() == count - 1
    assert ((high - low == 1) == (weight > 0)).all()
    np.testing.assert_array_equal(rest, 1 - weight)


def test_a_shift_costs_what_the_directions_make_of_it():
    x = rg(0).normal(size=(500, 3))
    costs = [semd(x, x + np.eye(3)[axis]) for axis in range(3)]
    assert costs == pytest.approx([0.6213, 0.5654, 0.5425], abs=1e-4)


@settings(max_examples=15, deadline=None)
@given(sizes, sizes, st.integers(1, 4), seeds)
def test_sliced_wasserstein_agrees_with_numpy(n, m, dim, seed):
    g = rg(seed)
    x, y = g.normal(size=(n, dim)), 1 + g.normal(size=(m, dim))
    assert semd(x, y) == pytest.approx(naive_semd(x, y), rel=1e-5)
    assert semd(x, y) == semd(y, x)
    assert semd(x, x[g.permutation(n)]) == 0


def test_as_many_rows_as_quantiles_are_taken_as_they_are():
    x, y = rg(3).normal(size=(8192, 2)), rg(4).normal(size=(8192, 2))
    assert semd(x, y) == pytest.approx(naive_semd(x, y), rel=1e-6)


def test_projections_are_made_once_for_many_comparisons():
    clouds = [rg(seed).normal(size=(300 + seed, 3)) for seed in range(3)]
    projected = [Projected(cloud) for cloud in clouds]
    for a, p in zip(clouds, projected, strict=True):
        for b, q in zip(clouds, projected, strict=True):
            assert semd_projected(p, q) == semd(a, b)
    with pytest.raises(ValueError, match="3 and 2 dimensions"):
        semd_projected(projected[0], Projected(np.zeros((4, 2))))


@settings(max_examples=25, deadline=None)
@given(sizes, sizes, st.integers(1, 4), st.floats(0.01, 3), seeds)
def test_chamfer_agrees_with_all_pairs(n, m, dim, cap, seed):
    g = rg(seed)
    x, y = g.normal(size=(n, dim)), g.normal(size=(m, dim)) * g.choice([0.01, 1, 100])
    assert bounded_chamfer(x, y, cap) == pytest.approx(naive_chamfer(x, y, cap), rel=1e-6, abs=1e-7)
    distance, index = nearest(x, y)
    gaps = cdist(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(distance, gaps.min(axis=1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(gaps[np.arange(n), index], distance, rtol=1e-6, atol=1e-7)
    assert distance.dtype == np.float32
    assert index.dtype == np.int64


def test_rows_that_are_not_finite_are_dropped():
    x = rg(5).normal(size=(50, 3))
    holed = np.insert(x, [0, 20, 50], [[np.nan, 0, 0], [0, np.inf, 0], [0, 0, 1e39]], axis=0)
    y = rg(6).normal(size=(60, 3))
    np.testing.assert_array_equal(clean(holed), x.astype(np.float32))
    assert bounded_chamfer(holed, y, 0.5) == bounded_chamfer(x, y, 0.5)
    assert semd(y, holed) == semd(y, x)
    np.testing.assert_array_equal(nearest(y, holed)[1], nearest(y, x)[1])


def test_empty_clouds():
    x, none, lost = np.ones((3, 3)), np.empty((0, 3)), np.full((2, 3), np.nan)
    assert bounded_chamfer(none, x, 0.5) == bounded_chamfer(x, none, 0.5) == 0.5
    assert bounded_chamfer(none, none, 0.25) == 0.25
    for ask in (
        lambda: semd(none, x),
        lambda: nearest(x, none),
        lambda: clean(lost),
        lambda: bounded_chamfer(x, lost, 0.5),
        lambda: Cloud(none),
    ):
        with pytest.raises(ValueError, match=EMPTY):
            ask()
    with pytest.raises(ValueError, match="shape"):
        clean(np.ones(3))


def test_far_apart_clouds_cost_the_cap_and_one_point_has_a_distance():
    x = rg(7).normal(size=(200, 3))
    assert bounded_chamfer(x, x + 100, 0.5) == 0.5
    beside = x[:1] + np.array([0.3, 0.4, 0])
    assert bounded_chamfer(x[:1], beside, 1) == pytest.approx(0.5)
    assert bounded_chamfer(x[:1], beside, 0.4) == pytest.approx(0.4)
    assert bounded_chamfer(x, x, 0.5) == 0
    assert bounded_chamfer(np.ones((5000, 3)), np.ones((4000, 3)), 0.5) == 0


def test_the_number_of_threads_changes_no_bit():
    x, y = rg(8).normal(size=(20_000, 3)), rg(9).normal(size=(30_000, 3)) + 0.1
    assert bounded_chamfer(x, y, 0.2, threads=1) == bounded_chamfer(x, y, 0.2, threads=2)
    for one, two in zip(nearest(x, y, threads=1), nearest(x, y, threads=2), strict=True):
        assert one.tobytes() == two.tobytes()


def test_noise_only_adds():
    x, shifts = rg(10).normal(size=(2000, 3)), rg(11).normal(size=(2000, 3))
    for distance in (semd, lambda a, b: bounded_chamfer(a, b, 0.5)):
        costs = [distance(x, x + amount * shifts) for amount in (0, 0.02, 0.1, 0.4, 1)]
        assert costs == sorted(costs)
        assert costs[0] == 0
