"""``infer.py`` with real containers: the same life cycle as on the host."""

from __future__ import annotations

import json
import os
import shutil
import signal

import docker
import pytest
from harness_lab import DELIVER, VIDEO, Lab, end, eventually

from harness.runtime.backends.base import LABEL
from harness.runtime.backends.docker import DockerBackend

pytest_plugins = ("docker_engine",)
pytestmark = pytest.mark.docker


@pytest.fixture
def boxed(lab: Lab, base_image: str) -> Lab:
    """A laboratory whose agents run in containers of the base image."""
    lab.image = base_image
    return lab


def contain(lab: Lab, script: str, extra: str = "", agent: str = "timeout_sec = 60\ngrace_sec = 0.5") -> None:
    lab.runtime(
        f'[agent.image]\ndocker = "{lab.image}"\n' + lab.shell_agent(script, extra=extra),
        top='backend = "docker"',
        agent=agent,
    )
    lab.jobs()


def containers(lab: Lab) -> list[str]:
    """Names of our containers, running or not, for runs of this laboratory's only system."""
    engine = docker.from_env()
    try:
        found = engine.containers.list(all=True, ignore_removed=True, filters={"label": f"{LABEL}.run"})
        return [c.name for c in found if c.labels[f"{LABEL}.run"] == "synthetic/B_01/tester-m-none/1"]
    finally:
        engine.close()


def test_a_run_in_a_container(boxed: Lab) -> None:
    boxed.auth.mkdir()
    (boxed.auth / "x.json").write_text(json.dumps({"token": "tok-0123456789abcdef"}), encoding="utf-8")
    script = (
        DELIVER + "id -u; pwd; echo $HOME; head -n 1 {task}; cat /root/.x/login.json; echo; "
        "touch /task/no 2>&1; touch {video} 2>&1; echo seen > /root/.s/log; "
        "echo refreshed > /root/.x/login.json; "
        "ln -s /etc/passwd world/p; mkfifo world/pipe; mkdir -m 000 world/locked; cp {video} world/copy; "
        'test "$API_KEY" = key-0123456789 && echo "key $API_KEY"'
    )
    extra = (
        'credential = "x.json"\ncontainer = "/root/.x/login.json"\nsession_dir = ".s"\n'
        '[agent.tester.env]\nAPI_KEY = "${OUTER_4DCB}"'
    )
    contain(boxed, script, extra)
    done = boxed.infer(OUTER_4DCB="key-0123456789")
    assert done.returncode == 0, done.stdout + done.stderr
    log = (boxed.place() / "logs/agent.log").read_text(encoding="utf-8")
    for part in ("0\n/workspace\n/root\n# Rebuild", '{"token": "***"}', "Read-only", "key ***"):
        assert part in log
    assert "tok-0123456789abcdef" not in log
    record = boxed.record()
    assert (record["state"], record["backend"], record["agent_exit"]) == ("done", "docker", 0)
    assert record["engine"].startswith("sha256:")
    assert record["symlinks_dropped"] == ["world/p"]
    assert record["delivery"]["skipped"] == [{"path": "world/pipe", "why": "named pipe"}]
    assert (boxed.place() / "workspace/world/copy").read_bytes() == VIDEO
    assert (boxed.place() / "session/.s/log").read_text(encoding="utf-8") == "seen\n"
    assert json.loads((boxed.auth / "x.json").read_text(encoding="utf-8"))["token"]
    owners = {path.stat().st_uid for path in boxed.place().rglob("*")}
    assert owners == {os.getuid()}
    assert boxed.leftovers() == []
    assert containers(boxed) == []


def test_a_sleeper_leaves_no_container_and_a_record_that_says_so(boxed: Lab) -> None:
    contain(boxed, DELIVER + "(setsid sleep 1000 &); sleep 1000", agent="timeout_sec = 1\ngrace_sec = 0.3")
    done = boxed.infer()
    assert done.returncode == 1
    record = boxed.record()
    assert (record["state"], record["agent_exit"], record["timed_out"], record["gone"]) == (
        "failed",
        124,
        True,
        True,
    )
    assert record["delivered"]
    assert containers(boxed) == []
    assert boxed.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_the_launcher_leaves_no_container(boxed: Lab, number: signal.Signals) -> None:
    contain(boxed, DELIVER + "test -e /workspace/gone || sleep 1000")
    process = boxed.start()
    try:
        assert eventually(lambda: containers(boxed))
        assert eventually(lambda: list(boxed.place().parent.glob(".1.staging-*/workspace/solution/build.sh")))
        process.send_signal(number)
        process.wait(60)
    finally:
        end(process)
    assert eventually(lambda: not containers(boxed))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert boxed.record()["state"] == "interrupted"
        assert boxed.leftovers() == []
    contain(boxed, DELIVER)
    done = boxed.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert boxed.record()["state"] == "done"
    assert boxed.leftovers() == []
    assert containers(boxed) == []


def test_an_image_that_is_not_there_stops_all_before_anything_is_touched(boxed: Lab) -> None:
    boxed.image = "4dcb/no-such-image:x"
    contain(boxed, DELIVER)
    done = boxed.infer()
    assert done.returncode == 2
    assert "4dcb/no-such-image:x" in done.stderr
    assert not boxed.runs.exists()


def test_the_engines_own_disk_is_looked_at(boxed: Lab) -> None:
    (place,) = DockerBackend().storage()
    assert place.is_dir()
    contain(
        boxed, DELIVER, agent=f"timeout_sec = 60\nmin_free_gb = {shutil.disk_usage(place).free / 1e9 + 1e6}"
    )
    done = boxed.infer()
    assert done.returncode == 2
    assert "min_free_gb" in done.stderr
