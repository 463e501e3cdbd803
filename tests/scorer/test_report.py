"""The report: means, intervals, and nothing dropped in silence."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contract.aggregate import Scored, summarise
from contract.errors import UserError
from contract.metrics import METRICS
from contract.record import write_json
from report.bootstrap import intervals
from report.runs import find_runs, missing_runs
from scorer.report import main


def add(
    root: Path,
    run: str,
    reward: object | None,
    *,
    state: str = "done",
    status: str = "ok",
    protocol: str = "4dcb-1",
) -> None:
    path = root / run
    (path / "results").mkdir(parents=True)
    write_json(path / "run.json", {"state": state})
    if reward is not None:
        write_json(path / "results/reward.json", reward)
        write_json(path / "results/reward.detail.json", {"status": status, "scorer": {"protocol": protocol}})


def reward(value: object) -> dict[str, object]:
    return {metric.key: value for metric in METRICS}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    add(tmp_path, "real/a/good/1", reward(0.8))
    add(tmp_path, "real/a/good/2", reward(0.6))
    add(tmp_path, "real/b/good/1", reward(0.9))
    add(tmp_path, "synthetic/c/good/1", reward("error"), status="gate_failure")
    add(tmp_path, "real/a/poor/1", reward(0.1))
    add(tmp_path, "real/b/poor/1", None)
    add(tmp_path, "real/b/poor/2", None, state="interrupted")
    (tmp_path / "real/a/good/.1.staging-x").mkdir()
    (tmp_path / "manifests/x").mkdir(parents=True)
    return tmp_path


def report(tree: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    main(["--runs", str(tree), *options])
    return capsys.readouterr().out


def test_finds_runs_and_what_is_missing(tree: Path) -> None:
    runs = find_runs(tree)
    assert [run.name for run in runs] == [
        "real/a/good/1", "real/a/good/2", "real/a/poor/1", "real/b/good/1", "real/b/poor/1", "real/b/poor/2",
        "synthetic/c/good/1",
    ]  # fmt: skip
    assert missing_runs(runs) == {
        "real/b/poor/1": "not scored yet",
        "real/b/poor/2": "no result of the agent (state interrupted)",
        "synthetic/c/poor": "never run",
    }


def test_numbers(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(report(tree, capsys, "--format", "json"))
    good, poor = found["groups"]
    rows = {row["name"]: row for row in good["rows"]}
    assert (good["name"], good["runs"], good["cases"]) == ("good", 4, 3)
    # Trials first: case a is 0.7; the refused world counts as 0, but is no part of geometry quality.
    assert rows["dynamic_iou"]["mean"] == pytest.approx((0.7 + 0.9 + 0.0) / 3)
    assert rows["mesh_watertight"]["mean"] == pytest.approx((0.7 + 0.9) / 2)
    assert rows["dynamic_iou"]["states"] == {"number": 3, "error": 1}
    assert rows["depth_error"]["mean"] == pytest.approx((0.7 + 0.9 + 2.0) / 3)
    assert rows["Overall"]["low"] <= rows["Overall"]["mean"] <= rows["Overall"]["high"]
    assert len(found["missing"]) == 3
    assert "Overall = mean of the five families" in found["rule"]
    assert {row["name"]: row for row in poor["rows"]}["Overall"]["low"] == pytest.approx(
        {row["name"]: row for row in poor["rows"]}["Overall"]["high"]
    )


@pytest.mark.parametrize("by", ["system", "case", "kind"])
def test_every_format_names_every_group(tree: Path, capsys: pytest.CaptureFixture[str], by: str) -> None:
    names = [
        group["name"] for group in json.loads(report(tree, capsys, "--by", by, "--format", "json"))["groups"]
    ]
    assert len(names) == {"system": 2, "case": 4, "kind": 3}[by]
    for style in ("table", "csv", "markdown", "latex"):
        text = report(tree, capsys, "--by", by, "--format", style)
        assert all(name in text for name in names)
        if style != "csv":
            assert "Missing (3)" in text


def test_csv_is_tidy(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = list(csv.DictReader(io.StringIO(report(tree, capsys, "--format", "csv"))))
    assert len(lines) == 2 * (1 + 5 + len(METRICS))
    assert {line["error"] for line in lines if line["group"] == "good" and line["cases"]} == {"1"}


def test_status_and_standard_error_tell_that_runs_are_missing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--runs", str(tree)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for part in (
        "error: 3 run(s) missing", "1 not scored yet", "1 never run", "1 no result of the agent (state inter",
        "real/b/poor/1, real/b/poor/2, synthetic/c/poor; listed above",
    ):  # fmt: skip
        assert part in said
    assert main(["--runs", str(tree), "--format", "csv"]) == 1
    assert "--format json lists them" in capsys.readouterr().err
    assert main(["--runs", str(tree), "--system", "good"]) == 0
    assert capsys.readouterr().err == ""


def test_many_missing_runs_are_counted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(9):
        add(tree, f"real/m{number}/good/1", None)
    assert main(["--runs", str(tree), "--system", "good"]) == 1
    said = capsys.readouterr().err
    assert "error: 9 run(s) missing (9 not scored yet): real/m0/good/1, real/m1/good/1, " in said
    assert "real/m2/good/1 and 6 more; listed above" in said


def test_different_protocols_are_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tree, "real/z/good/1", reward(0.5), protocol="4dcb-2")
    assert "different protocols: 4dcb-1, 4dcb-2" in report(tree, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--system", "none"], "selection is empty"), (["--case", "real/none"], "selection is empty")],
)
def test_an_empty_selection_is_an_error(tree: Path, options: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(["--runs", str(tree), *options])


def test_no_runs_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        main(["--runs", str(tmp_path / "none")])
    with pytest.raises(UserError, match="holds no run"):
        main(["--runs", str(tmp_path)])
    add(tmp_path, "real/a/x/1", None)
    with pytest.raises(UserError, match="no run here is scored"):
        main(["--runs", str(tmp_path)])


def test_unreadable_rewards_are_listed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("d", "{"), ("e", "[]"), ("f", '{"dynamic_iou": NaN}')):
        add(tree, f"real/{name}/good/1", {})
        (tree / f"real/{name}/good/1/results/reward.json").write_text(text)
    with pytest.raises(UserError, match="dynamic_iou"):
        main(["--runs", str(tree)])
    (tree / "real/f/good/1/results/reward.json").write_text("{}")
    missing = json.loads(report(tree, capsys, "--format", "json"))["missing"]
    assert "cannot be read" in missing["real/d/good/1"]
    assert "no object" in missing["real/e/good/1"]


def test_intervals_against_a_plain_bootstrap() -> None:
    rng = np.random.default_rng(3)
    values = rng.random(12)
    runs = [Scored(f"synthetic/{index:02}", {"scene_3d": float(value)}) for index, value in enumerate(values)]
    found = intervals(runs)["scene_3d"]
    means = [values[np.random.default_rng([9, k]).integers(0, 12, 12)].mean() for k in range(20_000)]
    low, high = np.percentile(means, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)
    assert intervals(runs) == intervals(list(reversed(runs)))


def test_intervals_contain_the_summary() -> None:
    rng = np.random.default_rng(4)
    runs = [
        Scored(f"{kind}/{index}", {metric.key: float(rng.random()) for metric in METRICS})
        for kind in ("real", "synthetic")
        for index in range(8)
    ]
    summary, bounds = summarise(runs), intervals(runs)
    for key, mean in summary.metrics.items():
        assert mean.value is not None
        assert bounds[key].low <= mean.value <= bounds[key].high
    assert summary.overall is not None
    assert bounds["Overall"].low <= summary.overall <= bounds["Overall"].high


def test_what_was_left_out_for_want_of_a_model_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = {
        "semantic_dinov3": "no weights",
        "semantic_tips": "no weights",
        "uni3d": "no weights",
        "x": "y",
    }
    for run in ("real/a/one/1", "real/b/one/1"):
        kept = {key: value for key, value in reward(0.8).items() if key not in (*skipped, "uni3d_moge_scene")}
        add(tmp_path, run, kept | {"semantic_tips": 0.7})  # of an earlier scoring
        detail = tmp_path / run / "results/reward.detail.json"
        write_json(detail, {"status": "ok", "skipped": skipped})
    found = json.loads(report(tmp_path, capsys, "--format", "json"))
    assert found["skipped"] == {"uni3d_moge_scene": 2, "semantic_dinov3": 2}
    (group,) = found["groups"]
    rows = {row["name"]: row for row in group["rows"]}
    assert rows["semantic_dinov3"]["states"] == {"missing": 2}
    assert rows["semantic_tips"]["mean"] == pytest.approx(0.7)
    assert "Perceptual" not in group["overall_families"]
    table = report(tmp_path, capsys)
    assert "uni3d_moge_scene in 2 run(s), semantic_dinov3 in 2 run(s)" in table
    assert "Overall rests on 4 of 5 families" in table


def test_readings_lost_by_the_machines_fault_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {key: value for key, value in reward(0.5).items() if key != "scene_3d"}
    add(tmp_path, "synthetic/a/one/1", kept)
    detail = tmp_path / "synthetic/a/one/1/results/reward.detail.json"
    write_json(detail, {"status": "ok", "infrastructure": {"scene_3d": "WorkerLost: killed"}})
    found = json.loads(report(tmp_path, capsys, "--format", "json"))
    assert found["infrastructure"] == {"synthetic/a/one/1": {"scene_3d": "WorkerLost: killed"}}
    rows = {row["name"]: row for row in found["groups"][0]["rows"]}
    assert (rows["scene_3d"]["mean"], rows["scene_3d"]["states"]) == (None, {"missing": 1})
    for style in ("table", "markdown", "latex"):
        text = report(tmp_path, capsys, "--format", style)
        assert "by the machine's fault, in 1 run(s)" in text
        assert "synthetic/a/one/1: scene_3d: WorkerLost: killed" in text


def test_names_that_mean_something_to_a_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = r"""a_b&c%$#{}~^\d|e,"f" 模型"""
    for name in (odd, "[1cm]", "two\nlines", "four", "five"):
        add(tmp_path, f"synthetic/a/{name}/1", reward(0.5))
    lines = report(tmp_path, capsys, "--format", "latex").splitlines()
    tabular = lines[: lines.index(r"\end{tabular}")]
    assert all(line.startswith("%") for line in lines[len(tabular) + 1 :])
    escaped = r"a\_b\&c\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}d\textbar{}e,"
    assert [line for line in tabular if line.startswith(f'{escaped}"f" 模型 & ')]
    assert [line for line in tabular if line.startswith("{}[1cm] & ")]
    for style, mark in (("table", "two lines  "), ("markdown", "| two lines | "), ("latex", "two lines & ")):
        assert any(line.startswith(mark) for line in report(tmp_path, capsys, "--format", style).splitlines())
    assert odd.replace("|", r"\|") in report(tmp_path, capsys, "--format", "markdown")
    table = list(csv.DictReader(io.StringIO(report(tmp_path, capsys, "--format", "csv"))))
    assert {line["group"] for line in table} == {odd, "[1cm]", "two\nlines", "four", "five"}


def test_a_terminal_without_the_characters(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff")
    add(tmp_path, f"synthetic/a/{name}/1", reward(0.5))
    for encoding, style in (("ascii", "table"), ("utf-8", "csv")):
        done = subprocess.run(
            [sys.executable, "-m", "scorer.report", "--runs", str(tmp_path), "--format", style],
            env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"bad\\udcff" in done.stdout


@pytest.mark.parametrize("junk", [[], 3, ["semantic_dinov3", {}], {"semantic_dinov3": None}])
def test_a_strange_list_of_what_was_left_out(tmp_path: Path, junk: object) -> None:
    add(tmp_path, "real/a/one/1", {})
    write_json(tmp_path / "real/a/one/1/results/reward.detail.json", {"skipped": junk})
    (run,) = find_runs(tmp_path)
    assert run.skipped <= {"semantic_dinov3"}
