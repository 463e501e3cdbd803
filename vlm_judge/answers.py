"""From answer records to what each system was right about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vlm_judge.questions import MISSING, NO, PRESENCE, YES, Question, Scene
from vlm_judge.records import Row, text_of

ABSENT, CORRUPT, GATED = "absent", "corrupt", "gated"
UNASKED = (ABSENT, CORRUPT, GATED)
"""Why a scene was not put to the judge; ``how`` of a record without a question."""
PREDICTIONS = (YES, NO, MISSING)
Key = tuple[str, str]
"""Scene id, question id."""


@dataclass
class Answers:
    """The last word of one judge on one system, whatever the order of rows where they carry times.

    said : prediction by question, None where the judge gave none. unasked : reason by scene.
    conflicts : questions with different answers of the same time, of which the later line counts.
    unknown : records of questions or scenes that the question file does not have.
    """

    said: dict[Key, str | None] = field(default_factory=dict)
    unasked: dict[str, str] = field(default_factory=dict)
    conflicts: set[Key] = field(default_factory=set)
    unknown: int = 0

    def dead(self, scenes: Iterable[Scene]) -> set[str]:
        """Scenes in which the judge did not confirm what they are about, by its last word."""
        truth = {s.id: q.answer for s in scenes for q in s.questions if q.presence}
        return {
            scene
            for (scene, question), said in self.said.items()
            if question == PRESENCE and said != truth.get(scene, YES)
        }


def collect(rows: Sequence[Row], scenes: Sequence[Scene]) -> Answers:
    """The last word on every question: by time, then answers before silence, then by line.

    A record without a question says why its scene was not asked, and takes back earlier answers about it.
    """
    known = {(scene.id, question.id) for scene in scenes for question in scene.questions}
    names = {scene.id for scene in scenes}
    found = Answers()
    times: dict[Key, str] = {}
    ordered = sorted(
        enumerate(rows), key=lambda item: (text_of(item[1], "time"), _answered(item[1]), item[0])
    )
    for _, row in ordered:
        scene, how = text_of(row, "scene"), text_of(row, "how")
        if row.get("id") is None and how in UNASKED and scene in names:
            found.unasked[scene] = how
            for key in [key for key in found.said if key[0] == scene]:
                del found.said[key]
            continue
        key = (scene, text_of(row, "id"))
        if key not in known:
            found.unknown += 1
            continue
        pred = prediction(row)
        if found.said.get(key) not in (None, pred) and times[key] == text_of(row, "time"):
            found.conflicts.add(key)
        found.said[key], times[key] = pred, text_of(row, "time")
        found.unasked.pop(scene, None)
    return found


def prediction(row: Row) -> str | None:
    """What the judge said; None when it is none of the three words."""
    pred = text_of(row, "pred")
    return pred if pred in PREDICTIONS else None


def _answered(row: Row) -> bool:
    return prediction(row) is not None


@dataclass(frozen=True)
class Item:
    """A scored question of the file with the system's state: right (and its scene alive), flagged Missing,
    asked.
    """

    scene: Scene
    question: Question
    hit: bool
    missing: bool
    asked: bool


def items(answers: Answers, scenes: Sequence[Scene], *, presence: bool = True) -> list[Item]:
    """One item per scored question of the file, in file order; what was not asked is wrong.

    presence : a scene whose presence question was not answered truly has no right answers.
    """
    dead = answers.dead(scenes) if presence else set()
    found = []
    for scene in scenes:
        for question in scene.scored:
            key = (scene.id, question.id)
            said = answers.said.get(key)
            hit = said == question.answer and scene.id not in dead
            found.append(Item(scene, question, hit, said == MISSING, key in answers.said))
    return found


def reasons(answers: Answers) -> dict[str, int]:
    """Scenes that were not asked, by reason."""
    count = Counter(answers.unasked.values())
    return {reason: count[reason] for reason in UNASKED}
