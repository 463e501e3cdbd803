"""Checks of results, averages and the leaderboard's ZIP, as the public tool makes them."""

from __future__ import annotations

import copy
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import persist_lab as lab
import pytest

from persistbench.aggregate import aggregate, group_of
from persistbench.cli import main
from persistbench.results import PROTOCOL, case_scores
from persistbench.store import identity
from persistbench.submission import package


def put(*path: object) -> Callable[[dict], None]:
    """A change: the last word becomes the value at the path that the others name."""

    def change(case: dict) -> None:
        place = case["results"]
        for key in path[:-2]:
            place = place[key]
        place[path[-2]] = path[-1]

    return change


MUTATIONS = {
    "valid": lambda case: None,
    "frame count vs prediction": lambda case: None,
    "scalar off by 1e-6": put("motion_continuity", "scalars", "visible", 0.5 + 1e-6),
    "scalar off by 1e-9": put("motion_continuity", "scalars", "visible", 0.5 + 1e-9),
    "scalar null though frames exist": put("motion_continuity", "scalars", "visible", None),
    "permanence 1.0000001": put("object_permanence", "per_frame", "score", 1, 1.0000001),
    "appearance 1+5e-7": put("appearance_preservation", "per_frame", "score", 1, 1 + 5e-7),
    "appearance -1.1": put("appearance_preservation", "per_frame", "score", 1, -1.1),
    "value before start": put("object_permanence", "per_frame", "score", 0, 1.0),
    "masks overlap": put("metadata", "visible_mask", 3, True),
    "mask of ints": put("metadata", "visible_mask", [1, 1, 0, 0]),
    "start is bool": put("metadata", "track_start_frame_idx", True),
    "start beyond end": put("metadata", "track_start_frame_idx", 4),
    "metric missing": lambda case: case["results"].pop("motion_continuity"),
    "frame list short": put("object_permanence", "per_frame", "score", [None, 1.0, 0.0]),
    "boolean score": put("object_permanence", "per_frame", "score", 1, True),
}


def test_checks_of_a_result() -> None:
    (case,) = lab.cases("score-check")
    assert [name for item in case["outputs"]["results"] for name in item] == list(MUTATIONS)
    for item in case["outputs"]["results"]:
        ((name, wanted),) = item.items()
        changed = copy.deepcopy(case["inputs"]["base_case"])
        MUTATIONS[name](changed)
        if name == "appearance 1+5e-7":
            changed["results"]["appearance_preservation"]["scalars"]["visible"] = 1 + 5e-7
        frames = 5 if name == "frame count vs prediction" else 4
        if "ok" in wanted:
            assert case_scores(changed, frames) == wanted["ok"], name
        else:
            with pytest.raises(ValueError) as caught:
                case_scores(changed, frames)
            assert str(caught.value) == wanted["message"], name


@pytest.mark.parametrize("result", [None, [], {}, {"results": 3}, {"results": {"metadata": []}}])
def test_malformed_results(result: object) -> None:
    with pytest.raises(ValueError, match="Malformed evaluation scores"):
        case_scores(result)


