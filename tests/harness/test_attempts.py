"""The attempts of a run on record, and making room for the next one, whatever step a kill comes at."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from harness_lab import DELIVER, Lab, snapshot

from contract.record import write_json
from harness.runtime import attempts, cost
from harness.runtime.attempts import Spent, close, has_ended, number, recounted, set_aside, spent
from harness.runtime.runrecord import RunRecord

USAGE = {"input_tokens": 5, "cached_input_tokens": 3, "cache_write_tokens": 1, "output_tokens": 1,
         "reasoning_output_tokens": 1}  # fmt: skip


def stage(root: Path) -> tuple[Path, RunRecord]:
    """A staging directory whose first attempt has ended."""
    staging = root / ".1.staging-00000001"
    for name in ("run/logs", "run/session/.s", "run/workspace/world", "workspace", "home/.x"):
        (staging / name).mkdir(parents=True)
    (staging / "run/logs/agent.log").write_text("one", encoding="utf-8")
    (staging / "run/session/.s/a.jsonl").write_text("{}", encoding="utf-8")
    (staging / "home/.x/login.json").write_text("secret", encoding="utf-8")
    record = RunRecord(staging / "run", {"run_id": "00000001", "attempt": 1, "attempts": []})
    record.fields |= {"failure": "engine_lost", "error": "gone", "usage": USAGE, "cost_usd": 0.25}
    close(record)
    record.enter("queued")
    return staging, record


def test_an_attempt_is_listed_once_with_what_it_used(tmp_path: Path) -> None:
    _, record = stage(tmp_path)
    close(record)
    (entry,) = record.fields["attempts"]
    assert (entry["number"], entry["failure"], entry["cost_usd"]) == (1, "engine_lost", 0.25)
    assert record.fields["spent"] == {"tokens": 10, "cost_usd": 0.25}
    assert has_ended(record.fields)


def test_the_next_attempt_finds_an_empty_place(tmp_path: Path) -> None:
    staging, record = stage(tmp_path)
    set_aside(staging, record)
    assert set(snapshot(staging)) == {
        "run", "run/run.json", "run/attempts", "run/attempts/1", "run/attempts/1/logs",
        "run/attempts/1/logs/agent.log", "run/attempts/1/session", "run/attempts/1/session/.s",
        "run/attempts/1/session/.s/a.jsonl", "run/attempts/1/workspace", "run/attempts/1/workspace/world",
    }  # fmt: skip
    assert number(record.fields) == 2
    assert not {"failure", "error", "usage", "cost_usd", "ended_at"} & set(record.fields)
    assert record.fields["attempts"][0]["cost_usd"] == 0.25


class Killed(BaseException):
    """Stands for the launcher's death at a certain system call."""


def test_a_kill_at_any_step_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, record = stage(tmp_path / "whole")
    set_aside(whole, record)
    record.enter("running")
    expected = set(snapshot(whole))
    for allowed in range(20):
        staging, record = stage(tmp_path / str(allowed))
        with monkeypatch.context() as patch:
            left = itertools.repeat(None, allowed)
            for module, name in ((attempts, "remove_tree"), (Path, "rename"), (Path, "mkdir")):
                real = getattr(module, name)

                def step(*given: Any, _real: Any = real, _left: Any = left, **named: Any) -> Any:
                    if next(_left, "dead") == "dead":
                        raise Killed
                    return _real(*given, **named)

                patch.setattr(module, name, step)
            try:
                set_aside(staging, record)
                died = False
            except Killed:
                died = True
        again = RunRecord.load(staging / "run")
        set_aside(staging, again)
        again.enter("running")
        assert set(snapshot(staging)) == expected
        assert (number(again.fields), len(again.fields["attempts"])) == (2, 1)
        if not died:
            return
    raise AssertionError("there are more steps than this test allows")


@pytest.mark.parametrize(
    ("record", "total"),
    [
        ({}, Spent()),
        ({"usage": USAGE, "cost_usd": 1.5}, Spent(10, 1.5, 1, 0)),
        ({"usage": USAGE, "cost_usd": None}, Spent(10, 0.0, 1, 1)),
        ({"attempts": [{"usage": USAGE, "cost_usd": 1.0}, {"failure": "x"}, {"usage": USAGE, "cost_usd": 0}]},
         Spent(20, 1.0, 2, 0)),
        ({"attempts": [{"usage": USAGE, "cost_usd": 1.0}, {"usage": USAGE}]}, Spent(20, 1.0, 2, 1)),
        ({"attempts": ["nonsense", None], "usage": USAGE}, Spent()),
        ({"attempts": "nonsense", "usage": USAGE, "cost_usd": 2}, Spent(10, 2.0, 1, 0)),
        ({"usage": {"input_tokens": 0}, "cost_usd": None}, Spent(0, 0.0, 1, 0)),
    ],
)  # fmt: skip
def test_what_a_record_has_spent(record: dict[str, Any], total: Spent) -> None:
    assert spent(record) == total


def test_an_unknown_cost_is_null_and_never_nothing() -> None:
    assert spent({"attempts": [{"usage": USAGE, "cost_usd": 1.0}, {"usage": USAGE}]}).cost is None
    assert Spent().cost is None
    assert Spent(0, 0.0, 1, 0).cost == 0.0


@pytest.mark.parametrize("state", ["interrupted", "environment_error"])
def test_a_run_of_a_launcher_without_a_list_of_attempts_is_taken_up(lab: Lab, state: str) -> None:
    lab.runtime(lab.shell_agent(DELIVER + "echo new"))
    lab.jobs()
    (lab.place() / "logs").mkdir(parents=True)
    (lab.place() / "logs/agent.log").write_text("old\n", encoding="utf-8")
    RunRecord(lab.place(), {"run_id": "0badcafe", "agent_seconds": 5.0}).enter(state)
    assert lab.infer().returncode == 0
    record = lab.record()
    assert (record["state"], record["attempt"]) == ("done", 2)
    assert [entry["number"] for entry in record["attempts"]] == [1, 2]
    assert (lab.place() / "attempts/1/logs/agent.log").read_text(encoding="utf-8") == "old\n"
    assert (lab.place() / "logs/agent.log").read_text(encoding="utf-8") == "new\n"


def test_counting_again_covers_every_attempt(tmp_path: Path) -> None:
    line = json.dumps({"usage": {"input_tokens": 7, "output_tokens": 3}, "cost_usd": 0.5}) + "\n"
    run = tmp_path / "real/x/a-m-none/1"
    for place in ("session", "attempts/1/session"):
        (run / place).mkdir(parents=True)
        (run / place / "t.jsonl").write_text(line, encoding="utf-8")
    kept = {"number": 2, "failure": "engine_lost", "usage": USAGE, "cost_usd": None}
    record = {"model": "m", "transcript": "usage", "attempt": 3, "usage": USAGE, "cost_usd": None,
              "attempts": [{"number": 1}, kept, {"number": 3, "usage": USAGE}]}  # fmt: skip
    write_json(run / "run.json", record)
    fresh = recounted(record, run, "usage")
    assert [entry.get("cost_usd") for entry in fresh["attempts"]] == [0.5, None, 0.5]
    assert fresh["spent"] == {"tokens": 30, "cost_usd": None}
    assert cost.main([str(tmp_path), "--write", "--json"]) == 0
    stored = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (stored["cost_usd"], stored["spent"]) == (0.5, {"tokens": 30, "cost_usd": None})
    assert cost.totals([cost.count(run)])["tokens"] == 30
    assert recounted({"usage": USAGE}, run, "usage") == {"usage": USAGE}
