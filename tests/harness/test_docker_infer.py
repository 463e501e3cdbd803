"""``infer.py`` and ``score.py`` with ``backend = "docker"``: real programs, real containers, real
signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import docker
import pytest
from harness_lab import DELIVER, Lab, end, eventually, snapshot

from harness.runtime.backends.base import LABEL

pytest_plugins = ("docker_engine",)
pytestmark = pytest.mark.docker

DOCKER = 'backend = "docker"'


@pytest.fixture
def docker_lab(lab: Lab, base_image: str, engine: docker.DockerClient) -> Iterator[Lab]:
    """A laboratory whose agents run in containers of the bare test image."""
    before = containers(engine)
    yield lab
    assert eventually(lambda: containers(engine) <= before), "a container outlived its launcher"


def containers(engine: docker.DockerClient) -> set[str]:
    return {
        one.name
        for one in engine.containers.list(all=True, ignore_removed=True, filters={"label": f"{LABEL}.owner"})
    }


def agent(lab: Lab, image: str, script: str, extra: str = "", timeout: int = 100) -> None:
    keys = f'timeout_sec = {timeout}\ngrace_sec = 0.5\n[agent.image]\ndocker = "{image}"'
    lab.runtime(lab.shell_agent(script, extra=extra), top=DOCKER, agent=keys)
    lab.jobs()


def log(lab: Lab) -> str:
    return (lab.place() / "logs/agent.log").read_text(encoding="utf-8")


def test_a_run_that_succeeds(docker_lab: Lab, base_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "sk-lab-0123456789")
    script = 'pwd; echo "$HOME"; id -u; cat {video} | wc -c; test -w {video} || echo ro; '
    script += 'test -n "$KEY" && echo key; '
    extra = 'session_dir = ".notes"\n[agent.tester.env]\nKEY = "${LAB_KEY}"'
    agent(docker_lab, base_image, script + 'echo n > "$HOME/.notes/n"; ' + DELIVER, extra)
    shown = docker_lab.infer("--dry-run").stdout
    for part in (
        "docker run --rm --init --name",
        "--user 0:0",
        "KEY=***",
        f"--entrypoint sh {base_image}",
    ):
        assert part in shown
    assert not docker_lab.runs.exists()
    done = docker_lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert log(docker_lab).split()[:3] == ["/workspace", "/root", "0"]
    assert log(docker_lab).split()[4:] == ["ro", "key"]
    record = docker_lab.record()
    assert (record["state"], record["backend"], record["engine"][:7]) == ("done", "docker", "sha256:")
    assert (docker_lab.place() / "session/.notes/n").read_text() == "n\n"
    assert {path.stat().st_uid for path in docker_lab.runs.rglob("*")} == {os.getuid()}
    assert docker_lab.leftovers() == []
    written = [path for path in docker_lab.runs.rglob("*") if path.is_file()]
    assert not [path for path in written if b"sk-lab-0123456789" in path.read_bytes()]
    assert "KEY=***" in record["agent_command"]


def test_an_agent_that_sleeps_past_its_time(docker_lab: Lab, base_image: str) -> None:
    agent(docker_lab, base_image, DELIVER + "echo asleep; sleep 1000", timeout=2)
    assert docker_lab.infer().returncode == 1
    record = docker_lab.record()
    assert (record["state"], record["timed_out"], record["agent_exit"]) == ("failed", True, 124)
    assert (record["gone"], record["interrupted"]) == (True, False)
    assert record["killed_after_sec"] >= 2
    # The agent had delivered before it slept: that counts as its delivery, its time-out as its failure.
    assert record["delivered"]
    assert log(docker_lab).startswith("asleep\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launcher_that_is_told_to_stop(docker_lab: Lab, base_image: str, number: signal.Signals) -> None:
    agent(docker_lab, base_image, "echo asleep; sleep 1000")
    launcher = docker_lab.start()
    try:
        assert eventually(lambda: asleep(docker_lab))
        launcher.send_signal(number)
        assert launcher.wait(60) == 130
    finally:
        end(launcher)
    record = docker_lab.record()
    assert (record["state"], record["interrupted"], record["gone"]) == ("interrupted", True, True)
    assert log(docker_lab).startswith("asleep\n")


def test_a_launcher_that_is_killed(docker_lab: Lab, base_image: str, engine: docker.DockerClient) -> None:
    before = containers(engine)
    agent(docker_lab, base_image, "echo asleep; test -e /task/again || sleep 1000")
    launcher = docker_lab.start()
    try:
        assert eventually(lambda: asleep(docker_lab))
        os.killpg(launcher.pid, signal.SIGKILL)
    finally:
        end(launcher)
    assert eventually(lambda: containers(engine) <= before)
    agent(docker_lab, base_image, DELIVER)
    assert docker_lab.infer().returncode == 0
    assert docker_lab.record()["state"] == "done"
    assert docker_lab.leftovers() == []


def asleep(lab: Lab) -> bool:
    return any("asleep" in path.read_text() for path in lab.runs.rglob("agent.log"))


def test_an_agent_out_of_memory_is_the_environments_fault(docker_lab: Lab, base_image: str) -> None:
    script = "exec python3 -c 'x = bytearray(10**9)'"
    agent(docker_lab, base_image, script, extra="[agent.limits]\nmemory_mb = 64")
    assert docker_lab.infer().returncode == 1
    record = docker_lab.record()
    assert (record["state"], record["oom_killed"]) == ("environment_error", True)


def test_a_missing_image_changes_nothing(docker_lab: Lab) -> None:
    agent(docker_lab, "4dcb/agent:never-built", "true")
    before = snapshot(docker_lab.root)
    done = docker_lab.infer()
    assert done.returncode == 2
    assert "docker build -t 4dcb/agent:never-built -f harness/agent/Dockerfile ." in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(docker_lab.root) == before


def test_a_dead_engine_changes_nothing(docker_lab: Lab, base_image: str) -> None:
    agent(docker_lab, base_image, "true")
    before = snapshot(docker_lab.root)
    done = docker_lab.infer(DOCKER_HOST=f"unix://{docker_lab.root}/none.sock")
    assert done.returncode == 2
    assert f"unix://{docker_lab.root}/none.sock" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(docker_lab.root) == before