def test_groups() -> None:
    assert [group_of(v) for v in (1, True, "1", 1.0)] == ["static"] * 4
    assert [group_of(v) for v in (0, False, "0")] == ["dynamic"] * 3
    assert [group_of(v) for v in (None, 2, "", "true", [])] == ["unknown"] * 5


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The evaluation run of the fixture."""
    (case,) = lab.cases("aggregate")
    manifest = case["inputs"]["manifest"]
    top = tmp_path / "run"
    top.mkdir()
    (top / "run.json").write_text(json.dumps(manifest))
    for result in copy.deepcopy(case["inputs"]["cases"]):
        result["score_protocol"] = PROTOCOL
        result["evaluation_run_id"] = identity(manifest)
        result["prediction_sha256"] = f"h{result['uid']}"
        # The fixture's own scalars do not all follow from its frames.
        (top / result["uid"]).mkdir()
        (top / result["uid"] / "result.json").write_text(json.dumps(result))
    return top


def test_averages(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (case,) = lab.cases("aggregate")
    assert main(["aggregate", "--results", str(run)]) == 0
    printed = json.loads(capsys.readouterr().out)
    summary = json.loads((run / "summary.json").read_text())
    wanted = case["outputs"]["summary"]
    assert set(summary) == set(wanted)

    def close(found: object, value: object) -> None:
        if isinstance(value, dict):
            assert set(found) == set(value)
            for key in value:
                close(found[key], value[key])
        elif isinstance(value, float):
            assert found == pytest.approx(value, rel=1e-12)
        else:
            assert found == value

    close(summary, wanted)
    assert printed == {key: value for key, value in summary.items() if key != "per_case"}
    assert sorted(p.name for p in run.iterdir()) == sorted(case["outputs"]["files"])
    results = json.loads((run / "results.json").read_text())
    assert [r["uid"] for r in results] == case["outputs"]["results_order"]


def test_missing_and_foreign_results(run: Path) -> None:
    (run / "odd" / "result.json").unlink()
    with pytest.raises(ValueError, match="1 of 4 cases are missing: odd; evaluate"):
        aggregate(run)
    assert not (run / "summary.json").exists()
    partial = aggregate(run, allow_partial=True)
    assert (partial["complete"], partial["missing_case_ids"]) == (False, ["odd"])
    with pytest.raises(ValueError, match="one result per case"):
        package(run, run.parent / "s.zip", allow_subset=True)
    path = run / "static__a" / "result.json"
    good = json.loads(path.read_text())
    for key in ("score_protocol", "evaluation_run_id", "prediction_sha256"):
        path.write_text(json.dumps({**good, key: "other"}))
        with pytest.raises(ValueError, match=f"Case static__a: {key} is not that of this run"):
            aggregate(run, allow_partial=True)
    path.write_text(json.dumps({**good, "uid": "static__b"}))
    with pytest.raises(ValueError, match="is not the result of static__a"):
        aggregate(run, allow_partial=True)
    path.write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        aggregate(run, allow_partial=True)


def test_the_archive(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (case,) = lab.cases("package")
    words = ["package", "--results", str(run), "--output", str(tmp_path / "s.zip")]
    assert main(words) == 1
    assert "Missing results.json; run persistbench aggregate first" in capsys.readouterr().err
    aggregate(run)
    assert main(words) == 1
    assert "has 4 cases; the leaderboard requires all 2,000" in capsys.readouterr().err
    assert not (tmp_path / "s.zip").exists()
    assert main([*words, "--allow-subset"]) == 0
    assert capsys.readouterr().out == (
        f"Submission ZIP: {tmp_path}/s.zip\n"
        "Diagnostic subset packaging enabled; the leaderboard requires all 2,000 published cases.\n"
    )
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        assert [[m.filename, m.compress_type] for m in archive.infolist()] == case["outputs"]["members"]
        assert all(archive.read(name) == (run / name).read_bytes() for name in archive.namelist())
    mask = os.umask(0)
    os.umask(mask)
    # The public tool leaves 0600, which colleagues on shared storage cannot read.
    assert (tmp_path / "s.zip").stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_is_not_packed(run: Path, tmp_path: Path) -> None:
    aggregate(run)
    with pytest.raises(ValueError, match="one of the files to pack"):
        package(run, run / "run.json", allow_subset=True)
    for name, change, fault in (
        (
            "summary.json",
            lambda v: v["averages"].update(object_permanence_visible=0.7),
            "averages.object_perm",
        ),
        ("summary.json", lambda v: v["groups"]["static"].pop("cases"), "groups.static.cases"),
        ("summary.json", lambda v: v.update(complete=1), "not of a complete run"),
        ("summary.json", lambda v: v["per_case"].pop("odd"), "per_case"),
        ("summary.json", lambda v: v.update(judge={"profile": "other"}), "judge.profile"),
        ("results.json", lambda v: v.pop(), "one result per case"),
        ("results.json", lambda v: v.__setitem__(0, v[1]), "two results"),
        ("results.json", lambda v: v[0].update(evaluation_run_id="x"), "evaluation_run_id"),
        ("run.json", lambda v: v.update(name="other"), "evaluation_run_id"),
        ("run.json", lambda v: v.update(schema_version=2), "expected schema 3"),
        ("run.json", lambda v: v.update(stage="inference"), "not of an evaluation run"),
        ("run.json", lambda v: v["case_ids"].append("odd"), "lists a case twice"),
        ("run.json", lambda v: v["prediction_cases"].pop("odd"), "prediction_cases"),
    ):
        before = (run / name).read_bytes()
        value = json.loads(before)
        change(value)
        (run / name).write_text(json.dumps(value))
        with pytest.raises(ValueError, match=fault):
            package(run, tmp_path / "s.zip", allow_subset=True)
        (run / name).write_bytes(before)
    assert not (tmp_path / "s.zip").exists()
    value = json.loads((run / "summary.json").read_text())
    value["ours"] = {"coverage": 1}
    (run / "summary.json").write_text(json.dumps(value))
    assert package(run, tmp_path / "s.zip", allow_subset=True).is_file(), "further keys are tolerated"
