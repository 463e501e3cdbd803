"""Cohen's kappa and the program elo."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from judge_lab import comparison, tournament, write_rows

from contract.errors import UserError
from vlm_judge import agreement, judge


def test_cohens_own_kind_of_table() -> None:
    """Fifty items: 20 both yes, 15 both no, 5 and 10 apart; p_o 0.7, p_e 0.5, kappa 0.4."""
    pairs = ["yy"] * 20 + ["yn"] * 5 + ["ny"] * 10 + ["nn"] * 15
    first, second = ({i: pair[side] for i, pair in enumerate(pairs)} for side in (0, 1))
    assert agreement.cohen(first, second) == (50, 0.7, pytest.approx(0.4))


def test_against_the_definition() -> None:
    source = random.Random(2)
    first = {i: source.choice("abc") for i in range(300)}
    second = {
        i: value if source.random() < 0.6 else source.choice("abc") for i, value in first.items() if i > 40
    }
    common = sorted(second)
    observed = sum(first[i] == second[i] for i in common) / len(common)
    shares = [Counter(side[i] for i in common) for side in (first, second)]
    chance = sum(shares[0][k] * shares[1][k] for k in "abc") / len(common) ** 2
    found = agreement.cohen(first, second)
    assert found == (259, pytest.approx(observed), pytest.approx((observed - chance) / (1 - chance)))


def test_nothing_in_common_and_nothing_but_one_word() -> None:
    assert agreement.cohen({1: "a"}, {2: "a"}) == (0, None, None)
    assert agreement.cohen({1: "a", 2: "a"}, {1: "a", 2: "a"}) == (2, 1.0, None)
    assert agreement.cohen({1: "a", 2: "b"}, {1: "b", 2: "a"}) == (2, 0.0, -1.0)


def test_elo_of_several_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in tournament(80, 3, 200) if row["how"] != "error"]
    rows = [row | {"judge": name} for row in rows for name in ("m", "n")]
    path = write_rows(tmp_path / "p.jsonl", rows)
    assert judge.main(["elo", str(path), "--json", "--boot", "5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["judge"] for entry in report["judges"]] == ["m", "n"]
    assert report["judges"][0]["systems"] == report["judges"][1]["systems"]
    (agreed,) = report["agreement"]
    assert (agreed["agree"], agreed["kappa"]) == (1.0, 1.0)
    assert len(report["comparisons"]) == len(rows)
    matrix = report["judges"][0]["win_matrix"]
    assert [sum(line) for line in matrix["wins"]] == [s["wins"] for s in report["judges"][0]["systems"]]


def test_elo_takes_published_rows_with_those_of_the_one_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [comparison("s1", "x", "y", "x"), comparison("s2", "x", "y", "x", judge="m")]
    judge.main(["elo", str(write_rows(tmp_path / "p.jsonl", rows)), "--boot", "0"])
    shown = capsys.readouterr()
    assert "1 records name no judge; they are taken as m's" in shown.err
    assert shown.out.startswith("2 comparisons, 2 systems; judge m\n")


def test_elo_prints_the_published_columns_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "p.jsonl", [comparison("s", "x", "y", "x")])
    judge.main(["elo", str(path), "--boot", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"{'x':24} {131.4:8.1f}  [{131:7.0f},{131:7.0f}] {1:7.1f} {1:6d}")
    judge.main(["elo", str(path), "--boot", "0", "--csv"])
    (first, second) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["name"], first["wins"], second["lost_absent"], second["low"]) == ("x", "1.0", "0", "")


def test_elo_as_a_program_survives_bad_lines_and_refuses_nothing(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '\n{"scene": "s", "a": "x", "b": "y", "winner": "x", "how": "judged"}\nnot json\n{"scene": "s", "a'
    )
    command = [sys.executable, "vlm_judge/judge.py", "elo", str(path)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the last line is cut short" in done.stderr
    assert "1 lines that are no JSON objects were skipped (3)" in done.stderr
    path.write_text("")
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds no comparison" in done.stderr


def test_elo_refuses_senseless_options(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "p.jsonl", [comparison("s", "x", "y", "x")])
    with pytest.raises(UserError, match="cannot be negative"):
        judge.main(["elo", str(path), "--prior", "-1"])
