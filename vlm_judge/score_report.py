"""``judge.py score``: tables of accuracy from answer records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from contract.errors import EXIT_OK, UserError
from contract.record import dumps, finite
from vlm_judge import agreement, answers, questions, score
from vlm_judge.answers import Answers, Item
from vlm_judge.console import out, warn
from vlm_judge.csvtext import csv_text
from vlm_judge.judges import by_judge, mixed_settings
from vlm_judge.questions import NO, YES, Scene
from vlm_judge.records import Row, read_rows, text_of
from vlm_judge.score import Cell

SCHEMA = "vlm-judge-score/1"
_SHOWN_TABLES = (score.CATEGORY, "family", "material_family", "material", "kind")
_OVERALL = "overall"


@dataclass(frozen=True)
class Scored:
    """One system before one judge. tables : cells by table and label."""

    judge: str
    system: str
    answers: Answers
    dead: int
    items: list[Item]
    overall: Cell
    tables: dict[str, dict[str, Cell]]

    def as_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            **self.overall.as_json(),
            "dead_scenes": self.dead,
            "unasked_scenes": answers.reasons(self.answers),
            "by": {
                table: {label: cell.as_json() for label, cell in cells.items()}
                for table, cells in self.tables.items()
            },
        }


def main(given: argparse.Namespace) -> int:
    """Read, score, print. Raises ``UserError`` on unreadable files and where there is nothing to score."""
    file = questions.load(Path(given.questions or questions.default_file()))
    if not any(scene.scored for scene in file.scenes):
        raise UserError("has no question to score", where=file.path)
    if given.boot < 0:
        raise UserError("cannot be negative", where="--boot")
    read = read_rows(Path(given.answers))
    rows = [row for row in read.rows if text_of(row, "system") and text_of(row, "scene")]
    if not rows:
        raise UserError("holds no answer", where=given.answers, next_step="judge.py vqa --out …")
    notes = [*read.warnings]
    if len(rows) < len(read.rows):
        notes.append(f"{len(read.rows) - len(rows)} records are no answers and were skipped")
    found: list[Scored] = []
    for judge, own in by_judge(rows, given.judge, notes).items():
        notes += mixed_settings(judge, own)
        found += scored(judge, own, file.scenes, not given.no_presence, given.boot, given.seed)
    notes += [note for entry in found for note in _notes(entry)]
    agreed = agreement.between(_decisions(found))
    for note in notes:
        warn(note)
    if given.json:
        out(dumps(finite(as_json(file, found, agreed, notes, given))), end="")
    elif given.csv:
        out(csv_text(_flat(found)), end="")
    else:
        out(text(found, given.boot))
        if agreed:
            out("\n" + "\n".join(entry.line() for entry in agreed))
    return EXIT_OK


def scored(
    judge: str, rows: Sequence[Row], scenes: Sequence[Scene], presence: bool, boot: int, seed: int
) -> list[Scored]:
    """Every system of one judge's records, best first (hits, then name, both descending)."""
    by_system: dict[str, list[Row]] = {}
    for row in rows:
        trial = row.get("trial")
        name = text_of(row, "system") + (f"/{trial}" if trial not in (None, 1) else "")
        by_system.setdefault(name, []).append(row)
    found = []
    for system, own in by_system.items():
        said = answers.collect(own, scenes)
        items = answers.items(said, scenes, presence=presence)
        tables = {
            table: {
                label: score.cell(part, boot, seed) for label, part in score.grouped(items, table).items()
            }
            for table in score.TABLES
        }
        dead = len(said.dead(scenes)) if presence else 0
        found.append(Scored(judge, system, said, dead, items, score.cell(items, boot, seed), tables))
    return sorted(found, key=lambda entry: (entry.overall.hits, entry.system), reverse=True)


