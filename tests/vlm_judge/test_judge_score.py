"""Accuracy: the published numbers, presence, what was not asked, breakdowns, intervals."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge_lab import answer, question_file, write_rows

from contract.errors import UserError
from vlm_judge import judge, questions, score
from vlm_judge.score_report import Scored, scored

SCENES = ["s1", "s2", "s3", "s4"]


@pytest.fixture
def scenes(tmp_path: Path) -> tuple[questions.Scene, ...]:
    return questions.load(question_file(tmp_path / "q.json", SCENES)).scenes


def everywhere(scenes: list[str], system: str = "s") -> list[dict[str, Any]]:
    said = {"Q0": "Yes", "Q1": "Yes", "Q2": "Missing"}
    return [answer(scene, key, pred, system) for scene in scenes for key, pred in said.items()]


def one(rows: list[dict[str, Any]], scenes: Any, **options: Any) -> Scored:
    (found,) = scored("j", rows, scenes, options.get("presence", True), options.get("boot", 0), 0)
    return found


def numbers(found: Scored) -> tuple[float, ...]:
    cell = found.overall
    return cell.acc, cell.yes, cell.no, cell.bal, cell.miss, cell.asked


def test_the_published_numbers(scenes: Any) -> None:
    assert numbers(one(everywhere(SCENES), scenes)) == (0.5, 1.0, 0.0, 0.5, 4, 8)
    assert numbers(one(everywhere(["s3"]), scenes)) == (0.125, 0.25, 0.0, 0.125, 1, 2)


def test_a_scene_whose_main_thing_was_not_seen_has_no_right_answer(scenes: Any) -> None:
    rows = [row | {"pred": "Missing"} if row["id"] == "Q0" and row["scene"] == "s1" else row
            for row in everywhere(SCENES)]  # fmt: skip
    assert numbers(one(rows, scenes)) == (0.375, 0.75, 0.0, 0.375, 4, 8)
    assert numbers(one(rows, scenes, presence=False))[0] == 0.5
    assert one(rows, scenes).dead == 1


def test_a_first_try_without_an_answer_does_not_outlive_the_second(scenes: Any) -> None:
    """The public program keeps the scene dead: 0.000 where 0.125 is right."""
    rows = [answer("s1", "Q0", None), *everywhere(["s1"])]
    for order in (rows, rows[::-1]):
        assert numbers(one(order, scenes))[0] == 0.125


def test_what_is_stored_as_correct_is_not_believed(scenes: Any) -> None:
    rows = [row | {"correct": True} for row in everywhere(SCENES)]
    assert numbers(one(rows, scenes))[0] == 0.5


def test_later_times_win_from_any_order_and_an_unasked_scene_takes_answers_back(scenes: Any) -> None:
    rows = [row | {"time": "2026-01-01"} for row in everywhere(SCENES)]
    rows += [row | {"time": "2026-01-02", "pred": "No"} for row in everywhere(["s1"]) if row["id"] != "Q0"]
    rows.append({"scene": "s2", "kind": "synthetic", "id": None, "how": "corrupt", "system": "s",
                 "time": "2026-01-03"})  # fmt: skip
    for seed in range(4):
        random.Random(seed).shuffle(rows)
        found = one(rows, scenes)
        assert numbers(found) == (3 / 8, 2 / 4, 1 / 4, 3 / 8, 2, 6)
        assert found.answers.unasked == {"s2": "corrupt"}


def test_answers_of_one_time_that_differ_are_reported(scenes: Any) -> None:
    found = one([answer("s1", "Q1", "No"), answer("s1", "Q1", "Yes")], scenes)
    assert found.answers.conflicts == {("s1", "Q1")}
    assert found.overall.hits == 1
    assert one([answer("s1", "Q1", None), answer("s1", "Q1", "Yes")], scenes).answers.conflicts == set()


def test_breakdowns_count_a_question_in_each_label(scenes: Any) -> None:
    tables = one(everywhere(SCENES), scenes).tables
    assert {label: (cell.n, cell.acc) for label, cell in tables["category"].items()} == {
        "key_event": (4, 1.0), "last_frame": (4, 0.0),
    }  # fmt: skip
    assert {label: cell.n for label, cell in tables["family"].items()} == {"rigidfam": 8, "softfam": 4}
    assert {label: cell.n for label, cell in tables["material"].items()} == {"rigid": 8}
    assert {label: cell.n for label, cell in tables["kind"].items()} == {"synthetic": 8}
    # Without a question of one answer its accuracy is 0, as published.
    assert (tables["category"]["key_event"].no, tables["category"]["key_event"].bal) == (0.0, 0.5)


def test_intervals_resample_scenes(scenes: Any) -> None:
    rows = [r | ({"pred": "No"} if r["scene"] in ("s1", "s2") and r["id"] == "Q2" else {})
            for r in everywhere(SCENES)]  # fmt: skip
    found = one(rows, scenes, boot=2_000)
    source = random.Random(0)
    sampled = [np.mean([[1, 1, 0.5, 0.5][source.choice(range(4))] for _ in range(4)]) for _ in range(2_000)]
    assert found.overall.intervals["acc"] == pytest.approx(tuple(np.percentile(sampled, [2.5, 97.5])))
    everything = one([r | {"pred": r["answer"]} for r in rows], scenes, boot=50)
    assert everything.overall.intervals["acc"] == (1.0, 1.0)


def test_differences_are_paired(scenes: Any) -> None:
    better = one([r | {"pred": r["answer"]} for r in everywhere(SCENES)], scenes)
    worse = one(everywhere(SCENES), scenes)
    assert score.difference(better.items, worse.items, 100, 0) == (0.5, (0.5, 0.5))
    assert score.difference(better.items, better.items, 0, 0) == (0.0, None)


def test_the_program_prints_tables_json_and_csv(
    tmp_path: Path, scenes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [r | {"judge": "m"} for r in everywhere(SCENES, "one") + everywhere(["s3"], "two")]
    records = write_rows(tmp_path / "a.jsonl", rows)
    common = ["score", str(records), "--questions", str(tmp_path / "q.json"), "--boot", "20"]
    assert judge.main(common) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "8 questions: 4 Yes, 4 No; always Yes scores 0.500"
    assert text[3].startswith(
        f"{'system':24} {'acc':>7} {'yes':>7} {'no':>7} {'bal':>7} {'miss':>6} {'asked':>6}"
    )
    assert text[4].startswith(f"{'one':24} {0.5:7.3f} {1:7.3f} {0:7.3f} {0.5:7.3f} {4:6d} {8:6d}")
    assert text[5].startswith(f"{'two':24} {0.125:7.3f} {0.25:7.3f} {0:7.3f} {0.125:7.3f} {1:6d} {2:6d}")
    assert judge.main([*common, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (entry,) = report["judges"]
    assert [s["system"] for s in entry["systems"]] == ["one", "two"]
    assert entry["systems"][0]["by"]["category"]["key_event"]["small"] is True
    assert entry["differences"][0]["acc"] == 0.375
    assert judge.main([*common, "--csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (table[0]["table"], table[0]["acc"], table[0]["asked"]) == ("overall", "0.5", "8")


def test_two_judges_stand_apart_and_their_agreement_is_shown(
    tmp_path: Path, scenes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [r | {"judge": "m"} for r in everywhere(SCENES)]
    rows += [
        r | {"judge": "n", "pred": "No"} if r["id"] == "Q2" else r | {"judge": "n"}
        for r in everywhere(SCENES)
    ]
    records = write_rows(tmp_path / "a.jsonl", rows)
    common = ["score", str(records), "--questions", str(tmp_path / "q.json"), "--boot", "0", "--json"]
    judge.main(common)
    report = json.loads(capsys.readouterr().out)
    assert [j["systems"][0]["acc"] for j in report["judges"]] == [0.5, 1.0]
    # Twelve questions, 8 times both Yes, 4 times Missing against No: p_o 8/12, p_e (8/12)².
    kappa = (8 / 12 - 64 / 144) / (1 - 64 / 144)
    assert report["agreement"] == [
        {"judges": ["m", "n"], "common": 12, "agree": 8 / 12, "kappa": pytest.approx(kappa)}
    ]
    judge.main([*common, "--judge", "n"])
    assert len(json.loads(capsys.readouterr().out)["judges"]) == 1
    with pytest.raises(UserError, match="no record is by 'x'"):
        judge.main([*common, "--judge", "x"])


def test_nothing_to_score_is_an_error(tmp_path: Path, scenes: Any) -> None:
    common = ["--questions", str(tmp_path / "q.json")]
    with pytest.raises(UserError, match="holds no answer"):
        judge.main(["score", str(write_rows(tmp_path / "a.jsonl", [])), *common])
    with pytest.raises(UserError, match="no such file"):
        judge.main(["score", str(tmp_path / "none.jsonl"), *common])


def test_a_system_with_unasked_scenes_only_scores_zero(scenes: Any) -> None:
    rows = [{"scene": s, "id": None, "how": how, "system": "s"}
            for s, how in zip(SCENES, ["absent", "absent", "corrupt", "gated"], strict=True)]  # fmt: skip
    found = one(rows, scenes)
    assert numbers(found) == (0, 0, 0, 0, 0, 0)
    assert found.as_json()["unasked_scenes"] == {"absent": 2, "corrupt": 1, "gated": 1}
