"""``infer.py`` as a program: real processes, real signals."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness_lab import DELIVER, INFER, REPOSITORY, SCORE, VIDEO, Lab, box, end, eventually, snapshot

from contract.errors import run_program
from harness.runtime.batch import SAME_STOP_S
from harness.runtime.infer import main

STAGED = "*/*/*/.1.staging-*"
HISTORY = ["queued", "running", "collecting"]


def states(record: dict[str, Any]) -> list[str]:
    return [entry["state"] for entry in record["history"]]


def deliver(lab: Lab, script: str = "", extra: str = "", **agent: str) -> None:
    lab.runtime(lab.shell_agent(DELIVER + script, extra=extra), **agent)


def test_a_run_that_succeeds(lab: Lab) -> None:
    script = (
        'echo "task: $(head -n 1 {task})"; cmp {video} "$VIDEO" && echo same; pwd; '
        'echo "$HOME"; echo note > "$HOME/.notes/n"'
    )
    deliver(
        lab,
        script,
        'session_dir = ".notes"\n[agent.tester.env]\nVIDEO = "%s"'
        % (lab.cases / "synthetic/B_01/reference.mp4"),
    )
    lab.jobs()
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[RUN] infer synthetic-B_01-tester-m-none-1" in done.stdout
    assert "isolates them" in done.stdout
    assert "1 of 1 runs done" in done.stdout
    assert set(snapshot(lab.place())) == {
        "logs", "logs/agent.log", "run.json", "session", "session/.notes", "session/.notes/n", "workspace",
        "workspace/solution", "workspace/solution/build.sh", "workspace/world", "workspace/world/a",
    }  # fmt: skip
    log = (lab.place() / "logs/agent.log").read_text(encoding="utf-8").splitlines()
    assert log[:2] == ["task: # Rebuild a filmed event as a program", "same"]
    record = lab.record()
    assert states(record) == [*HISTORY, "done"]
    expected = {
        "case": "synthetic/B_01", "agent": "tester", "model": "m", "effort": "none", "trial": 1,
        "backend": "host",
        "session": "session", "state": "done", "agent_exit": 0, "container_exit": 0, "delivered": True,
        "artifacts": ["solution", "world"], "timed_out": False, "interrupted": False, "gone": True,
        "error": None,
        "timeout_sec": 60,
    }  # fmt: skip
    assert {name: record[name] for name in expected} == expected
    assert record["provenance"]["harness"]
    assert record["owner"]["pid"]
    assert lab.leftovers() == []


def test_the_agent_runs_in_its_workspace_with_a_home_of_its_own(lab: Lab) -> None:
    deliver(lab, 'pwd; echo "$HOME"; echo "$TMPDIR"; ls -A "$HOME" . ; test -w {video} && echo writable')
    lab.jobs()
    assert lab.infer().returncode == 0
    log = (lab.place() / "logs/agent.log").read_text(encoding="utf-8")
    staging = str(lab.place().with_name(".1.staging-"))
    assert log.splitlines()[0].startswith(staging)
    assert log.splitlines()[0].endswith("/workspace")
    assert log.splitlines()[1].endswith("/home")
    assert (lab.cases / "synthetic/B_01/reference.mp4").read_bytes() == VIDEO


def test_an_agent_that_overwrites_its_video_does_not_reach_the_case(lab: Lab) -> None:
    deliver(lab, "echo changed > {video}")
    lab.jobs()
    assert lab.infer().returncode == 0
    assert (lab.cases / "synthetic/B_01/reference.mp4").read_bytes() == VIDEO


@pytest.mark.parametrize(
    ("script", "exit_status", "delivered", "note"),
    [
        ("exit 3", 3, False, "status 3"),
        (DELIVER + "exit 3", 3, True, "status 3"),
        ("mkdir world", 0, False, "no world/ and solution/build.sh"),
        ("mkdir -p world solution", 0, False, "no world/ and solution/build.sh"),
        ("kill -9 $$", 137, False, "status 137"),
    ],
)
def test_runs_that_fail_are_results_and_do_not_stop_others(
    lab: Lab, script: str, exit_status: int, delivered: bool, note: str
) -> None:
    lab.runtime(lab.shell_agent(script, "bad") + lab.shell_agent(DELIVER))
    lab.jobs({"agent": "bad"}, {"agent": "tester"})
    done = lab.infer()
    assert done.returncode == 1
    record = lab.record(system="bad-m-none")
    assert (record["state"], record["agent_exit"], record["delivered"]) == ("failed", exit_status, delivered)
    assert note in done.stdout
    assert lab.record()["state"] == "done"
    assert "1 of 2 runs done" in done.stdout


def test_a_timeout_keeps_the_partial_delivery_and_leaves_nothing_running(lab: Lab) -> None:
    script = DELIVER + "echo working; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); sleep 1000"
    lab.runtime(lab.shell_agent(script), agent="timeout_sec = 1\ngrace_sec = 0.3")
    lab.jobs()
    assert lab.infer().returncode == 1
    record = lab.record()
    assert (record["state"], record["agent_exit"], record["timed_out"]) == ("failed", 124, True)
    assert (record["delivered"], record["gone"]) == (True, True)
    assert record["killed_after_sec"] >= 1
    assert (lab.place() / "logs/agent.log").read_text(encoding="utf-8").startswith("working\n")
    assert lab.processes() == []
    assert lab.leftovers() == []


def test_a_command_that_vanished_is_an_error_of_the_environment_and_is_run_again(lab: Lab) -> None:
    program = lab.root / "program"
    program.write_text("#!/nowhere/interpreter\n", encoding="utf-8")
    program.chmod(0o755)
    lab.runtime(f'[agent.tester]\ncommand = ["{program}", "{{workspace}}"]')
    lab.jobs()
    done = lab.infer()
    assert done.returncode == 1
    record = lab.record()
    assert (record["state"], record["agent_exit"]) == ("environment_error", None)
    assert "could not be started" in record["error"]
    program.write_text("#!/bin/sh\nmkdir -p world solution; touch solution/build.sh\n", encoding="utf-8")
    assert lab.infer().returncode == 0
    assert lab.record()["state"] == "done"


def test_finished_runs_are_skipped_and_redone_only_on_request(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(DELIVER) + lab.shell_agent("exit 1", "bad"))
    lab.jobs({}, {"agent": "bad"})
    assert lab.infer().returncode == 1
    before = snapshot(lab.runs)
    done = lab.infer()
    assert done.returncode == 1
    assert "finished before" in done.stdout
    assert snapshot(lab.runs) == before
    ids = lab.record()["run_id"], lab.record(system="bad-m-none")["run_id"]
    assert lab.infer("--redo").returncode == 1
    assert lab.record()["run_id"] != ids[0]
    assert lab.record(system="bad-m-none")["run_id"] != ids[1]
    assert lab.leftovers() == []


def test_results_of_a_run_go_with_it_when_it_is_replaced(lab: Lab) -> None:
    deliver(lab)
    lab.jobs()
    assert lab.infer().returncode == 0
    (lab.place() / "results").mkdir()
    assert lab.infer("--redo").returncode == 0
    assert not (lab.place() / "results").exists()


def test_a_changed_configuration_is_refused_with_the_difference(lab: Lab) -> None:
    deliver(lab, extra='[agent.tester.env]\nLEVEL = "one"')
    lab.jobs({}, {"case": "clip"})
    assert lab.infer().returncode == 0
    deliver(lab, extra='[agent.tester.env]\nLEVEL = "two"', agent="timeout_sec = 61")
    before = snapshot(lab.root)
    refused = lab.infer()
    assert refused.returncode == 2
    assert "env.LEVEL: 'one' -> 'two'; timeout_sec: 60 -> 61" in refused.stderr
    assert "--redo" in refused.stderr
    assert snapshot(lab.root) == before
    kept = lab.infer("--keep")
    assert kept.returncode == 0
    assert snapshot(lab.root) == before
    assert lab.infer("--redo").returncode == 0
    assert lab.record()["config"]["env"] == {"LEVEL": "two"}


def test_a_replaced_video_is_a_changed_configuration(lab: Lab) -> None:
    deliver(lab)
    lab.jobs()
    assert lab.infer().returncode == 0
    (lab.cases / "synthetic/B_01/reference.mp4").write_bytes(VIDEO + box(b"free"))
    refused = lab.infer()
    assert refused.returncode == 2
    assert "video_sha256" in refused.stderr


@pytest.mark.parametrize("content", ["{", None])
def test_what_has_no_readable_record_is_not_replaced_unasked(lab: Lab, content: str | None) -> None:
    deliver(lab)
    lab.jobs()
    lab.place().mkdir(parents=True)
    (lab.place() / "precious").write_text("x", encoding="utf-8")
    if content:
        (lab.place() / "run.json").write_text(content, encoding="utf-8")
    before = snapshot(lab.root)
    refused = lab.infer()
    assert refused.returncode == 2
    assert "no readable run.json" in refused.stderr
    assert snapshot(lab.root) == before
    assert lab.infer("--redo").returncode == 0
    assert lab.record()["state"] == "done"


def test_a_dry_run_touches_nothing(lab: Lab) -> None:
    extra = '[agent.tester.env]\nMY_TOKEN = "abcdefgh-secret"'
    deliver(lab, extra=extra)
    lab.jobs({}, {"case": "clip", "model": "org/m"})
    before = snapshot(lab.root)
    done = lab.infer("--dry-run")
    assert done.returncode == 0
    assert snapshot(lab.root) == before
    assert "would run synthetic-B_01-tester-m-none-1" in done.stdout
    assert "real/clip/tester-org%2Fm-none/1" in done.stdout
    assert "MY_TOKEN=***" in done.stdout
    assert "abcdefgh-secret" not in done.stdout
    assert lab.infer().returncode == 0
    after = snapshot(lab.root)
    assert "would skip" in lab.infer("--dry-run").stdout
    assert snapshot(lab.root) == after


def refusal(lab: Lab, capsys: pytest.CaptureFixture[str], program: Callable[[list[str]], int] = main) -> str:
    """Run a launcher in this process, expect a fault of the user, and return the line it says about it."""
    flags = ["--jobs", str(lab.jobs_path), "--runtime", str(lab.runtime_path)]
    with pytest.raises(SystemExit) as left:
        run_program(lambda: program(flags))
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


BROKEN = {
    "unknown key": ("[agent.tester]\ncommnd = ['true']", {}, "command"),
    "unknown agent": ("", {"agent": "claud"}, "did you mean 'claude'"),
    "unknown effort": ("", {"agent": "claude", "effort": "extreme"}, "low, medium, high, xhigh, max"),
    "unknown placeholder": ("[agent.x]\ncommand = ['true', '{wrkspace}']", {"agent": "x"}, "{workspace}"),
    "effort of a custom agent": ("[agent.x]\ncommand = ['true']\nefforts = ['a']", {"agent": "x"},
    "expected one of a"),
    "missing program": ("[agent.x]\ncommand = ['no-such-4dcb']", {"agent": "x"}, "no-such-4dcb"),
    "missing case": ("", {"case": "B_99"}, "did you mean 'B_01'"),
    "missing credential": (
        "[agent.x]\ncommand = ['true']\ncredential = 'x.json'\ncontainer = '/root/.x'", {"agent": "x"},
        "x.json",
    ),
    "credential elsewhere": (
        "[agent.x]\ncommand = ['true']\ncredential = '../x'\ncontainer = '/root/.x'", {"agent": "x"},
        "auth_root",
    ),
    "network off on the host": ("[agent.environment]\nnetwork_mode = 'no-network'", {}, "cannot cut"),
    "limits on the host": ("[agent.limits]\nmemory_mb = 100", {}, "memory_mb"),
    "unset variable": ("[agent.x]\ncommand = ['true']\nenv = {A = '${NOT_SET_4DCB}'}", {"agent": "x"},
    "NOT_SET_4DCB"),
    "stirrup on the host": ("", {"agent": "stirrup"}, "stirrup"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_in_the_last_job_stops_all_before_anything_is_touched(
    lab: Lab, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    tables, job, part = BROKEN[name]
    good = "" if "[agent.tester]" in tables else lab.shell_agent(DELIVER)
    lab.runtime(good + tables)
    lab.jobs({}, {"model": "other", **job})
    before = snapshot(lab.root)
    said = refusal(lab, capsys)
    assert part in said
    assert snapshot(lab.root) == before


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "has no video"),
        (b"", "is empty"),
        (b"not a video at all", "no MP4"),
        (VIDEO[:-10], "cut off"),
        (box(b"ftyp", b"isom") + box(b"mdat", b"data"), "moov"),
    ],
)
def test_an_unusable_video_stops_all_before_anything_is_touched(
    lab: Lab, capsys: pytest.CaptureFixture[str], content: bytes | None, part: str
) -> None:
    deliver(lab)
    lab.jobs({}, {"case": "clip"})
    video = lab.cases / "real/clip/reference.mp4"
    video.unlink()
    if content is not None:
        video.write_bytes(content)
    before = snapshot(lab.root)
    said = refusal(lab, capsys)
    assert part in said
    assert str(video) in said
    assert snapshot(lab.root) == before


def test_backends_that_cannot_be_used(lab: Lab) -> None:
    sif = '[sif]\nexecutable = "no-such-apptainer"'
    lab.runtime(lab.shell_agent(DELIVER) + sif, top='backend = "sif"', agent='image = {sif = "x.sif"}')
    lab.jobs()
    done = lab.infer()
    assert done.returncode == 2
    assert "'no-such-apptainer' was found" in done.stderr
    assert done.stderr.count("\n") == 1
    lab.runtime(lab.shell_agent(DELIVER), top='backend = "docker"')
    done = lab.infer(DOCKER_HOST=f"unix://{lab.root}/no.sock")
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_program_is_said_in_words_of_the_runtime_file(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.runtime("[agent.x]\ncommand = ['no-such-4dcb']")
    lab.jobs({"agent": "x"})
    said = refusal(lab, capsys)
    assert f"error: {lab.runtime_path}: [agent.x]: program 'no-such-4dcb' was not found" in said
    assert 'backend = "host"' in said
    assert "4dcb-check" not in said


def test_flags_that_contradict_or_are_missing(lab: Lab) -> None:
    deliver(lab)
    lab.jobs()
    assert lab.infer("--redo", "--keep").returncode == 2
    assert lab.infer("--no-such-flag").returncode == 2


def test_results_as_json(lab: Lab) -> None:
    deliver(lab)
    lab.jobs()
    done = lab.infer("--json")
    (result,) = json.loads(done.stdout)
    assert result == {
        "case": "synthetic/B_01", "agent": "tester", "model": "m", "effort": "none", "trial": 1,
        "backend": "host", "state": "done", "delivered": True, "note": "",
        "attempts": 1, "failure": None, "tokens": None, "cost_usd": None,
    }  # fmt: skip


def test_the_task_arrives_as_argument_file_and_standard_input_alike(lab: Lab) -> None:
    script = 'printf "%s" "$1" > world/argument; cat > world/stdin; cp {task} world/file'
    words = ["sh", "-c", DELIVER + script, "sh", "{task_text}"]
    lab.runtime(f'[agent.tester]\ncommand = {json.dumps(words)}\nstdin = "task"')
    lab.jobs()
    assert lab.infer().returncode == 0
    world = lab.place() / "workspace/world"
    text = (world / "file").read_text(encoding="utf-8")
    assert "{{" not in text
    assert str(lab.place().with_name(".1.staging-")) in text
    assert (world / "stdin").read_text(encoding="utf-8") == text
    assert (world / "argument").read_text(encoding="utf-8") == text
    assert "<text of TASK.md>" in lab.record()["agent_command"]


def test_hostile_deliveries_cost_a_note_each(lab: Lab) -> None:
    script = (
        "ln -s /etc world/etc; ln -s /etc/passwd solution/p.py; mkfifo world/pipe; "
        "truncate -s 10G world/huge; touch 'world/line\nbreak'; mkdir world/locked; "
        "touch world/locked/in; chmod 000 world/locked; "
        'mkdir "$HOME/.s/deep"; ln -s /etc/shadow "$HOME/.s/deep/shadow"; chmod 000 "$HOME"'
    )
    deliver(lab, script, 'session_dir = ".s"')
    lab.jobs()
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    record = lab.record()
    assert record["symlinks_dropped"] == ["solution/p.py", "world/etc"]
    assert [note["path"] for note in record["delivery"]["skipped"]] == ["world/huge", "world/pipe"]
    assert record["session_dropped"] == [".s/deep/shadow"]
    assert (lab.place() / "workspace/world/locked/in").exists()
    assert (lab.place() / "workspace/world/line\nbreak").exists()
    assert lab.leftovers() == []


def test_no_secret_is_left_in_any_file(lab: Lab) -> None:
    token, key, outer = "tok-0123456789abcdef", "key-0123456789abcdef", "outer-0123456789abcdef"
    lab.auth.mkdir()
    (lab.auth / "login.json").write_text(json.dumps({"auth": [{"access_token": token}]}), encoding="utf-8")
    script = (
        'cat "$HOME/.x/login.json"; echo "$API_KEY $OTHER"; env > "$HOME/.s/env.jsonl"; '
        'echo "$API_KEY" > world/leak.json; '
        'printf "%s" "$API_KEY" | base64 > solution/leak.py; echo changed >> "$HOME/.x/login.json"'
    )
    extra = f'''credential = "login.json"
container = "/root/.x/login.json"
session_dir = ".s"
[agent.tester.env]
API_KEY = "{key}"
OTHER = "${{OUTER_4DCB}}"
'''
    deliver(lab, script, extra)
    lab.jobs()
    done = lab.infer(OUTER_4DCB=outer)
    assert done.returncode == 0, done.stdout + done.stderr
    everything = b"".join(path.read_bytes() for path in lab.runs.rglob("*") if path.is_file())
    for secret in (token, key, outer):
        assert secret.encode() not in everything
        assert secret not in done.stdout + done.stderr
    assert b"a2V5LTAxMjM0NTY3ODlhYmNkZWY" not in everything
    assert lab.record()["scrubbed"] == [
        "logs/agent.log", "session/.s/env.jsonl", "workspace/solution/leak.py", "workspace/world/leak.json",
    ]  # fmt: skip
    assert lab.record()["config"]["secret_env"] == ["API_KEY", "OTHER"]
    assert json.loads((lab.auth / "login.json").read_text(encoding="utf-8"))["auth"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_agent_and_is_recorded(lab: Lab, number: signal.Signals) -> None:
    started = lab.root / "started"
    script = DELIVER + f"(setsid sleep 1000 &); touch {started}; sleep 1000"
    lab.runtime(lab.shell_agent(script))
    lab.jobs({}, {"case": "clip"})
    process = lab.start()
    try:
        assert eventually(started.exists)
        (staging,) = lab.place().parent.glob(".1.staging-*")
        running = json.loads((staging / "run/run.json").read_text(encoding="utf-8"))
        assert (running["state"], running["owner"]["pid"]) == ("running", process.pid)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130, output
    assert lab.record()["state"] == "interrupted"
    assert lab.record()["gone"]
    assert not lab.place(case="real/clip").exists()
    assert "not started" in output
    assert lab.processes() == []
    assert lab.leftovers() == []


def patient_agent(lab: Lab) -> Path:
    """An agent that will not leave on SIGTERM, and a grace period longer than any test. Returns its sign."""
    started = lab.root / "started"
    script = DELIVER + f"trap '' TERM; touch {started}; while :; do sleep 0.05; done"
    lab.runtime(lab.shell_agent(script), agent="timeout_sec = 600\ngrace_sec = 500")
    lab.jobs()
    return started


def test_signals_that_come_together_are_one_stop(lab: Lab) -> None:
    started = lab.root / "started"
    script = f"trap 'sleep 0.5; exit 0' TERM; touch {started}; while :; do sleep 0.05; done"
    lab.runtime(lab.shell_agent(script), agent="timeout_sec = 60\ngrace_sec = 50")
    lab.jobs()
    process = lab.start()
    try:
        assert eventually(started.exists)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130, output
    assert lab.record()["state"] == "interrupted"


def test_a_second_ctrl_c_ends_everything_at_once(lab: Lab) -> None:
    started = patient_agent(lab)
    process = lab.start()
    try:
        assert eventually(started.exists)
        process.send_signal(signal.SIGINT)
        time.sleep(SAME_STOP_S + 0.2)
        assert process.poll() is None, "the agent was to be patient"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130, output
    assert "ended at once" in output
    assert eventually(lambda: not lab.processes())
    lab.runtime(lab.shell_agent(DELIVER))
    assert lab.infer().returncode == 0
    record = lab.record()
    assert (record["state"], record["attempt"]) == ("done", 2)
    assert record["attempts"][0]["failure"] == "launcher_killed"
    assert lab.leftovers() == []


def test_an_interrupted_redo_leaves_the_finished_run_alone(lab: Lab) -> None:
    gate = lab.root / "gate"
    script = DELIVER + f"if test -e {gate}; then touch {gate}.on; sleep 1000; fi"
    lab.runtime(lab.shell_agent(script))
    lab.jobs()
    assert lab.infer().returncode == 0
    before = snapshot(lab.place())
    gate.touch()
    process = lab.start("--redo")
    try:
        assert eventually(lambda: Path(f"{gate}.on").exists())
        assert snapshot(lab.place()) == before
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        end(process)
    assert snapshot(lab.place()) == before
    attempt = lab.place().with_name(".1.attempt")
    assert json.loads((attempt / "run.json").read_text(encoding="utf-8"))["state"] == "interrupted"
    assert lab.leftovers() == [attempt]


def test_two_launchers_never_run_the_same_run_twice(lab: Lab) -> None:
    count, gate = lab.root / "count", lab.root / "gate"
    script = DELIVER + f"echo x >> {count}; while ! test -e {gate}; do sleep 0.02; done"
    lab.runtime(lab.shell_agent(script))
    lab.jobs()
    first = lab.start()
    try:
        assert eventually(count.exists)
        second = lab.infer()
        assert second.returncode == 1
        assert "busy" in second.stdout
        assert len(list(lab.place().parent.glob(".1.staging-*"))) == 1
        gate.touch()
        first.communicate(timeout=60)
    finally:
        end(first)
    assert first.returncode == 0
    assert lab.infer().returncode == 0
    assert count.read_text(encoding="utf-8") == "x\n"


@pytest.mark.slow
def test_killing_the_launcher_at_any_moment_loses_and_repeats_nothing(lab: Lab) -> None:
    """Eight seeded kills over a batch; then one launch to the end. Every finished run is run exactly once."""
    names = [f"a{number}" for number in range(6)]
    script = DELIVER + "(setsid sleep 1000 &); sleep 0.15; exit {effort}"
    lab.runtime("".join(lab.shell_agent(script, name) for name in names))
    lab.jobs(*({"agent": name, "effort": str(int(name == "a2"))} for name in names))
    finished: dict[str, str] = {}
    moments = random.Random(4)
    for _ in range(8):
        before = set(lab.runs.glob(STAGED))
        process = lab.start()
        try:
            eventually(lambda before=before: set(lab.runs.glob(STAGED)) - before, 3.0)
            time.sleep(moments.uniform(0.0, 0.6))
            process.kill()
        finally:
            end(process)
        assert eventually(lambda: not lab.processes()), "something outlived the launcher"
        for path in lab.runs.rglob("run.json"):
            record = json.loads(path.read_text(encoding="utf-8"))  # never half-written
            if record["state"] in ("done", "failed"):
                assert finished.setdefault(record["agent"], record["run_id"]) == record["run_id"]
    assert lab.infer().returncode == 1
    for name in names:
        record = lab.record(system=f"{name}-m-{int(name == 'a2')}")
        assert record["state"] == ("failed" if name == "a2" else "done")
        assert finished.get(name, record["run_id"]) == record["run_id"]
    assert finished, "no run ended between two kills: the test shows nothing"
    assert lab.leftovers() == []
    assert lab.processes() == []


def test_a_launcher_killed_while_collecting_does_not_cost_the_agents_work(lab: Lab) -> None:
    count = lab.root / "count"
    deliver(lab, f"echo x >> {count}; seq 1 3000 | (cd {{world}} && xargs touch)")
    lab.jobs()
    process = lab.start()
    try:
        records = ".1.staging-*/run/run.json"
        assert eventually(
            lambda: any('"collecting"' in path.read_text() for path in lab.place().parent.glob(records))
        )
        process.kill()
    finally:
        end(process)
    done = lab.infer()
    assert done.returncode == 0, done.stdout
    assert lab.record()["state"] == "done"
    assert lab.record()["delivery"]["files"] == 3002
    assert count.read_text(encoding="utf-8") == "x\n"
    assert lab.leftovers() == []


def test_a_launcher_killed_in_the_middle_of_writing_a_record_leaves_no_trace(lab: Lab) -> None:
    deliver(lab, "seq 1 3000 | (cd {world} && xargs touch)")
    lab.jobs()
    process = lab.start()
    try:
        records = ".1.staging-*/run/run.json"
        assert eventually(
            lambda: any('"collecting"' in path.read_text() for path in lab.place().parent.glob(records))
        )
        process.kill()
    finally:
        end(process)
    for path in lab.place().parent.glob(records):
        path.with_name(".run.json.abcd_123.tmp").write_text("{", encoding="utf-8")
    assert lab.infer().returncode == 0
    assert lab.leftovers() == []


def test_a_reader_that_leaves_does_not_cost_a_run(lab: Lab) -> None:
    deliver(lab, "sleep 0.3")
    lab.jobs({}, {"case": "clip"})
    process = lab.start()
    assert process.stdout is not None
    process.stdout.close()
    process.wait(60)
    assert lab.record()["state"] == "done"
    assert lab.record(case="real/clip", system="tester-m-none")["state"] == "done"


def test_an_ignored_hangup_stays_ignored(lab: Lab) -> None:
    started = lab.root / "started"
    deliver(lab, f"touch {started}; sleep 0.5")
    lab.jobs()
    process = subprocess.Popen(
        ["nohup", *lab.command()],
        env=lab.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert eventually(started.exists)
        process.send_signal(signal.SIGHUP)
        output, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 0, output
    assert lab.record()["state"] == "done"


def test_orphans_are_listed_and_only_dead_owners_ones_removed(lab: Lab) -> None:
    started = lab.root / "started"
    lab.runtime(lab.shell_agent(f"touch {started}; sleep 1000"))
    lab.jobs()
    process = lab.start()
    try:
        assert eventually(started.exists)
        listed = lab.infer("--list-orphans")
        assert listed.returncode == 0
        assert "synthetic/B_01/tester-m-none/1" in listed.stdout
        assert "its launcher is alive" in listed.stdout
        assert lab.infer("--clean-orphans").returncode == 0
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        end(process)
    assert lab.record()["state"] == "interrupted"


@pytest.mark.parametrize("program", [INFER, SCORE])
def test_the_launchers_import_nothing_heavy(program: Path) -> None:
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['x', '--help']; sys.path.insert(0, {str(program.parent)!r})\n"
        f"try:\n    runpy.run_path({str(program)!r}, run_name='__main__')\nexcept SystemExit: pass\n"
        "import harness.runtime.planning, harness.runtime.running, harness.runtime.scoring\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'numpy', 'torch', 'av', 'world', 'scorer', 'checker', 'scipy', 'docker'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
