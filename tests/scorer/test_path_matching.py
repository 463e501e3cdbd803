"""The matching that leaves most pairs out against the one of all pairs, and the proofs that it rests on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from scorer.geometry import path_matching
from scorer.geometry.dtw import dtw_matrix, dtw_pairs, pack
from scorer.geometry.path_bounds import at_least, outlines
from scorer.geometry.path_matching import match_paths

FRAMES = 24


@pytest.fixture(autouse=True)
def _few_paths_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_matching, "_FEW", 2)


def walks(count: int, seed: int, spread: float = 0.3, step: float = 0.02) -> np.ndarray:
    g = np.random.default_rng(seed)
    start = spread * g.normal(size=(count, 1, 3))
    return (start + np.cumsum(step * g.normal(size=(count, FRAMES, 3)), axis=1)).astype(np.float32)


def with_gaps(paths: np.ndarray, seed: int, share: float = 0.3) -> np.ndarray:
    paths = paths.copy()
    paths[np.random.default_rng(seed).random(paths.shape[:2]) < share] = np.nan
    return paths


def body(count: int, seed: int, velocity: tuple[float, float, float]) -> np.ndarray:
    """Points of two balls, one of which flies."""
    g = np.random.default_rng(seed)
    start = 0.1 * g.normal(size=(count, 1, 3)) + np.where(np.arange(count) % 3, 0.0, 0.5)[:, None, None]
    moves = (np.arange(count) % 3 == 0)[:, None, None]
    t = np.linspace(0, 1, FRAMES)[:, None]
    return (start + moves * t * np.array(velocity)).astype(np.float32)


def lattice(count: int, seed: int) -> np.ndarray:
    """Coordinates on a coarse grid: costs and points coincide all over."""
    return np.round(4 * walks(count, seed, step=0.1)) / np.float32(4)


SCENES = {
    "walks": (walks(150, 0), walks(150, 1)),
    "gaps": (with_gaps(walks(150, 0), 2), with_gaps(walks(150, 1), 3)),
    "noise": (walks(120, 0, 0.2, 0.2), walks(120, 1, 0.2, 0.2)),
    "the same": (walks(150, 0), walks(150, 0)[::-1]),
    "the same and noise": (walks(150, 0), walks(150, 0) + 0.01 * walks(150, 1)),
    "bodies": (body(200, 0, (0.5, 0.2, 0.0)), body(200, 1, (0.3, 0.0, 0.4))),
    "lattice": (lattice(150, 0), lattice(150, 1)),
    "all equal": (np.repeat(walks(1, 0), 100, 0), np.repeat(walks(1, 1), 100, 0)),
    "at rest": (np.repeat(walks(150, 0)[:, :1], FRAMES, 1), np.repeat(walks(150, 1)[:, :1], FRAMES, 1)),
    "mostly at the cap": (walks(150, 0, 2.0), walks(150, 1, 2.0)),
    "all at the cap": (walks(90, 0), walks(90, 1) + np.float32(50)),
    "exploded": (walks(90, 0), walks(90, 1) * np.float32(1e9)),
    "one frame": (walks(90, 0)[:, :1], walks(90, 1)[:, :1]),
    "two paths": (walks(2, 0), walks(2, 1)),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("cap", [1.0, 0.3])
def test_the_total_is_that_of_all_pairs(name: str, cap: float) -> None:
    a, b = SCENES[name]
    gaps = dtw_matrix(a, b, cap)
    best = gaps[linear_sum_assignment(gaps)].sum(dtype=np.float64)
    partner, cost = match_paths(a, b, cap)
    assert sorted(partner) == list(range(len(a)))
    np.testing.assert_array_equal(cost, gaps[np.arange(len(a)), partner])
    assert cost.sum(dtype=np.float64) == pytest.approx(best, rel=1e-12, abs=1e-12 * len(a))


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (0, 4), (3, 0)])
def test_sides_of_different_size(shape: tuple[int, int]) -> None:
    a, b = walks(shape[0], 0), walks(shape[1], 1)
    gaps = dtw_matrix(a, b, 1.0)
    partner, cost = match_paths(a, b, 1.0)
    found = np.flatnonzero(partner >= 0)
    assert len(found) == min(shape)
    assert (cost[partner < 0] == 1.0).all()
    best = gaps[linear_sum_assignment(gaps)].sum(dtype=np.float64)
    assert cost[found].sum(dtype=np.float64) == pytest.approx(best, rel=1e-12)


def test_an_empty_path_costs_the_cap() -> None:
    a, b = walks(8, 0), walks(8, 1)
    a[3] = np.nan
    _, cost = match_paths(a, b, 1.0)
    assert cost[3] == 1.0


@pytest.mark.parametrize("name", ["gaps", "bodies", "lattice"])
def test_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_matching, "_PAIRS", 1000)
    one, two = (match_paths(*SCENES[name], 1.0, threads) for threads in (1, 2))
    for x, y in zip(one, two, strict=True):
        np.testing.assert_array_equal(x, y)


def test_most_pairs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = []
    plain = path_matching.align_pairs

    def counted(*arguments):
        worked.append(len(arguments[1]))
        return plain(*arguments)

    monkeypatch.setattr(path_matching, "align_pairs", counted)
    a, b = walks(300, 0, step=0.002), walks(300, 1, step=0.002)
    longer = [np.repeat(paths, 4, axis=1) for paths in (a, b)]
    match_paths(*longer, 1.0)
    assert 0 < sum(worked) < 0.2 * 300**2


@pytest.mark.parametrize("pieces", [4, 16, 28])
@pytest.mark.parametrize("name", [*SCENES])
def test_what_is_proven_is_so(name: str, pieces: int) -> None:
    """Limits just above and below each pair's cost, which a proof must not and need not reach."""
    left, right = (pack(paths) for paths in SCENES[name])
    if min(left.lengths.min(), right.lengths.min()) == 0:
        pytest.skip("an empty path has no outline")
    g = np.random.default_rng(0)
    first, second = g.integers(0, len(left.points), (2, 3000))
    cost = dtw_pairs(SCENES[name][0][first], SCENES[name][1][second])
    ours, theirs = outlines(left, pieces), outlines(right, pieces)
    for share in (0.2, 0.6, 0.9, 1.0, 1.0 + 1e-6, 1.01):
        limit = np.maximum(np.float32(share) * cost, np.float32(1e-12))
        proven = at_least(ours, first, theirs, second, limit)
        assert (cost[proven] >= limit[proven]).all()


def test_paths_at_rest_are_proven_to_their_distance() -> None:
    left, right = (pack(paths) for paths in SCENES["at rest"])
    every = np.arange(len(left.points))
    limit = np.linalg.norm(left.points[:, 0] - right.points[:, 0], axis=1) * np.float32(0.999)
    assert at_least(outlines(left, 16), every, outlines(right, 16), every, limit).all()


def test_outlines_hold_their_paths() -> None:
    paths = pack(SCENES["gaps"][0])
    found = outlines(paths, 8)
    np.testing.assert_array_equal(found[:, :, 4].sum(axis=1), paths.lengths)
    for path, length, balls in zip(paths.points, paths.lengths, found, strict=True):
        piece = np.repeat(np.arange(8), balls[:, 4].astype(int))
        away = np.linalg.norm(path[:length].astype(float) - balls[piece, :3].astype(float), axis=1)
        assert (away <= balls[piece, 3]).all()
    with pytest.raises(ValueError, match=r"^6 pieces are no multiple of 4$"):
        outlines(paths, 6)
