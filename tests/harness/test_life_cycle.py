"""``infer.py`` over several launches: attempts, logins, budgets, room, several runs at a time."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from harness_lab import DELIVER, Lab, end, eventually, mentioning, snapshot
from test_infer import refusal
from test_logins import claude

from harness.runtime.runrecord import RunRecord

USAGE = (
    'echo \'{{"usage": {{"input_tokens": 90, "output_tokens": 10}}, "cost_usd": 0.5}}\' '
    '>> "$HOME/.s/$$.jsonl"; '
)
COUNTED = 'session_dir = ".s"\ntranscript = "usage"\n'
QUICK = "timeout_sec = 60\ngrace_sec = 0.3\nretry_wait_sec = 0.05\n"


def test_several_runs_at_a_time_each_with_a_gpu_of_its_own(lab: Lab) -> None:
    script = (
        DELIVER + f'met={lab.root}/met; echo "gpu $CUDA_VISIBLE_DEVICES"; echo >> $met; '
        "for i in $(seq 600); do test $(cat $met | wc -l) -ge 2 && exit 0; sleep 0.1; done; exit 1"
    )
    lab.runtime(lab.shell_agent(script), agent=QUICK + "parallel = 3")
    lab.jobs({"trial": 1}, {"trial": 2}, {"trial": 3})
    done = lab.infer(CUDA_VISIBLE_DEVICES="5,7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 at a time" in done.stdout
    gpus = []
    for trial in (1, 2, 3):
        log = (lab.place(trial=trial) / "logs/agent.log").read_text(encoding="utf-8")
        (gpu,) = lab.record(trial=trial)["gpus"]
        assert f"gpu {gpu}\n" in log
        gpus.append(gpu)
    assert set(gpus) == {"5", "7"}
    assert lab.leftovers() == []


def cut_off(lab: Lab, number: signal.Signals) -> None:
    """Start the launcher and end it by a signal once its agent has written what it used."""
    here = lab.root / "here"
    before = here.stat().st_size if here.exists() else 0
    process = lab.start()
    try:
        assert eventually(lambda: here.exists() and here.stat().st_size > before)
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        end(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_was_cut_off_is_taken_up_with_its_transcript_and_its_cost(
    lab: Lab, number: signal.Signals
) -> None:
    gate = lab.root / "gate"
    script = DELIVER + USAGE + f"echo >> {lab.root}/here; test -e {gate} || sleep 1000"
    lab.runtime(lab.shell_agent(script, extra=COUNTED), agent=QUICK)
    lab.jobs()
    cut_off(lab, number)
    if number == signal.SIGINT:
        record = lab.record()
        assert (record["state"], record["failure"], record["partial"]) == ("interrupted", "interrupted", True)
        assert record["spent"] == {"tokens": 100, "cost_usd": 0.5}
    cut_off(lab, number)
    gate.touch()
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    record = lab.record()
    assert (record["state"], record["attempt"]) == ("done", 3)
    failure = "interrupted" if number == signal.SIGINT else "launcher_killed"
    assert [entry.get("failure") for entry in record["attempts"]] == [failure, failure, None]
    assert record["spent"] == {"tokens": 300, "cost_usd": 1.5}
    assert (record["usage"]["input_tokens"], record["cost_usd"]) == (90, 0.5)
    assert "300 tokens" in done.stdout
    assert "$1.50" in done.stdout
    kept = {path.relative_to(lab.place()).parts[:3] for path in lab.place().glob("attempts/*/*/*")}
    assert kept == {("attempts", n, name) for n in ("1", "2") for name in ("logs", "session")}
    assert len(list(lab.place().rglob("*.jsonl"))) == 3
    assert lab.leftovers() == []


def test_an_attempt_that_did_not_finish_keeps_its_delivery_until_a_run_has(lab: Lab) -> None:
    broken = lab.root / "broken"
    script = f"{DELIVER} test -e {broken} && echo 'HTTP 529' && exit 1; exit 0"
    lab.runtime(lab.shell_agent(script), agent=QUICK + "retries = 1")
    lab.jobs()
    broken.touch()
    assert lab.infer().returncode == 1
    record = lab.record()
    assert (record["state"], record["failure"], len(record["attempts"])) == (
        "environment_error",
        "overloaded",
        2,
    )
    assert (lab.place() / "workspace/world/a").exists()
    assert (lab.place() / "attempts/1/workspace/world/a").exists()
    broken.unlink()
    assert lab.infer().returncode == 0
    assert lab.record()["attempt"] == 3
    assert sorted(path.name for path in (lab.place() / "attempts/2").iterdir()) == ["logs", "session"]


def test_a_run_of_a_launcher_on_another_machine_is_left_alone_unless_it_is_taken_over(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(DELIVER))
    lab.jobs()
    staging = lab.place().with_name(".1.staging-00000001")
    (staging / "run/logs").mkdir(parents=True)
    holder = {"host": "elsewhere", "pid": 1, "boot_id": "x", "start_ticks": 1}
    RunRecord(staging / "run", {"run_id": "00000001", "owner": holder}).enter("running")
    refused = lab.infer()
    assert refused.returncode == 1
    assert "a launcher on elsewhere is at it" in refused.stdout
    assert lab.infer("--take-over").returncode == 0
    assert lab.record()["attempts"][0]["failure"] == "launcher_killed"
    assert lab.leftovers() == []


def with_login(lab: Lab, script: str, document: Any, extra: str = "", mode: int = 0o600) -> Path:
    lab.auth.mkdir(exist_ok=True)
    login = lab.auth / "login.json"
    login.write_text(json.dumps(document), encoding="utf-8")
    login.chmod(mode)
    lab.runtime(
        lab.shell_agent(
            script, extra=f'credential = "login.json"\ncontainer = "/root/.x/login.json"\n{extra}'
        ),
        agent=QUICK,
    )
    lab.jobs()
    return login


@pytest.mark.parametrize("write_back", [True, False])
def test_a_login_that_the_agent_refreshes_comes_back_and_is_masked(lab: Lab, write_back: bool) -> None:
    old, new = claude(time.time() + 60), claude(time.time() + 7200, refresh="sk-ant-ort01-a-new-one")
    fresh = lab.root / "fresh.json"
    fresh.write_text(json.dumps(new), encoding="utf-8")
    # As programs do it: a new file beside the old one, renamed over it.
    script = (
        DELIVER + f'cd "$HOME/.x"; stat -c %a login.json; cp {fresh} new; mv new login.json; cat login.json'
    )
    login = with_login(lab, script, old, "write_back = false" if not write_back else "")
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(login.read_text(encoding="utf-8")) == (new if write_back else old)
    assert login.stat().st_mode & 0o777 == 0o600
    assert os.listdir(lab.auth) == ["login.json"]
    log = (lab.place() / "logs/agent.log").read_text(encoding="utf-8")
    assert log.startswith("600\n")
    assert "a-new-one" not in log
    assert ("taken over" in lab.record().get("login", "")) == write_back
    assert lab.leftovers() == []


def test_a_login_refreshed_by_a_run_that_was_cut_off_comes_back_too(lab: Lab) -> None:
    new = claude(time.time() + 7200, refresh="sk-ant-ort01-a-new-one")
    fresh, gate = lab.root / "fresh.json", lab.root / "gate"
    fresh.write_text(json.dumps(new), encoding="utf-8")
    script = DELIVER + f'test -e {gate} || (cp {fresh} "$HOME/.x/login.json"; touch {gate}.on; sleep 1000)'
    login = with_login(lab, script, claude(time.time() + 60), COUNTED)
    process = lab.start()
    try:
        assert eventually(Path(f"{gate}.on").exists)
        process.kill()
        process.communicate()
    finally:
        end(process)
    gate.touch()
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(login.read_text(encoding="utf-8")) == new


@pytest.mark.parametrize(
    ("document", "mode", "part"),
    [
        (claude(1_700_000_000, refresh=""), 0o600, "expired at 2023-11-14"),
        (claude(4_000_000_000), 0o666, "can be written by others"),
    ],
)
def test_a_login_that_cannot_serve_stops_all_before_anything_is_touched(
    lab: Lab, capsys: pytest.CaptureFixture[str], document: Any, mode: int, part: str
) -> None:
    with_login(lab, DELIVER, document, mode=mode)
    before = snapshot(lab.root)
    assert part in refusal(lab, capsys)
    assert snapshot(lab.root) == before


def test_a_login_that_others_can_read_is_told_and_used(lab: Lab) -> None:
    with_login(lab, DELIVER, claude(4_000_000_000), mode=0o644)
    done = lab.infer()
    assert done.returncode == 0
    assert "chmod 600" in done.stdout


def test_a_refused_login_keeps_other_jobs_from_starting(lab: Lab) -> None:
    script = "echo 'API Error: 401 authentication_error'; exit 1"
    with_login(lab, script, claude(4_000_000_000))
    lab.jobs({"trial": 1}, {"trial": 2})
    done = lab.infer()
    assert done.returncode == 1
    assert lab.record()["failure"] == "auth_error"
    assert not lab.place(trial=2).exists()
    assert "refused the login" in done.stdout
    assert "not started" in done.stdout
    (one, two) = json.loads(lab.infer("--json").stdout)
    assert (one["state"], one["failure"], two["state"]) == ("environment_error", "auth_error", "not started")


BUDGETS = {
    "unpriced": ("max_usd = 5.0", "", "max_usd cannot be kept"),
    "unpriced run": ("max_usd_per_run = 5.0", "", "max_usd_per_run cannot be kept"),
    "uncounted": ("max_tokens = 5", "", "nobody counts the tokens"),
    "unknown model": ("max_usd = 5.0", 'transcript = "claude"', "the price of 'm'"),
    "nonsense": ("max_usd = -1.0", "", "max_usd"),
    "misspelt": ("max_dollars = 1.0", "", "max_usd"),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_that_could_not_be_kept_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    budget, extra, part = BUDGETS[name]
    lab.runtime(lab.shell_agent(DELIVER, extra=extra) + f"[budget]\n{budget}\n")
    lab.jobs()
    before = snapshot(lab.root)
    assert part in refusal(lab, capsys)
    assert snapshot(lab.root) == before


@pytest.mark.parametrize(("kind", "cost"), [("free", 0.0), ("usage", 0.5)])
def test_a_budget_that_can_be_kept_is_kept(lab: Lab, kind: str, cost: float) -> None:
    extra = f'session_dir = ".s"\ntranscript = "{kind}"\n'
    lab.runtime(lab.shell_agent(USAGE + DELIVER, extra=extra) + "[budget]\nmax_usd = 0.4\n")
    lab.jobs({"trial": 1}, {"trial": 2})
    done = lab.infer()
    assert done.returncode == (0 if kind == "free" else 1)
    assert lab.record()["cost_usd"] == cost
    assert lab.place(trial=2).exists() == (kind == "free")
    assert ("the budget is used up" in done.stdout) == (kind == "usage")


def test_a_full_disk_is_refused_before_anything_is_touched(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.runtime(lab.shell_agent(DELIVER), agent=QUICK + "min_free_gb = 1e9")
    lab.jobs()
    before = snapshot(lab.root)
    assert "less than [agent] min_free_gb" in refusal(lab, capsys)
    assert snapshot(lab.root) == before


def test_a_partial_delivery_after_a_timeout_is_kept_and_marked(lab: Lab) -> None:
    lab.runtime(
        lab.shell_agent(USAGE + DELIVER + "sleep 1000", extra=COUNTED),
        agent="timeout_sec = 1\ngrace_sec = 0.3",
    )
    lab.jobs()
    assert lab.infer().returncode == 1
    record = lab.record()
    assert (record["state"], record["failure"], record["partial"]) == ("failed", "timeout", True)
    assert record["usage"]["output_tokens"] == 10
    assert (lab.place() / "workspace/world/a").exists()


def test_a_planted_secret_is_nowhere(lab: Lab) -> None:
    key = "sk-planted-0123456789abcdef"
    started, gate = lab.root / "started", lab.root / "gate"
    script = (
        DELIVER + 'echo "key $API_KEY"; mkdir -p "$HOME/.s/$API_KEY"; '
        'echo "{{\\"k\\": \\"$API_KEY\\"}}" > "$HOME/.s/$API_KEY/a.jsonl"; '
        'printf "user:%s" "$API_KEY" | base64 -w 0 > solution/auth.txt; cp -r "$HOME/.s/$API_KEY" world/; '
        f"touch {started}; while ! test -e {gate}; do sleep 0.05; done; exit 7"
    )
    extra = 'session_dir = ".s"\n[agent.tester.env]\nAPI_KEY = "${OUTER_4DCB}"'
    lab.runtime(lab.shell_agent(script, extra=extra), agent=QUICK)
    lab.jobs()
    before = os.environ.get("OUTER_4DCB")
    os.environ["OUTER_4DCB"] = key
    try:
        process = lab.start()
    finally:
        if before is None:
            del os.environ["OUTER_4DCB"]
    try:
        assert eventually(started.exists)
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in mentioning(str(lab.root))]
        assert len(lines) >= 2
        assert not any(key.encode() in line for line in lines)
        (record,) = lab.place().parent.glob(".1.staging-*/run/run.json")
        assert key not in record.read_text(encoding="utf-8")
        gate.touch()
        output, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert key not in output
    assert lab.record()["state"] == "failed"
    for path in lab.runs.rglob("*"):
        assert key not in str(path)
        if path.is_file():
            content = path.read_bytes()
            assert key.encode() not in content
            assert b"cGxhbnRlZC0wMTIzNDU2Nzg5" not in content  # of its middle, in base64


def test_a_hostile_agent_costs_a_note(lab: Lab) -> None:
    script = (
        DELIVER
        + "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('world/s')\"; mkfifo solution/p; "
        "ln -s /etc world/l; truncate -s 10G world/sparse; touch 'world/a\nb'; "
        'cd "$HOME/.s"; truncate -s 10G sparse.jsonl; mkfifo f.jsonl; ln -s /etc/passwd l.jsonl; '
        "seq 1 3000 | xargs touch; seq -f %g.jsonl 5000 8000 | (cd ../workspace/world && xargs touch); "
        "mkdir shut; touch shut/x; chmod 0 shut; true"
    ).replace("../workspace/world", "$OLDPWD/world")
    lab.runtime(
        lab.shell_agent(script, extra=COUNTED + '[agent.tester.env]\nA_KEY = "a-secret-0123456789"'),
        agent=QUICK + "delivery = {max_files = 1000, max_file_mb = 100}",
    )
    lab.jobs()
    started = time.process_time(), os.times().children_user
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.times().children_user - started[1] < 30.0
    record = lab.record()
    assert record["state"] == "done"
    assert "more than 1000 files" in record["delivery"]["cut"] or "entries" in record["delivery"]["cut"]
    assert {note["path"] for note in record["delivery"]["skipped"]} >= {"solution/p"}
    assert any("session were too many" in text for text in record["warnings"])
    assert len(list(lab.place().rglob("*"))) < 2300
    for path in lab.place().rglob("*"):
        assert path.is_dir() or (path.is_file() and not path.is_symlink())
        assert path.lstat().st_size < 1 << 30
    assert lab.leftovers() == []


def test_a_terminal_shows_what_goes_on(lab: Lab) -> None:
    gate = lab.root / "gate"
    script = DELIVER + USAGE + f"echo 'hello [bold]there'; while ! test -e {gate}; do sleep 0.05; done"
    lab.runtime(lab.shell_agent(script, extra=COUNTED), agent=QUICK)
    lab.jobs()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = subprocess.Popen(
        lab.command(),
        env=lab.environment(TERM="xterm"),
        stdout=slave,
        stderr=slave,
        stdin=slave,
        cwd=lab.root,
    )
    os.close(slave)
    seen = b""
    try:
        parts = (b"elapsed", b"hello [bold]there", b"$0.50", b"1 running")
        while not all(part in seen for part in parts):
            assert select.select([master], [], [], 60)[0], seen[-2000:]
            seen += os.read(master, 65536)
        gate.touch()
        while select.select([master], [], [], 60)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the terminal's other side was closed
                break
            seen += piece
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
    assert b"\x1b[?25h" in seen[seen.rindex(b"\x1b[?25l") :], "the cursor stays hidden"
    assert b"1 of 1 runs done" in seen


def test_the_launcher_adds_less_than_a_second_of_processor_to_a_run(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(DELIVER), agent=QUICK + "parallel = 2")
    lab.jobs(trials=12)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert lab.infer().returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used / 12 < 1.0, "launcher, wardens and agents together"
