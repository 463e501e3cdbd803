# ruff: noqa: E501
"""The question file: what is accepted and what is refused with which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judge_lab import question_file

from contract.errors import UserError
from vlm_judge import questions


def changed(tmp_path: Path, change: Callable[[Any], None]) -> Path:
    path = question_file(tmp_path / "q.json", ["s1", "s2"])
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def test_scenes_keep_their_order_and_groups(tmp_path: Path) -> None:
    file = questions.load(question_file(tmp_path / "q.json", ["z", "a"]))
    assert [scene.id for scene in file.scenes] == ["z", "a"]
    assert file.scenes[0].groups["family"] == ("rigidfam", "softfam")
    assert [question.id for question in file.scenes[0].scored] == ["Q1", "Q2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("scenes"), "scenes: is nothing; expected a list"),
        (lambda d: d["scenes"].clear(), "scenes: has no scene"),
        (lambda d: d["scenes"][0].update(id="../up"), "cannot be the name of a case"),
        (lambda d: d["scenes"][0].update(kind="fake"), "scene s1, kind: 'fake' is no kind; expected real or synthetic"),
        (lambda d: d["scenes"][1].update(id="s1"), "id 's1' is there more than once"),
        (lambda d: d["scenes"][0].update(case="real/s1"), "scene s1, case: 'real/s1' is not kind and id"),
        (lambda d: d["scenes"][0].update(questions=[]), "scene s1: has no question"),
        (lambda d: d["scenes"][0]["questions"][1].update(answer="Maybe"), "scene s1, question Q1: the answer is 'Maybe'"),
        (lambda d: d["scenes"][0]["questions"][1].update(options=["No"]), "question Q1: options are"),
        (lambda d: d["scenes"][0]["questions"][1].update(id="Q0"), "question id 'Q0' is there more than once"),
        (lambda d: d["scenes"][0]["questions"][1].update(question="a\nb"), "has a line break"),
        (lambda d: d["scenes"][0]["questions"][1].update(question=" "), "question: is empty"),
        (lambda d: d["scenes"][0]["questions"][1].pop("category"), "question Q1, category: is nothing; expected a text"),
        (lambda d: d["scenes"][0].update(families="rigidfam"), "families: is a text; expected a list"),
        (lambda d: d.update(vocabulary={"families": [{"key": "softfam"}]}), "'rigidfam' is not in the vocabulary"),
    ],
)  # fmt: skip
def test_faults_are_named(tmp_path: Path, change: Callable[[Any], None], words: str) -> None:
    with pytest.raises(UserError) as caught:
        questions.load(changed(tmp_path, change))
    assert words in caught.value.line()


def test_no_json_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        questions.load(tmp_path / "q.json")
    with pytest.raises(UserError, match="no such file"):
        questions.load(tmp_path / "none.json")


def test_selection(tmp_path: Path) -> None:
    file = questions.load(question_file(tmp_path / "q.json", ["s1", "s2"]))
    assert [s.id for s in questions.select(file, None, "s2,s1")] == ["s1", "s2"]
    with pytest.raises(UserError, match="s9"):
        questions.select(file, None, "s1,s9")
    with pytest.raises(UserError, match="no scene is left"):
        questions.select(file, "real", "")


def test_the_demo_set_is_sound_and_counts_what_it_says() -> None:
    file = questions.load(questions.DEMO)
    data = json.loads(questions.DEMO.read_text(encoding="utf-8"))
    scored = [question for scene in file.scenes for question in scene.scored]
    assert data["n_scenes"] == len(file.scenes) == 5
    assert data["n_questions"] == len(scored)
    assert all(scene.questions[0].presence and scene.questions[0].answer == "Yes" for scene in file.scenes)
    assert {question.answer for question in scored} == {"Yes", "No"}
    for group, key in (("family", "families"), ("material", "materials")):
        labels = [label for scene in file.scenes for label in scene.groups[group]]
        assert data["counts"][key] == {label: labels.count(label) for label in sorted(set(labels))}
    categories = [question.category for scene in file.scenes for question in scene.questions]
    assert data["counts"]["question_categories"] == {c: categories.count(c) for c in sorted(set(categories))}
