"""The question file: scenes with their ontology and yes-or-no questions. README.md has the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.cases import KINDS, valid_segment
from contract.errors import UserError
from contract.record import read_json

HERE = Path(__file__).resolve().parent
BENCHMARK = HERE / "vqa_questions_and_ontology_final.json"
"""The benchmark's own set, where it has been fetched."""
DEMO = HERE / "questions" / "demo.json"
"""A small set for the demo cases."""

PRESENCE = "Q0"
"""Is there something like what the scene is about? A gate: never scored, and its category is ``presence``."""
YES, NO, MISSING = "Yes", "No", "Missing"
GROUPS = ("family", "material_family", "material", "kind", "regime", "flag")
"""Properties of scenes by which scores are broken down, beside the category of the question."""
_LISTS = {"family": "families", "material_family": "material_families", "material": "materials",
          "flag": "flags"}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question; ``answer`` is the true one."""

    id: str
    text: str
    answer: str
    category: str

    @property
    def presence(self) -> bool:
        return self.id == PRESENCE


@dataclass(frozen=True)
class Scene:
    """One case. ``groups``: labels by property of ``GROUPS``; a scene may have several of one property."""

    id: str
    kind: str
    questions: tuple[Question, ...]
    groups: dict[str, tuple[str, ...]]

    @property
    def scored(self) -> tuple[Question, ...]:
        return tuple(question for question in self.questions if not question.presence)


@dataclass(frozen=True)
class QuestionFile:
    """A validated file; scenes in file order, which is the order of pairing rounds."""

    path: Path
    scenes: tuple[Scene, ...]


def default_file() -> Path:
    """The benchmark's set if it is there, else the demo's."""
    return BENCHMARK if BENCHMARK.is_file() else DEMO


def load(path: Path) -> QuestionFile:
    """Read and validate. Raises ``UserError`` that names scene, question and key of the first fault."""
    try:
        data = read_json(path)
    except OSError as error:
        raise UserError((error.strerror or "cannot be read").lower(), where=path) from error
    except ValueError as error:
        raise UserError(f"is not JSON ({error})", where=path) from error
    check = _Checker(path)
    top = check.typed(data, dict, "the file")
    vocabulary = check.typed(top.get("vocabulary", {}), dict, "vocabulary")
    known = {
        key: {check.text(entry, "key", f"vocabulary.{key}") for entry in check.objects(vocabulary, key)}
        for key in ("families", "materials")
        if key in vocabulary
    }
    known |= {"material_families": known["families"]} if "families" in known else {}
    entries = check.objects(top, "scenes")
    if not entries:
        raise check.fault("has no scene", "scenes")
    scenes = tuple(_scene(check, entry, f"scenes[{index}]", known) for index, entry in enumerate(entries))
    check.unique([scene.id for scene in scenes], "scenes", "id")
    return QuestionFile(path, scenes)


def select(file: QuestionFile, split: str | None, wanted: str) -> list[Scene]:
    """Scenes of one kind (None: both) and with the ids of a comma-separated list (empty: all), in file order.

    Raises ``UserError`` on an unknown id and on an empty selection.
    """
    ids = [name for name in wanted.split(",") if name]
    unknown = sorted(set(ids) - {scene.id for scene in file.scenes})
    if unknown:
        raise UserError(f"no such scene in {file.path}: {', '.join(unknown)}", where="--scenes")
    chosen = [s for s in file.scenes if (split is None or s.kind == split) and (not ids or s.id in ids)]
    if not chosen:
        raise UserError("no scene is left to judge", where=file.path, next_step="widen --split or --scenes")
    return chosen


def _scene(check: _Checker, entry: dict[str, Any], where: str, known: dict[str, set[str]]) -> Scene:
    name = check.text(entry, "id", where)
    if not valid_segment(name):
        raise check.fault(f"{name!r} cannot be the name of a case", f"{where}.id")
    where = f"scene {name}"
    kind = check.text(entry, "kind", where)
    if kind not in KINDS:
        raise check.fault(f"{kind!r} is no kind", f"{where}, kind", " or ".join(KINDS))
    if entry.get("case", f"{kind}/{name}") != f"{kind}/{name}":
        raise check.fault(f"{entry['case']!r} is not kind and id", f"{where}, case", f"{kind}/{name}")
    groups: dict[str, tuple[str, ...]] = {"kind": (kind,)}
    for group, key in _LISTS.items():
        labels = check.typed(entry.get(key, []), list, f"{where}, {key}")
        for label in labels:
            if check.typed(label, str, f"{where}, {key}") not in known.get(key, {label}):
                allowed = ", ".join(sorted(known[key]))
                raise check.fault(f"{label!r} is not in the vocabulary", f"{where}, {key}", allowed)
        groups[group] = tuple(dict.fromkeys(labels))
    regime = check.typed(entry.get("dynamics_regime", ""), str, f"{where}, dynamics_regime")
    groups["regime"] = (regime,) if regime else ()
    asked = tuple(_question(check, item, where) for item in check.objects(entry, "questions", where))
    if not asked:
        raise check.fault("has no question", where)
    check.unique([question.id for question in asked], where, "question id")
    return Scene(name, kind, asked, groups)


def _question(check: _Checker, entry: dict[str, Any], where: str) -> Question:
    name = check.text(entry, "id", f"{where}, a question")
    where = f"{where}, question {name}"
    options = check.typed(entry.get("options", [YES, NO]), list, f"{where}, options")
    if options != [YES, NO]:
        raise check.fault(f"options are {options}", where, f'["{YES}", "{NO}"]')
    answer = check.text(entry, "answer", where)
    if answer not in options:
        raise check.fault(f"the answer is {answer!r}", where, f"{YES} or {NO}")
    text = check.text(entry, "question", where)
    if len(text.splitlines()) > 1:
        raise check.fault("the question has a line break", where, "one line: questions are numbered by line")
    return Question(name, text, answer, check.text(entry, "category", where))


class _Checker:
    """Types of JSON values, with faults that say where."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fault(self, what: str, where: str, expected: str = "") -> UserError:
        return UserError(f"{where}: {what}", where=self.path, expected=expected)

    def typed(self, value: Any, kind: type, where: str) -> Any:
        if not isinstance(value, kind):
            raise self.fault(f"is {_NAMES.get(type(value), 'nothing')}", where, _NAMES[kind])
        return value

    def text(self, entry: dict[str, Any], key: str, where: str) -> str:
        value: str = self.typed(entry.get(key), str, f"{where}, {key}")
        if not value.strip():
            raise self.fault("is empty", f"{where}, {key}")
        return value

    def objects(self, entry: dict[str, Any], key: str, where: str = "") -> list[dict[str, Any]]:
        where = f"{where}, {key}" if where else key
        return [self.typed(item, dict, where) for item in self.typed(entry.get(key), list, where)]

    def unique(self, names: Sequence[str], where: str, what: str) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise self.fault(f"{what} {twice[0]!r} is there more than once", where)


_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a text", int: "a number",
                           float: "a number", bool: "true or false", type(None): "nothing"}  # fmt: skip
