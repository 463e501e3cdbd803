"""The query grid against the published examples (golden G8) and its own promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.analytic.grid import COUNT, DRIFT, grid_queries, grid_step, inside, lattice


@pytest.mark.parametrize(
    ("width", "height", "step", "queries"),
    [(1280, 720, 21, 2040), (1920, 1080, 32, 1980), (854, 480, 15, 1792), (512, 512, 12, 1764)],
)
def test_g8_plain(width, height, step, queries):
    assert grid_step(height, width, COUNT) == step
    found = grid_queries(height, width)
    assert found.shape == (queries, 3)
    assert found.dtype == np.float32
    assert (found[:, 0] == 0).all()


def test_g8_first_and_last_nodes():
    found = grid_queries(720, 1280)
    assert found[0].tolist() == [0, 20.5, 13.5]
    assert found[-1].tolist() == [0, 1259.5, 706.5]
    assert (np.diff(found[:60, 1]) == 21).all()  # x runs first


def test_g8_mask():
    mask = np.zeros((720, 1280), bool)
    mask[300:420, 500:760] = True
    assert grid_step(720, 1280, DRIFT) == 42
    assert grid_step(720, 1280, COUNT - DRIFT, mask) == 5
    found = grid_queries(720, 1280, mask=mask)
    assert len(found) == 1758
    on_mask = inside(found[:, 1:].astype(float), mask)
    assert on_mask.sum() == 1266
    coarse = lattice(720, 1280, 42)
    assert (found[: len(coarse), 1:] == coarse.astype(np.float32)).all()
    assert on_mask[len(coarse) :].all()


def test_the_plain_lattice_is_kept_unless_the_mask_gains_nodes():
    plain = grid_queries(120, 160)
    assert (grid_queries(120, 160, mask=np.zeros((120, 160), bool)) == plain).all()
    kept = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        mask = np.zeros((60, 80), bool)
        y, x, size = rng.integers(0, 50), rng.integers(0, 70), rng.integers(1, 40)
        mask[y : y + size, x : x + size] = True
        count = int(rng.integers(1, 1500))
        plain, found = grid_queries(60, 80, count), grid_queries(60, 80, count, mask)
        on_plain, on_found = (inside(q[:, 1:].astype(float), mask).sum() for q in (plain, found))
        same = plain.shape == found.shape and (plain == found).all()
        kept += same
        assert same or on_found > on_plain
    assert 0 < kept < 30


def test_truncation_at_the_border():
    mask = np.zeros((4, 5), bool)
    mask[0, 0] = mask[3, 4] = True
    points = np.array([[0.99, 0.99], [1.0, 0.0], [4.99, 3.99], [7.0, 9.0], [-0.5, -3.0]])
    assert inside(points, mask).tolist() == [True, False, True, True, True]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 600))
def test_the_step_is_the_first_that_fits(height, width, count):
    step = grid_step(height, width, count)
    assert (height // step) * (width // step) <= count
    start = max(1, round((height * width / count) ** 0.5))
    for smaller in range(start, step):
        assert (height // smaller) * (width // smaller) > count
    nodes = lattice(height, width, step)
    assert len(nodes) == max(1, height // step) * max(1, width // step)
    # The margins are the same on opposite sides.
    assert nodes[:, 0].min() == width - nodes[:, 0].max()
    assert nodes[:, 1].min() == height - nodes[:, 1].max()
