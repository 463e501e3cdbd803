"""From pairwise records to games: who won, and what is left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vlm_judge.ratings import Matrix
from vlm_judge.records import Row, text_of

JUDGED, COVERAGE, GATED, CORRUPT, DRAW, ERROR = "judged", "coverage", "gated", "corrupt", "draw", "error"
DECIDED = (JUDGED, COVERAGE, GATED, CORRUPT)
"""Outcomes with a winner."""
ONE_ORDER = "one order only"
"""Why a pair that was to be judged in both orders does not count (yet)."""
SUPERSEDED = "superseded"
"""A render, prompt or setting has changed since, and there is a newer record."""
INVALID = "invalid"


@dataclass(frozen=True, order=True)
class Game:
    """A decided comparison: ``share`` of it that ``a`` (shown first) won, 1, ½ or 0."""

    task: str
    a: str
    b: str
    share: float
    how: str
    trial: str = ""

    @property
    def pair(self) -> tuple[str, str, str, str]:
        """Scene, trial and the two systems in alphabetical order."""
        return self.task, self.trial, min(self.a, self.b), max(self.a, self.b)

    def share_of(self, system: str) -> float:
        return self.share if system == self.a else 1.0 - self.share


@dataclass
class Games:
    """What one judge's records say.

    systems : every name in ``a`` or ``b``, sorted. tasks : every scene, those without a game too.
    named : scene and system of every record. games : what counts, sorted. judged : the model's verdicts
    one by one, before the two orders of a pair are put together. left_out : how many records count nothing,
    by reason. records : all of them.
    """

    systems: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    named: set[tuple[str, str]] = field(default_factory=set)
    games: list[Game] = field(default_factory=list)
    judged: list[Game] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    records: int = 0
    split_orders: int = 0
    same_orders: int = 0


def collect(rows: Iterable[Row], *, both_orders: bool = False) -> Games:
    """Games of the records of one judge, the same from any order of rows.

    both_orders : take all verdicts on one pair of renders as one comparison, which is a tie when they
    disagree. Records that ``pairwise --both-orders`` wrote ask for that themselves.
    """
    found = Games()
    names: set[str] = set()
    tasks: set[str] = set()
    verdicts: dict[tuple[str, str, str, str], list[Game]] = {}
    together: set[tuple[str, str, str, str]] = set()
    rows = list(rows)
    newest = _newest(rows)
    for row in rows:
        found.records += 1
        a, b = text_of(row, "a"), text_of(row, "b")
        task = text_of(row, "scene") or text_of(row, "case")
        names.update(name for name in (a, b) if name)
        tasks.update([task] if task else [])
        found.named |= {(task, name) for name in (a, b) if name and task}
        game = _game(row, task, a, b) if newest.get(_place(row), row) is row else SUPERSEDED
        if isinstance(game, str):
            found.left_out[game] += 1
            continue
        if game.how != JUDGED:
            found.games.append(game)
            continue
        found.judged.append(game)
        verdicts.setdefault(game.pair, []).append(game)
        if both_orders or row.get("both_orders") is True:
            together.add(game.pair)
    for pair, own in verdicts.items():
        if pair in together:
            _put_together(own, found)
        else:
            found.games += own
    found.systems, found.tasks = sorted(names), sorted(tasks)
    found.games.sort()
    found.judged.sort()
    return found


def _newest(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """The last record of each comparison, of those that our program wrote (they carry key and time)."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        place = _place(row)
        if not place:
            continue
        other = found.get(place)
        if other is None or _rank(row) > _rank(other):
            found[place] = row
    return found


def _place(row: Row) -> tuple[str, ...]:
    """Which comparison a record of ours is about; empty for records of others. With both orders each order is
    one of its own, unless nobody had to be asked.
    """
    if not text_of(row, "key") or not text_of(row, "time"):
        return ()
    a, b = text_of(row, "a"), text_of(row, "b")
    ordered = row.get("both_orders") is True and text_of(row, "how") in (JUDGED, ERROR)
    sides = (a, b) if ordered else (min(a, b), max(a, b), "any order")
    return text_of(row, "scene"), str(row.get("trial")), *sides


def _rank(row: Row) -> tuple[bool, str, str]:
    """Decided before undecided, then the later one; the key only makes it the same from any order of rows."""
    return text_of(row, "how") != ERROR, text_of(row, "time"), text_of(row, "key")


def _game(row: Row, task: str, a: str, b: str) -> Game | str:
    """The record's game, or why it has none."""
    how, winner = text_of(row, "how"), text_of(row, "winner")
    trial = str(row["trial"]) if row.get("trial") not in (None, 1) else ""
    if not a or not b or a == b or not task:
        return INVALID
    if how == DRAW:
        return Game(task, a, b, 0.5, DRAW, trial)
    if how in DECIDED and winner:
        return Game(task, a, b, float(winner == a), how, trial) if winner in (a, b) else INVALID
    return ERROR if how in DECIDED or how.startswith(ERROR) else how or INVALID


def _put_together(verdicts: Sequence[Game], found: Games) -> None:
    """One game of all verdicts on a pair; both orders must be there."""
    if len({game.a for game in verdicts}) < 2:
        found.left_out[ONE_ORDER] += len(verdicts)
        return
    task, trial, first, second = verdicts[0].pair
    shares = {game.share_of(first) for game in verdicts}
    share = shares.pop() if len(shares) == 1 else 0.5
    found.split_orders += share == 0.5
    found.same_orders += share != 0.5
    found.games.append(Game(task, first, second, share, JUDGED, trial))


def win_matrices(games: Sequence[Game], systems: Sequence[str], units: Sequence[int], count: int) -> Matrix:
    """Wins by unit of resampling, float64 (count, systems, systems): how often row beat column, ties as
    halves. ``units`` gives each game's unit. Sums of halves are exact, so no order of games changes a bit.
    """
    column = {name: index for index, name in enumerate(systems)}
    wins = np.zeros((count, len(systems), len(systems)))
    for game, unit in zip(games, units, strict=True):
        a, b = column[game.a], column[game.b]
        wins[unit, a, b] += game.share
        wins[unit, b, a] += 1.0 - game.share
    return wins
