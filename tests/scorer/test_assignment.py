"""The assignment against SciPy's: the same least total, each column at most once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from scorer.geometry.assignment import assign


def check(cost: np.ndarray) -> None:
    partner = assign(cost)
    rows, columns = linear_sum_assignment(cost)
    found = np.flatnonzero(partner >= 0)
    assert partner.shape == (len(cost),)
    assert len(found) == len(rows)
    assert len(set(partner[found].tolist())) == len(found)
    best = cost[rows, columns].sum(dtype=np.float64)
    assert cost[found, partner[found]].sum(dtype=np.float64) == pytest.approx(
        best, rel=1e-9, abs=1e-9 * float(np.ptp(cost))
    )


def cloud(count: int, seed: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).normal(size=(count, 3))


def between(a: np.ndarray, b: np.ndarray, cap: float = np.inf) -> np.ndarray:
    return np.minimum(cdist(a, b), cap).astype(np.float32)


FAMILIES = {
    "uniform": lambda n: np.random.default_rng(0).random((n, n), dtype=np.float32),
    "two clouds": lambda n: between(cloud(n, 0), cloud(n, 1)),
    "the same cloud": lambda n: between(cloud(n, 0), cloud(n, 0)),
    "the same cloud and noise": lambda n: between(cloud(n, 0), cloud(n, 0) + 0.01 * cloud(n, 1)),
    "shifted and squeezed, capped": lambda n: between(cloud(n, 0), 0.6 * cloud(n, 0) + [0.4, 0.1, 0.0], 1.0),
    "mostly at the cap": lambda n: between(4 * cloud(n, 0), 4 * cloud(n, 1), 0.5),
    "all the same": lambda n: np.full((n, n), 1.0, np.float32),
    "zeros and ones": lambda n: np.random.default_rng(0).integers(0, 2, (n, n)).astype(np.float32),
    "equal rows": lambda n: np.broadcast_to(np.random.default_rng(0).random(n, dtype=np.float32), (n, n)),
    "rank one": lambda n: np.outer(np.arange(n), np.arange(n)).astype(np.float32),
    "negative": lambda n: -between(cloud(n, 0), cloud(n, 1)),
    "huge": lambda n: 1e30 * np.random.default_rng(0).random((n, n), dtype=np.float32),
    "tiny": lambda n: 1e-30 * np.random.default_rng(0).random((n, n), dtype=np.float32),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("count", [1, 2, 255, 257, 600])
def test_costs_of_every_kind(name: str, count: int) -> None:
    check(FAMILIES[name](count))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))
def test_small_whole_costs(seed: int, rows: int, columns: int, high: int) -> None:
    check(np.random.default_rng(seed).integers(0, high + 1, (rows, columns)).astype(np.float32))


@pytest.mark.parametrize("shape", [(200, 300), (300, 200), (1, 40), (40, 1)])
def test_sides_of_different_size(shape: tuple[int, int]) -> None:
    cost = between(cloud(shape[0], 0), cloud(shape[1], 1))
    check(cost)
    check(np.asfortranarray(cost))


def test_no_rows_and_no_columns() -> None:
    assert assign(np.zeros((0, 4), np.float32)).shape == (0,)
    np.testing.assert_array_equal(assign(np.zeros((3, 0), np.float32)), [-1, -1, -1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_a_cost_that_is_not_finite(bad: float) -> None:
    cost = np.ones((5, 5), np.float32)
    cost[3, 2] = bad
    with pytest.raises(ValueError, match="not finite"):
        assign(cost)


def test_the_matrix_is_left_alone_and_the_answer_repeats() -> None:
    cost = FAMILIES["shifted and squeezed, capped"](300)
    before = cost.copy()
    np.testing.assert_array_equal(assign(cost), assign(cost))
    np.testing.assert_array_equal(cost, before)
