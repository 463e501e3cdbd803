"""Records, question files and an independent Bradley–Terry for tests of the judge."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    """Records of a file of whole lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, content: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return path


def comparison(scene: str, a: str, b: str, winner: str | None, how: str = "judged", **more: Any) -> Row:
    return {"scene": scene, "kind": "real", "a": a, "b": b, "winner": winner, "how": how, **more}


def tournament(count: int, systems: int, scenes: int, seed: int = 4, bias: float = 60.0) -> list[Row]:
    """Random comparisons of systems 100 points apart, ``bias`` points in favour of the first shown."""
    source = random.Random(seed)
    names = [f"m{index:02d}" for index in range(systems)]
    found = []
    for _ in range(count):
        a, b = source.sample(range(systems), 2)
        chance = 1 / (1 + 10 ** (-((a - b) * 100 + bias) / 400))
        how = source.choices(["judged", "gated", "coverage", "error", "draw"], [78, 15, 4, 2, 1])[0]
        winner = (a if source.random() < chance else b) if how not in ("error", "draw") else None
        scene = f"s{source.randrange(scenes):03d}"
        named = None if winner is None else names[winner]
        found.append(comparison(scene, names[a], names[b], named, how))
    return found


def naive_elo(records: Sequence[Row], prior: float, steps: int = 9_000) -> dict[str, float]:
    """The published fit as plain loops: no tolerance, every name in the records takes part."""
    names = sorted({row[side] for row in records for side in "ab"})
    wins = dict.fromkeys(names, 0.0)
    games: dict[tuple[str, str], int] = {}
    for row in records:
        if row["how"] == "draw":
            wins[row["a"]] += 0.5
            wins[row["b"]] += 0.5
        elif row["how"] in ("judged", "coverage", "gated") and row["winner"]:
            wins[row["winner"]] += 1
        else:
            continue
        for pair in ((row["a"], row["b"]), (row["b"], row["a"])):
            games[pair] = games.get(pair, 0) + 1
    strength = dict.fromkeys(names, 1.0)
    for _ in range(steps):
        new = {}
        for name in names:
            below = prior / (strength[name] + 1) + sum(
                games[name, other] / (strength[name] + strength[other])
                for other in names
                if (name, other) in games
            )
            new[name] = (wins[name] + prior / 2) / below
        mean = math.exp(sum(map(math.log, new.values())) / len(new))
        strength = {name: value / mean for name, value in new.items()}
    return {name: 400 * math.log10(value) for name, value in strength.items()}


def question_file(path: Path, scenes: Sequence[str], kind: str = "synthetic") -> Path:
    """Each scene with a presence question, one whose answer is Yes and one whose answer is No."""

    def asked(scene: str) -> list[Row]:
        return [
            {"id": "Q0", "question": f"Is there something like {scene}?", "options": ["Yes", "No"],
             "answer": "Yes", "category": "presence"},
            {"id": "Q1", "question": f"Does {scene} move?", "options": ["Yes", "No"], "answer": "Yes",
             "category": "key_event"},
            {"id": "Q2", "question": f"Does {scene} burn?", "options": ["Yes", "No"], "answer": "No",
             "category": "last_frame"},
        ]  # fmt: skip

    entries = [
        {"id": scene, "kind": kind, "families": ["rigidfam"] if index % 2 else ["rigidfam", "softfam"],
         "materials": ["rigid"], "questions": asked(scene)}
        for index, scene in enumerate(scenes)
    ]  # fmt: skip
    path.write_text(json.dumps({"scenes": entries}), encoding="utf-8")
    return path


def answer(scene: str, question: str, pred: str | None, system: str = "s", **more: Any) -> Row:
    true = {"Q0": "Yes", "Q1": "Yes", "Q2": "No"}[question]
    return {"scene": scene, "kind": "synthetic", "id": question, "category": "x", "answer": true,
            "pred": pred,
            "correct": pred == true, "missing": pred == "Missing", "system": system, **more}  # fmt: skip
