"""Accuracy of systems on the question file, overall and by group, with intervals over scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vlm_judge import resample
from vlm_judge.answers import Item
from vlm_judge.questions import GROUPS, NO, YES

CATEGORY = "category"
TABLES = (CATEGORY, *GROUPS)
SMALL = 20
"""Cells with fewer questions than this are marked: their numbers say little."""
MEASURES = ("acc", "yes", "no", "bal")

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """Questions and hits. yes, no : accuracy on questions whose true answer is Yes, No; 0 without any, as
    published. bal : their mean. intervals : 95 % by measure, over scenes.
    """

    n: int
    n_yes: int
    n_no: int
    hits: int
    acc: float
    yes: float
    no: float
    bal: float
    miss: int
    asked: int
    intervals: dict[str, tuple[float, float] | None]

    def as_json(self) -> dict[str, Any]:
        values = {key: value for key, value in vars(self).items() if key != "intervals"}
        return values | {
            "small": self.n < SMALL,
            "intervals": {key: resample.bounds(value) for key, value in self.intervals.items()},
        }


def cell(items: Sequence[Item], boot: int, seed: int) -> Cell:
    """Score of some questions; ``boot`` 0 leaves the intervals out. Raises ``ValueError`` without items."""
    if not items:
        raise ValueError("no question to score")
    counts = by_scene(items)
    acc, yes, no, bal = (float(value[0]) for value in measures(counts.sum(axis=0)[None]))
    intervals: dict[str, tuple[float, float] | None] = {}
    if boot > 0:
        sampled = measures(resample.draws(len(counts), boot, seed) @ counts)
        intervals = {name: resample.interval(values) for name, values in zip(MEASURES, sampled, strict=True)}
    hits = sum(item.hit for item in items)
    yeses = sum(item.question.answer == YES for item in items)
    return Cell(
        n=len(items),
        n_yes=yeses,
        n_no=len(items) - yeses,
        hits=hits,
        acc=acc,
        yes=yes,
        no=no,
        bal=bal,
        miss=sum(item.missing for item in items),
        asked=sum(item.asked for item in items),
        intervals=intervals,
    )


def by_scene(items: Sequence[Item]) -> Counts:
    """float64 (scenes, 4), scenes by id: questions with answer Yes, hits among them, the same for No."""
    rows = {name: index for index, name in enumerate(sorted({item.scene.id for item in items}))}
    counts = np.zeros((len(rows), 4))
    for item in items:
        first = 0 if item.question.answer == YES else 2
        counts[rows[item.scene.id], first] += 1
        counts[rows[item.scene.id], first + 1] += item.hit
    return counts


def measures(totals: Counts) -> tuple[Counts, Counts, Counts, Counts]:
    """acc, yes, no, bal from (draws, 4) totals; acc is NaN for a draw without questions."""
    yes = totals[:, 1] / np.maximum(1, totals[:, 0])
    no = totals[:, 3] / np.maximum(1, totals[:, 2])
    asked = totals[:, 0] + totals[:, 2]
    hits = totals[:, 1] + totals[:, 3]
    acc = np.divide(hits, asked, out=np.full(len(totals), np.nan), where=asked > 0)
    return acc, yes, no, (yes + no) / 2


def grouped(items: Sequence[Item], table: str) -> dict[str, list[Item]]:
    """Items by label of one table, sorted by label. A question counts in each label that its scene has."""
    found: dict[str, list[Item]] = {}
    for item in items:
        labels = (item.question.category,) if table == CATEGORY else item.scene.groups[table]
        for label in labels:
            found.setdefault(label, []).append(item)
    return dict(sorted(found.items()))


def difference(
    first: Sequence[Item], second: Sequence[Item], boot: int, seed: int
) -> tuple[float, tuple[float, float] | None]:
    """Accuracy of the first system less that of the second on the same questions, and its 95 % interval by
    resampling scenes for both at once.
    """
    left, right = by_scene(first), by_scene(second)
    point = measures(left.sum(axis=0)[None])[0] - measures(right.sum(axis=0)[None])[0]
    if boot <= 0:
        return float(point[0]), None
    times = resample.draws(len(left), boot, seed)
    return float(point[0]), resample.interval(measures(times @ left)[0] - measures(times @ right)[0])


def baseline(items: Sequence[Item], answer: str) -> float:
    """Accuracy of always saying ``answer``."""
    assert answer in (YES, NO)
    return sum(item.question.answer == answer for item in items) / len(items)
