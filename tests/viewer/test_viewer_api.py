"""What the routes answer about runs of every kind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from viewer_lab import PIXEL, RIGID, add_run, full_reward

from contract.metrics import METRICS
from scorer.report import main as report
from viewer.app import make_app
from viewer.trees import Trees

SELF = f"{RIGID}/self/1"


def rows(client: TestClient) -> dict[str, dict[str, Any]]:
    found = client.get("/api/runs").json()
    return {row[0]: dict(zip(found["columns"], row, strict=True)) for row in found["rows"]}


def test_every_run_is_listed_whatever_its_state(client: TestClient) -> None:
    found = rows(client)
    assert {name: (row["state"], row["scored"], row["cause"]) for name, row in found.items()} == {
        f"{RIGID}/self/1": ("done", "yes", ""),
        f"{RIGID}/late/1": ("done", "yes", ""),
        f"{RIGID}/frozen/1": ("done", "yes", ""),
        "real/clip/late/1": ("failed", "gate", "timeout"),
        "real/clip/self/1": ("environment_error", "no", "auth_error"),
        "real/clip/self/2": ("running", "no", ""),
        "real/clip/frozen/1": ("broken", "no", "broken_json"),
    }
    best = found[SELF]
    assert (best["cost"], best["seconds"], best["tokens"], best["steps"]) == (1.0, 60.0, 1500, 5)
    assert best["score"] == pytest.approx(0.9)
    assert found["real/clip/self/1"]["note"] == "token void"
    assert "not JSON" in found["real/clip/frozen/1"]["note"]


def test_only_what_changed_is_sent_again(tmp_path: Path) -> None:
    for name in ("cases", "data", "runs"):
        (tmp_path / name).mkdir()
    add_run(tmp_path / "runs", "real/a/s/1", {"state": "running"})
    add_run(tmp_path / "runs", "real/b/s/1")
    client = TestClient(
        make_app(Trees.of(*(tmp_path / name for name in ("cases", "data", "runs")))),
        base_url="http://localhost",
    )
    first = client.get("/api/runs")
    found = first.json()
    since = f"{found['index']}.{found['version']}"
    assert len(found["rows"]) == 2
    assert client.get("/api/runs", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    add_run(tmp_path / "runs", "real/a/s/1", {"state": "done"})
    (tmp_path / "runs/real/b/s/1/run.json").unlink()
    later = _later(client, since)
    assert [row[0] for row in later["rows"]] == ["real/a/s/1"]
    assert later["gone"] == ["real/b/s/1"]
    # Numbers of another life of the server mean nothing: everything is sent.
    assert client.get(f"/api/runs?since=other.{found['version']}").json()["gone"] is None


def _later(client: TestClient, since: str) -> dict[str, Any]:

    end = time.monotonic() + 60
    while time.monotonic() < end:
        found: dict[str, Any] = client.get(f"/api/runs?since={since}").json()
        if found["rows"]:
            return found
        time.sleep(0.1)
    raise AssertionError("the change was not noticed")


def test_a_run_shows_readings_states_and_causes(client: TestClient) -> None:
    view = client.get(f"/api/run/{SELF}").json()
    readings = {one["key"]: one for one in view["readings"]}
    assert readings["scene_3d"]["value"] == 0.9
    assert readings["depth_error"]["state"] == "not_applicable"
    assert [gate["ok"] for gate in view["gates"]] == [True, True]
    assert view["render"]["frames"] > 1
    assert view["record"]["agent"] == "self"
    refused = client.get("/api/run/real/clip/late/1").json()
    reading = {one["key"]: one for one in refused["readings"]}["dynamic_iou"]
    assert (reading["value"], reading["state"], reading["cause"]) == (None, "error", "no_video")
    assert refused["gates"][0] | {"lines": []} == {
        "name": "video_gate",
        "ok": False,
        "error": "no render.mp4",
        "lines": [],
    }
    broken = client.get("/api/run/real/clip/frozen/1").json()
    assert broken["record"] is None
    assert "not JSON" in broken["problems"][0]


def test_a_case_lists_its_files_and_runs(client: TestClient) -> None:
    case = client.get(f"/api/case/{RIGID}").json()
    assert case["files"] == {"video": True, "world": True, "render": True}
    assert case["video"]["frames"] == case["render"]["frames"]
    assert len(case["rows"]) == 3
    assert client.get("/api/case/real/clip").json()["files"] == {
        "video": False,
        "world": False,
        "render": False,
    }
    assert client.get("/api/cases").json() == {"cases": ["real/clip", RIGID]}


def test_series_name_their_frames(client: TestClient) -> None:
    (series,) = client.get(f"/api/series/{RIGID}/late/1").json()["series"]
    assert (series["frames"], series["values"], series["better"]) == ([0, 1, 2], [0.5, 0.6, 0.2], "up")
    assert client.get("/api/series/real/clip/self/1").json() == {"series": []}


@pytest.mark.parametrize("style", ["csv", "json", "latex", "markdown"])
def test_exports_are_those_of_the_command_line(
    client: TestClient, trees: Trees, style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report(["--runs", str(trees.runs), "--format", style, "--system", "self", "--system", "late"])
    printed = capsys.readouterr().out
    answer = client.get(f"/api/report.{style}?system=self&system=late")
    assert answer.headers["content-disposition"].startswith("attachment")
    if style == "json":
        ours, theirs = answer.json(), json.loads(printed)
        assert set(ours.pop("missing")) == set(theirs.pop("missing")) | {"real/clip/self/2"}
        assert ours == theirs
    else:
        # A run that goes on is known to the viewer only.
        kept = [
            line
            for line in answer.text.splitlines()
            if "real/clip/self/2" not in line and "Missing (" not in line
        ]
        assert kept == [line for line in printed.splitlines() if "Missing (" not in line]


def test_by_case_and_what_was_spent(client: TestClient) -> None:
    pivot = client.get("/api/pivot?metric=dynamic_iou").json()["cases"]
    assert pivot[RIGID]["late"] == {"mean": 0.6, "trials": 1, "states": {}}
    assert pivot["real/clip"]["late"] == {"mean": 0.0, "trials": 1, "states": {"error": 1}}
    assert pivot["real/clip"]["self"] == {"mean": None, "trials": 2, "states": {"missing": 2}}
    overall = client.get("/api/pivot").json()["cases"]
    assert overall[RIGID]["self"]["mean"] == pytest.approx(0.9)
    spent = client.get("/api/report").json()["spent"]
    assert spent["self"]["cost"] == {"mean": 1.0, "runs": 1}
    assert client.get("/api/pivot?metric=nothing").status_code == 404
    assert client.get("/api/report?by=colour").status_code == 404


def test_a_reward_that_is_no_reading_hides_no_other(tmp_path: Path) -> None:
    for name in ("cases", "data"):
        (tmp_path / name).mkdir()
    add_run(tmp_path / "runs", "real/a/good/1", {}, full_reward("real/a", 0.5))
    add_run(tmp_path / "runs", "real/a/bad/1", {}, {"dynamic_iou": "excellent", "mesh_manifold": [1]})
    client = TestClient(
        make_app(Trees.of(tmp_path / "cases", tmp_path / "data", tmp_path / "runs")),
        base_url="http://localhost",
    )
    found = client.get("/api/report").json()
    assert [group["name"] for group in found["groups"]] == ["good"]
    assert found["missing"] == {"real/a/bad/1": "holds something that is no reading"}
    row = rows(client)["real/a/bad/1"]
    assert row["score"] is None
    assert row["reward"][0] == "?"


def test_nothing_scored_is_said(tmp_path: Path) -> None:
    for name in ("cases", "data", "runs"):
        (tmp_path / name).mkdir()
    client = TestClient(
        make_app(Trees.of(*(tmp_path / name for name in ("cases", "data", "runs")))),
        base_url="http://localhost",
    )
    answer = client.get("/api/report")
    assert answer.status_code == 422
    assert "run score.py first" in answer.json()["error"]
    assert client.get("/api/runs").json()["rows"] == []


def test_metrics_are_the_table(client: TestClient) -> None:
    found = client.get("/api/metrics").json()
    assert [one["key"] for one in found["metrics"]] == [metric.key for metric in METRICS]
    assert next(one for one in found["metrics"] if one["key"] == "depth_error")["worst"] == 2.0


def test_texts_come_in_pages(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    page = client.get(f"/api/text/{SELF}?path=logs/agent.log").json()
    assert (page["text"], page["size"], page["binary"]) == ("first line\nsecond line\n", 23, False)
    monkeypatch.setattr("viewer.texts.PAGE", 10)
    assert client.get(f"/api/text/{SELF}?path=logs/agent.log&start=11").json()["text"] == "second lin"
    assert client.get(f"/api/text/{SELF}?path=logs/agent.log&start=-5").json()["text"] == "line\n"


def test_a_transcript_in_steps_with_its_picture(client: TestClient) -> None:
    files = client.get(f"/api/transcript/{SELF}").json()["files"]
    assert [file["path"] for file in files] == ["session/.claude/projects/p/one.jsonl", "logs/agent.log"]
    path = files[0]["path"]
    page = client.get(f"/api/transcript/{SELF}?path={path}").json()
    assert [step["role"] for step in page["steps"]] == [
        "user", "thinking", "assistant", "call", "result", "image", "result", "result",
    ]  # fmt: skip
    assert [page["steps"][number]["title"] for number in (3, 5, 7)] == ["Bash", "image/png", "error"]
    assert page["steps"][1]["tokens"] == {"in": 12, "out": 34, "cached": 5600}
    assert page["steps"][3]["text"] == "command: ls /input"
    picture = page["steps"][5]
    answer = client.get(f"/api/image/{SELF}?path={path}&at={picture['at']}&n={picture['image']}")
    assert (answer.content, answer.headers["content-type"]) == (PIXEL, "image/png")
    assert client.get(f"/api/image/{SELF}?path={path}&at=0&n=0").status_code == 404
    second = client.get(f"/api/transcript/{SELF}?path={path}&start=6&count=1").json()
    assert (second["total"], [step["text"] for step in second["steps"]]) == (8, ["seen"])