def as_json(
    file: questions.QuestionFile,
    found: Sequence[Scored],
    agreed: Sequence[agreement.Agreement],
    notes: Sequence[str],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """All of it. ``differences``: accuracy of a system less that of the next below it."""
    first = found[0].overall
    judges = {entry.judge: [other for other in found if other.judge == entry.judge] for entry in found}
    return {
        "schema": SCHEMA,
        "questions": {
            "file": file.path.name,
            "n": first.n,
            "yes": first.n_yes,
            "no": first.n_no,
            "always_yes": score.baseline(found[0].items, YES),
            "always_no": score.baseline(found[0].items, NO),
        },
        "options": {"presence": not given.no_presence, "boot": given.boot, "seed": given.seed},
        "judges": [
            {
                "judge": judge,
                "systems": [entry.as_json() for entry in own],
                "differences": _differences(own, given.boot, given.seed),
            }
            for judge, own in judges.items()
        ],
        "agreement": [entry.as_json() for entry in agreed],
        "notes": list(notes),
    }


def text(found: Sequence[Scored], boot: int) -> str:
    """Tables as people read them; the first columns are the published program's."""
    first = found[0].overall
    base = score.baseline(found[0].items, YES)
    lines = [f"{first.n} questions: {first.n_yes} Yes, {first.n_no} No; always Yes scores {base:.3f}"]
    for judge in dict.fromkeys(entry.judge for entry in found):
        own = [entry for entry in found if entry.judge == judge]
        lines += ["", f"judge {judge}", *_overall(own, boot)]
        for table in _SHOWN_TABLES:
            lines += _breakdown(own, table)
    return "\n".join(lines)


def _overall(own: Sequence[Scored], boot: int) -> list[str]:
    head = f"{'system':24} {'acc':>7} {'yes':>7} {'no':>7} {'bal':>7} {'miss':>6} {'asked':>6}"
    head += f" {'dead':>5}" + "".join(f" {reason:>7}" for reason in answers.UNASKED)
    lines = [head + (f"  {'acc 95 %':^14}  {'bal 95 %':^14}" if boot else "")]
    for entry in own:
        cell = entry.overall
        line = f"{entry.system:24} {cell.acc:7.3f} {cell.yes:7.3f} {cell.no:7.3f} {cell.bal:7.3f}"
        line += f" {cell.miss:6d} {cell.asked:6d} {entry.dead:5d}"
        line += "".join(f" {count:7d}" for count in answers.reasons(entry.answers).values())
        for measure in ("acc", "bal") if boot else ():
            low_high = cell.intervals[measure]
            line += "  " + (f"{'–':^14}" if low_high is None else f"[{low_high[0]:.3f}, {low_high[1]:.3f}]")
        lines.append(line)
    return lines


def _breakdown(own: Sequence[Scored], table: str) -> list[str]:
    """Accuracy and balanced accuracy of every system by label; labels with few questions carry a star."""
    labels = own[0].tables[table]
    if not labels:
        return []
    names = {label: label + ("*" if cell.n < score.SMALL else "") for label, cell in labels.items()}
    widths = {label: max(len(name), 11) for label, name in names.items()}
    head = f"{'by ' + table + ' (acc/bal)':24} " + " ".join(f"{names[k]:>{widths[k]}}" for k in labels)
    count = f"{'questions':24} " + " ".join(f"{cell.n:>{widths[label]}}" for label, cell in labels.items())
    lines = ["", head, count]
    for entry in own:
        cells = entry.tables[table]
        parts = " ".join(f"{cells[k].acc:.3f}/{cells[k].bal:.3f}".rjust(widths[k]) for k in labels)
        lines.append(f"{entry.system:24} {parts}")
    if any(cell.n < score.SMALL for cell in labels.values()):
        lines.append(f"* fewer than {score.SMALL} questions")
    return lines


def _differences(own: Sequence[Scored], boot: int, seed: int) -> list[dict[str, Any]]:
    found = []
    for better, worse in pairwise(own):
        point, low_high = score.difference(better.items, worse.items, boot, seed)
        names = {"system": better.system, "less": worse.system}
        found.append(names | {"acc": point, "interval": None if low_high is None else list(low_high)})
    return found


def _decisions(found: Sequence[Scored]) -> dict[str, dict[Any, str]]:
    decisions: dict[str, dict[Any, str]] = {}
    for entry in found:
        said = {(entry.system, *key): pred for key, pred in entry.answers.said.items() if pred is not None}
        decisions.setdefault(entry.judge, {}).update(said)
    return decisions


def _notes(entry: Scored) -> list[str]:
    notes = []
    who = f"{entry.judge}, {entry.system}"
    if entry.answers.unknown:
        notes.append(f"{who}: {entry.answers.unknown} records are of no question of the question file")
    if entry.answers.conflicts:
        notes.append(
            f"{who}: {len(entry.answers.conflicts)} questions have several answers of one time; "
            "the later line counts"
        )
    silent = sum(pred is None for pred in entry.answers.said.values())
    if silent:
        notes.append(f"{who}: {silent} questions were asked but not answered; they count as wrong")
    return notes


def _flat(found: Sequence[Scored]) -> list[dict[str, Any]]:
    rows = []
    for entry in found:
        parts = [(_OVERALL, "", entry.overall)]
        parts += [(t, label, cell) for t, cells in entry.tables.items() for label, cell in cells.items()]
        for table, label, cell in parts:
            values = cell.as_json()
            for measure, low_high in values.pop("intervals").items():
                values[f"{measure}_low"], values[f"{measure}_high"] = low_high or (None, None)
            names = {"judge": entry.judge, "system": entry.system, "table": table, "label": label}
            extra = {"dead_scenes": entry.dead, **answers.reasons(entry.answers)} if table == _OVERALL else {}
            rows.append(names | values | extra)
    return rows
