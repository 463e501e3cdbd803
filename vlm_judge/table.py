"""Ratings of one judge: fit, intervals, win matrix, groups, position bias."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.errors import UserError
from vlm_judge import position, ratings, resample
from vlm_judge.games import CORRUPT, COVERAGE, DRAW, GATED, JUDGED, Game, Games, win_matrices
from vlm_judge.ratings import Matrix

OVER_TASKS, OVER_COMPARISONS = "tasks", "comparisons"
LOSSES = {COVERAGE: "absent", CORRUPT: "corrupt", GATED: "gated"}
"""Games that were lost without a verdict, and what the loser's render was."""


@dataclass(frozen=True)
class Options:
    """How to rate. boot : bootstrap draws, 0 for none. over : what is resampled."""

    prior: float = 1.0
    boot: int = 200
    seed: int = 0
    over: str = OVER_TASKS
    judged_only: bool = False


@dataclass(frozen=True)
class System:
    """One row of the table. elo None: no game that counts. low, high : 95 % interval; None without draws."""

    name: str
    elo: float | None
    low: float | None
    high: float | None
    wins: float
    games: int
    as_a: int
    as_b: int
    lost: dict[str, int]
    draws_without: int


@dataclass(frozen=True)
class Table:
    """Everything about one judge. systems : best first. wins : in the order of ``systems``. above : share of
    bootstrap draws in which row stands above column.
    """

    judge: str
    found: Games
    systems: list[System]
    wins: Matrix
    above: list[list[float | None]]
    groups: list[list[str]]
    steps: int
    settled: bool
    position: position.Position

    def as_json(self) -> dict[str, Any]:
        """For the viewer and for scripts; strict JSON once written."""
        names = [system.name for system in self.systems]
        return {
            "judge": self.judge,
            "records": self.found.records,
            "left_out": dict(sorted(self.found.left_out.items())),
            "tasks": len(self.found.tasks),
            "systems": [vars(system) for system in self.systems],
            "win_matrix": {"systems": names, "wins": self.wins.tolist()},
            "above": {"systems": names, "probability": self.above},
            "groups": self.groups,
            "connected": len(self.groups) <= 1,
            "fit": {"steps": self.steps, "settled": self.settled},
            "position": vars(self.position),
            "orders": {"same": self.found.same_orders, "split": self.found.split_orders},
        }


def rate(judge: str, found: Games, options: Options) -> Table:
    """The table of one judge. Raises ``UserError`` where a prior of 0 leaves no finite rating."""
    games = [game for game in found.games if game.how == JUDGED or not options.judged_only]
    names = found.systems
    wins = win_matrices(games, names, [0] * len(games), 1)[0]
    point = ratings.fit(wins[None], options.prior)
    _check(point, names, wins, options)
    sampled = _sampled(games, found, options)
    elo = point.ratings[0]
    # Ties of rating by name: the same table from any order of rows.
    order = sorted(range(len(names)), key=lambda i: (-np.nan_to_num(elo[i], nan=-np.inf), names[i]))
    together = ratings.groups(wins)
    return Table(
        judge=judge,
        found=found,
        systems=[_system(names[i], float(elo[i]), sampled[:, i], games) for i in order],
        wins=wins[np.ix_(order, order)],
        above=_above(sampled[:, order]),
        groups=[[names[i] for i in group] for group in together],
        steps=point.steps,
        settled=point.settled,
        position=position.estimate(found.judged, names, options.prior),
    )


def _check(point: ratings.Fit, names: list[str], wins: Matrix, options: Options) -> None:
    if wins.any() and np.isnan(point.ratings).all():
        raise UserError(
            "without a prior the ratings are infinite: some systems never lost to, or never beat, the others",
            where="--prior 0",
            next_step="give --prior 1",
        )


def _sampled(games: list[Game], found: Games, options: Options) -> Matrix:
    """Ratings by draw, float64 (draws, systems); NaN where a system is not in a draw.

    As published, a draw over tasks holds every system that its records name, undecided ones included; but
    not a system that has no game anywhere.
    """
    names = found.systems
    if options.boot <= 0 or not games:
        return np.empty((0, len(names)))
    playing = {name for game in games for name in (game.a, game.b)}
    if options.over == OVER_TASKS:
        unit = {task: index for index, task in enumerate(found.tasks)}
        units, named = [unit[game.task] for game in games], found.named
    else:
        unit = {str(index): index for index in range(len(games))}
        units = list(range(len(games)))
        named = {(str(index), name) for index, game in enumerate(games) for name in (game.a, game.b)}
    times = resample.draws(len(unit), options.boot, options.seed)
    by_unit = win_matrices(games, names, units, len(unit)).reshape(len(unit), -1)
    wins = (times @ by_unit).reshape(options.boot, len(names), len(names))
    column = {name: index for index, name in enumerate(names)}
    member = np.zeros((len(unit), len(names)))
    for task, name in named:
        member[unit[task], column[name]] = name in playing
    return ratings.fit(wins, options.prior, times @ member > 0).ratings


def _system(name: str, elo: float, sampled: npt.NDArray[np.float64], games: list[Game]) -> System:
    own = [game for game in games if name in (game.a, game.b)]
    judged = [game for game in own if game.how == JUDGED]
    lost = Counter(game.how for game in own if game.share_of(name) == 0.0)
    rated = bool(np.isfinite(elo))
    low, high = (resample.interval(sampled) if rated else None) or (None, None)
    return System(
        name=name,
        elo=elo if rated else None,
        low=low,
        high=high,
        wins=sum(game.share_of(name) for game in own),
        games=len(own),
        as_a=sum(game.a == name for game in judged),
        as_b=sum(game.b == name for game in judged),
        lost={word: lost[how] for how, word in LOSSES.items()}
        | {"no verdict": sum(game.how == DRAW for game in own)},
        draws_without=int(np.isnan(sampled).sum()),
    )


def _above(sampled: Matrix) -> list[list[float | None]]:
    """Share of draws in which row stands above column (ties half), of those that rate both."""
    if not len(sampled):
        return []
    count = sampled.shape[1]
    shares: list[list[float | None]] = []
    for row in range(count):
        line: list[float | None] = []
        for column in range(count):
            both = np.isfinite(sampled[:, row]) & np.isfinite(sampled[:, column])
            gap = sampled[both, row] - sampled[both, column]
            line.append(
                None if row == column or not gap.size else float((gap > 0).mean() + (gap == 0).mean() / 2)
            )
        shares.append(line)
    return shares
