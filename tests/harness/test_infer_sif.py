"""``infer.py`` with real Apptainer containers: the same life cycle as on the host."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from harness_lab import DELIVER, VIDEO, Lab, end, eventually

from harness.runtime.backends import sif_engine
from harness.runtime.backends.sif_registry import Registry

pytest_plugins = ("apptainer_engine",)
pytestmark = pytest.mark.sif

SECRET = "key-0123456789-secret"


@pytest.fixture
def boxed(lab: Lab, base_sif: Path) -> Lab:
    """A laboratory whose agents run in containers of the base image."""
    lab.image = str(base_sif)
    return lab


def contain(lab: Lab, script: str, extra: str = "", agent: str = "timeout_sec = 60\ngrace_sec = 0.5") -> None:
    lab.runtime(
        f'[agent.image]\nsif = "{lab.image}"\n' + lab.shell_agent(script, extra=extra),
        top='backend = "sif"',
        agent=agent,
    )
    lab.jobs()


def containers(lab: Lab) -> list[str]:
    """Names of the containers of this laboratory's only system, and of what is written down about them."""
    program = sif_engine.find("").program
    found = [name for name in sif_engine.instances(program) if "tester-m-none" in name]
    return found + [record.name for record in Registry().all() if "tester-m-none" in record.name]


def test_a_run_in_a_container(boxed: Lab) -> None:
    boxed.auth.mkdir()
    (boxed.auth / "x.json").write_text(json.dumps({"token": "tok-0123456789abcdef"}), encoding="utf-8")
    script = (
        DELIVER + "pwd; echo $HOME; head -n 1 {task}; cat /root/.x/login.json; echo; "
        "touch /task/no 2>&1; touch {video} 2>&1; echo seen > /root/.s/log; "
        "echo t > /tmp/t && echo v > /var/tmp/v; ln -s /etc/passwd world/p; cp {video} world/copy; "
        'test "$API_KEY" = "' + SECRET + '" && echo "key $API_KEY"'
    )
    extra = (
        'credential = "x.json"\ncontainer = "/root/.x/login.json"\nsession_dir = ".s"\n'
        '[agent.tester.env]\nAPI_KEY = "${OUTER_4DCB}"'
    )
    contain(boxed, script.replace('"' + SECRET + '"', '"key-0123456789""-secret"'), extra)
    shown = boxed.infer("--dry-run", OUTER_4DCB=SECRET)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "apptainer exec" in shown.stdout
    assert "--containall --cleanenv --no-eval --pid --home" in shown.stdout
    assert "APPTAINERENV_API_KEY=***" in shown.stdout.replace("'", "")
    assert not boxed.runs.exists()
    done = boxed.infer(OUTER_4DCB=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    log = (boxed.place() / "logs/agent.log").read_text(encoding="utf-8")
    for part in ("/workspace\n/root\n# Rebuild", '{"token": "***"}', "Read-only", "key ***"):
        assert part in log
    record = boxed.record()
    assert (record["state"], record["backend"], record["agent_exit"]) == ("done", "sif", 0)
    assert record["engine"].startswith("sha256:")
    assert (boxed.place() / "workspace/world/copy").read_bytes() == VIDEO
    assert (boxed.place() / "session/.s/log").read_text(encoding="utf-8") == "seen\n"
    for path in boxed.place().rglob("*"):
        assert path.stat().st_uid == os.getuid()
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
            assert b"tok-0123456789abcdef" not in path.read_bytes()
    assert boxed.leftovers() == []
    assert containers(boxed) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_the_launcher_leaves_no_container(boxed: Lab, number: signal.Signals) -> None:
    contain(boxed, DELIVER + "(setsid sleep 1000 &); sleep 1000")
    process = boxed.start()
    try:
        assert eventually(lambda: list(boxed.place().parent.glob(".1.staging-*/workspace/solution/build.sh")))
        listed = boxed.infer("--list-orphans")
        assert "its launcher is alive" in listed.stdout
        process.send_signal(number)
        process.wait(60)
    finally:
        end(process)
    assert eventually(lambda: not containers(boxed))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert boxed.record()["state"] == "interrupted"
        assert boxed.leftovers() == []


def test_what_a_launcher_and_its_warden_left_is_listed_and_cleaned(boxed: Lab) -> None:
    contain(boxed, DELIVER + "sleep 1000")
    process = boxed.start()
    try:
        assert eventually(lambda: list(boxed.place().parent.glob(".1.staging-*/workspace/solution/build.sh")))
        os.killpg(process.pid, signal.SIGSTOP)
        for pid in boxed.processes():
            if b"sif_warden.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
    finally:
        end(process)
    assert containers(boxed)
    listed = boxed.infer("--list-orphans")
    assert "its launcher is gone" in listed.stdout
    cleaned = boxed.infer("--clean-orphans")
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert "left by a launcher that is gone" in cleaned.stdout
    assert containers(boxed) == []


def test_what_cannot_be_used_stops_all_before_anything_is_touched(boxed: Lab) -> None:
    image, boxed.image = boxed.image, str(boxed.root / "lost.sif")
    contain(boxed, DELIVER)
    done = boxed.infer()
    assert done.returncode == 2
    assert "lost.sif" in done.stderr
    boxed.image = image
    contain(boxed, DELIVER, extra="[agent.limits]\nshm_mb = 8")
    done = boxed.infer()
    assert done.returncode == 2
    assert "shm_mb" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not boxed.runs.exists()
