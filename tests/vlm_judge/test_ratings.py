"""Ratings: the published numbers, an independent fit, and what must not change or break them."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import choix
import numpy as np
import pytest
import scipy.optimize
from judge_lab import comparison, naive_elo, tournament

from contract.errors import UserError
from vlm_judge import ratings, resample
from vlm_judge.games import collect, win_matrices
from vlm_judge.table import Options, System, Table, rate


def table(rows: list[dict[str, Any]], **options: Any) -> Table:
    return rate("j", collect(rows), Options(**{"boot": 0, **options}))


def elo(found: Table) -> dict[str, float | None]:
    return {system.name: system.elo for system in found.systems}


def named(found: Table, name: str) -> System:
    return next(system for system in found.systems if system.name == name)


def test_the_published_small_fit(reference: Any) -> None:
    for case in reference["bt_toy"]["fits"]:
        found = elo(table(reference["bt_toy"]["rows"], prior=case["prior"]))
        assert found == pytest.approx(case["elo"], abs=1e-6)
    found = table(reference["bt_toy"]["rows"])
    assert [(s.name, s.wins, s.games) for s in found.systems] == [("x", 3, 5), ("y", 2.5, 5), ("z", 1.5, 4)]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(0, {"x": (-86, 291), "y": (-101, 204), "z": (-301, 106)}),
     (1, {"x": (-44, 373), "y": (-161, 121), "z": (-365, 90)})],
)  # fmt: skip
def test_the_published_bootstrap(reference: Any, seed: int, expected: dict[str, tuple[int, int]]) -> None:
    found = table(reference["bt_toy"]["rows"], boot=50, seed=seed)
    assert {s.name: (round(s.low or 0), round(s.high or 0)) for s in found.systems} == expected


def test_one_win_and_the_percentile_rule() -> None:
    assert elo(table([comparison("s", "x", "y", "x")])) == pytest.approx(
        {"x": 131.384, "y": -131.384}, abs=1e-3
    )
    assert resample.interval([5, 1, 4, 2, 3]) == pytest.approx((1.1, 4.9))
    assert resample.interval([np.nan]) is None


@pytest.mark.parametrize("prior", [0.25, 1.0, 10.0])
def test_against_the_published_loop(prior: float) -> None:
    rows = tournament(120, 6, 12)
    assert elo(table(rows, prior=prior)) == pytest.approx(naive_elo(rows, prior, 3_000), abs=1e-7)


def test_without_a_prior_against_choix() -> None:
    rows = tournament(800, 7, 30)
    found = collect(rows)
    wins = win_matrices(found.games, found.systems, [0] * len(found.games), 1)[0]
    theirs = choix.ilsr_pairwise_dense(wins, alpha=0.0, tol=1e-12)
    theirs = (theirs - theirs.mean()) * 400 / np.log(10)
    ours = elo(table(rows, prior=0.0))
    assert ours == pytest.approx(dict(zip(found.systems, theirs, strict=True)), abs=1e-5)


def test_the_prior_is_a_penalised_likelihood_where_the_mean_is_free() -> None:
    """Two systems: renormalising moves nothing, so the fit is the posterior mode, which scipy finds."""
    rows = [comparison(f"s{i}", "x", "y", "x" if i < 7 else "y") for i in range(9)]

    def loss(theta: np.ndarray) -> float:
        def log_chance(value: float) -> float:
            return float(-np.logaddexp(0, -value))

        gap = theta[0] - theta[1]
        games = 7 * log_chance(gap) + 2 * log_chance(-gap)
        prior = sum(0.5 * (log_chance(value) + log_chance(-value)) for value in theta)
        return -games - prior

    best = scipy.optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-10}).x
    assert elo(table(rows))["x"] == pytest.approx(best[0] * 400 / np.log(10), abs=1e-3)


def test_any_order_of_rows_gives_the_same_bits() -> None:
    rows = tournament(300, 8, 20)
    first = table(rows, boot=30)
    random.Random(1).shuffle(rows)
    second = table(rows, boot=30)
    assert first.as_json() == second.as_json()
    over = [table(r, boot=30, over="comparisons").as_json() for r in (rows, rows[::-1])]
    assert over[0] == over[1]


def test_names_do_not_matter() -> None:
    rows = tournament(300, 6, 20)
    other = {f"m{i:02d}": f"{chr(122 - i)}-{i}" for i in range(6)}
    renamed = [r | {key: other.get(r[key]) for key in ("a", "b", "winner")} for r in rows]
    first, second = elo(table(rows)), elo(table(renamed))
    assert {other[name]: value for name, value in first.items()} == pytest.approx(second, abs=1e-8)


def test_undefeated_and_winless_systems_have_finite_ratings_and_intervals() -> None:
    rows = [
        comparison(f"s{i}", *pair, min(pair)) for i in range(6) for pair in itertools.combinations("abc", 2)
    ]
    found = table(rows, boot=50)
    assert [s.name for s in found.systems] == ["a", "b", "c"]
    numbers = [v for s in found.systems for v in (s.elo, s.low, s.high)]
    assert np.isfinite(np.array(numbers, dtype=float)).all()
    assert found.settled
    with pytest.raises(UserError, match="--prior 1"):
        table(rows, prior=0.0)


def test_groups_that_never_met_are_reported() -> None:
    rows = [
        comparison("s", "a", "b", "a"),
        comparison("s", "c", "d", "c"),
        comparison("t", "e", "a", None, "error"),
    ]
    found = table(rows, boot=20)
    assert found.groups == [["a", "b"], ["c", "d"]]
    assert named(found, "e").elo is None
    assert named(found, "e").games == 0
    assert sum(s.elo for s in found.systems if s.elo is not None) == pytest.approx(0, abs=1e-9)
    assert found.as_json()["connected"] is False


def test_systems_that_a_draw_does_not_hold_are_counted() -> None:
    """The public program dies on these: seven rows, some draws without one of the systems."""
    rows = [comparison(f"s{i}", "x", "y", "x") for i in range(6)] + [comparison("s9", "x", "z", "z")]
    for seed in range(6):
        found = table(rows, boot=1, seed=seed)
        z = named(found, "z")
        assert (z.low is None) == (z.draws_without == 1)
    assert any(named(table(rows, boot=1, seed=seed), "z").draws_without for seed in range(6))


def test_only_undecided_records() -> None:
    found = table([comparison("s", "x", "y", None, "error")], boot=10)
    assert [s.elo for s in found.systems] == [None, None]
    assert found.found.left_out == {"error": 1}


def test_lost_without_a_verdict_is_counted_by_reason() -> None:
    rows = [
        comparison("s1", "x", "y", "x", "coverage"), comparison("s2", "y", "x", "x", "corrupt"),
        comparison("s3", "x", "y", "x", "gated"), comparison("s4", "x", "y", None, "draw"),
        comparison("s5", "x", "y", "y"), comparison("s6", "x", "y", None, "error:CalledProcessError"),
        comparison("s7", "x", "y", "stranger"),
    ]  # fmt: skip
    found = table(rows)
    assert named(found, "y").lost == {"absent": 1, "corrupt": 1, "gated": 1, "no verdict": 1}
    assert (named(found, "x").wins, named(found, "x").games) == (3.5, 5)
    assert found.found.left_out == {"error": 1, "invalid": 1}
    assert named(table(rows, judged_only=True), "x").games == 1


def test_two_orders_of_a_pair_are_one_comparison() -> None:
    both = {"both_orders": True}
    rows = [
        comparison("s1", "x", "y", "x", **both), comparison("s1", "y", "x", "x", **both),
        comparison("s2", "x", "y", "x", **both), comparison("s2", "y", "x", "y", **both),
        comparison("s3", "x", "y", "x", **both), comparison("s4", "x", "y", "x", "coverage", **both),
    ]  # fmt: skip
    found = collect(rows)
    assert sorted((g.task, g.share_of("x")) for g in found.games) == [("s1", 1.0), ("s2", 0.5), ("s4", 1.0)]
    assert (found.same_orders, found.split_orders) == (1, 1)
    assert found.left_out == {"one order only": 1}
    plain = [{k: v for k, v in row.items() if k != "both_orders"} for row in rows]
    assert len(collect(plain).games) == 6
    assert sorted(collect(plain, both_orders=True).games) == sorted(found.games)


def test_the_advantage_of_being_shown_first_against_scipy() -> None:
    rows = [row for row in tournament(900, 5, 40, bias=80.0) if row["how"] == "judged"]
    place = table(rows).position
    names = sorted({row["a"] for row in rows})

    def loss(theta: np.ndarray) -> float:
        value = 0.0
        for row in rows:
            odds = theta[names.index(row["a"])] - theta[names.index(row["b"])] + theta[-1]
            value += np.logaddexp(0, -odds if row["winner"] == row["a"] else odds)
        return float(value + sum(0.5 * np.logaddexp(0, t) + 0.5 * np.logaddexp(0, -t) for t in theta[:-1]))

    best = scipy.optimize.minimize(
        loss, np.zeros(6), method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}
    )
    assert place.log_odds == pytest.approx(best.x[-1], abs=1e-4)
    assert place.points == pytest.approx((place.log_odds or 0) * 400 / np.log(10))
    step = 1e-3
    curved = np.array([[_second(loss, best.x, i, j, step) for j in range(6)] for i in range(6)])
    assert place.error == pytest.approx(np.sqrt(np.linalg.inv(curved)[-1, -1]), rel=1e-3)
    assert place.first == sum(row["winner"] == row["a"] for row in rows) / len(rows)


def _second(loss: Any, at: np.ndarray, i: int, j: int, step: float) -> float:
    left, right = np.eye(len(at))[i] * step, np.eye(len(at))[j] * step
    return float(loss(at + left + right) - loss(at + left - right) - loss(at - left + right)
                 + loss(at - left - right)) / (4 * step * step)  # fmt: skip


def test_a_judge_that_always_says_first_has_no_finite_estimate() -> None:
    place = table([comparison(f"s{i}", *pair, pair[0]) for i in range(3) for pair in ("xy", "yx")]).position
    assert (place.judged, place.first, place.log_odds, place.points) == (6, 1.0, None, None)


def test_above_is_a_probability() -> None:
    found = table(tournament(300, 4, 20), boot=40)
    for i, line in enumerate(found.above):
        for j, share in enumerate(line):
            assert (share is None) == (i == j)
            if share is not None:
                assert share + (found.above[j][i] or 0) == pytest.approx(1.0)
    assert found.above[0][3] == 1.0


def test_closures() -> None:
    chain = np.zeros((1, 5, 5))
    for index in range(4):
        chain[0, index, index + 1] = 1
    assert ratings.reachable(chain > 0)[0, 0].all()
    present = np.ones((1, 5), dtype=bool)
    assert not ratings.strongly_connected(chain, present)[0]
    chain[0, 4, 0] = 1
    assert ratings.strongly_connected(chain, present)[0]


def test_two_hundred_draws_of_the_published_size_are_quick() -> None:
    rows = tournament(2_221, 17, 200)
    begun = time.process_time()
    table(rows, boot=200)
    assert time.process_time() - begun < 2.0
