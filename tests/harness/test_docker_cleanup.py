"""What launchers leave behind, and who removes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from harness.runtime.backends.base import LABEL, Job, Orphan
from harness.runtime.backends.docker import DockerBackend
from harness.runtime.backends.docker_owner import own_labels
from harness.runtime.backends.docker_warden import __file__ as WARDEN

pytest_plugins = ("docker_engine",)
pytestmark = pytest.mark.docker

LONG = 120.0
MakeJob = Callable[..., Job]
DEAD = {f"{LABEL}.start": "1"}

LAUNCHER = """
import json, sys, threading
from pathlib import Path, PurePosixPath
from harness.runtime.backends.base import Job, Mount
from harness.runtime.backends.docker import DockerBackend

given = json.loads(sys.argv[1])
mounts = (Mount(Path(given["work"]), PurePosixPath("/w"), writable=True),)
command = ("sh", "-c", "touch /w/made; echo on; sleep 1000")
job = Job(given["name"], command, image=given["image"], mounts=mounts, as_root=True)
DockerBackend(owner=tuple(given["owner"])).run(job, Path(given["log"]), 1000.0, threading.Event())
"""


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def names(engine: docker.DockerClient) -> set[str]:
    return {container.name for container in engine.containers.list(all=True, ignore_removed=True)}


def children(pid: int, program: str) -> list[int]:
    """Children of a process whose command line names ``program``."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_text(errors="replace")
            if program in words:
                found.append(int(child))
    return found


def start(engine: docker.DockerClient, job: Job, labels: dict[str, str]) -> None:
    engine.containers.run(job.image, list(job.command), name=job.name, labels=labels, detach=True)


def test_a_dead_launchers_container_goes_and_a_living_ones_stays(
    backend: DockerBackend, make_job: MakeJob, engine: docker.DockerClient
) -> None:
    sleep = ("sleep", "1000")
    dead, living, other = make_job(*sleep), make_job(*sleep), make_job(*sleep)
    start(engine, dead, own_labels() | DEAD | {f"{LABEL}.run": "a/run"})
    start(engine, living, own_labels())
    start(engine, other, {"someone": "else"})
    found = {orphan.name: orphan for orphan in backend.orphans()}
    assert found[dead.name] == Orphan(dead.name, "a/run", True)
    assert found[living.name] == Orphan(living.name, "", False)
    assert other.name not in found
    backend.remove(found[dead.name])
    backend.remove(found[dead.name])
    assert names(engine) & {dead.name, living.name, other.name} == {living.name, other.name}


@pytest.mark.parametrize("labels", [{}, own_labels()])
def test_what_may_be_in_use_is_never_removed(
    labels: dict[str, str], backend: DockerBackend, make_job: MakeJob, engine: docker.DockerClient
) -> None:
    job = make_job("sleep", "1000")
    start(engine, job, labels)
    with pytest.raises(RuntimeError, match="left alone"):
        backend.remove(Orphan(job.name, "", True))
    assert engine.containers.get(job.name).status == "running"


def test_what_ended_long_ago_is_removed_as_well(
    backend: DockerBackend, make_job: MakeJob, engine: docker.DockerClient
) -> None:
    job = make_job("true")
    engine.containers.create(job.image, ["true"], name=job.name, labels=own_labels() | DEAD)
    backend.remove(Orphan(job.name, "", True))
    assert job.name not in names(engine)


@pytest.fixture
def launcher(make_job: MakeJob, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Job, Path, Path]]:
    """A process of its own that runs a job through the backend, the job's name, its log and its folder."""
    job, log, work = make_job("sleep"), tmp_path / "log", tmp_path / "work"
    work.mkdir()
    owner = (4321, 8765) if os.getuid() == 0 else (os.getuid(), os.getgid())
    os.chown(work, *owner)
    given = {"name": job.name, "image": job.image, "log": str(log), "work": str(work), "owner": owner}
    root = str(Path(WARDEN).parents[3])
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, json.dumps(given)],
        env=os.environ | {"PYTHONPATH": root},
        start_new_session=True,
    )
    until(lambda: log.exists() and log.read_text() == "on\n")
    yield process, job, log, work
    process.kill()
    process.wait()


def test_a_killed_launcher_leaves_no_container_and_no_files_of_root(
    launcher: tuple[subprocess.Popen[bytes], Job, Path, Path], engine: docker.DockerClient
) -> None:
    process, job, _, work = launcher
    wardens = children(process.pid, WARDEN)
    assert len(wardens) == 1
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: job.name not in names(engine))
    until(lambda: (work / "made").stat().st_uid == work.stat().st_uid)
    until(lambda: not Path(f"/proc/{wardens[0]}").exists())
    assert not any(name.startswith(job.name) for name in names(engine))


def test_without_its_warden_the_next_launcher_removes_it(
    launcher: tuple[subprocess.Popen[bytes], Job, Path, Path],
    engine: docker.DockerClient,
    backend: DockerBackend,
) -> None:
    process, job, _, work = launcher
    for pid in (*children(process.pid, WARDEN), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert engine.containers.get(job.name).status == "running"
    orphan = next(orphan for orphan in backend.orphans() if orphan.name == job.name)
    assert orphan.dead_owner
    owner = (work.stat().st_uid, work.stat().st_gid)
    DockerBackend(owner=owner).remove(orphan)
    assert job.name not in names(engine)
    assert (work / "made").stat().st_uid == owner[0]


def test_a_killed_warden_is_replaced(backend: DockerBackend, make_job: MakeJob, tmp_path: Path) -> None:
    for _ in range(2):
        outcome = backend.run(make_job("true"), tmp_path / "log", LONG, threading.Event())
        assert (outcome.exit_code, outcome.error) == (0, "")
        (warden,) = children(os.getpid(), WARDEN)
        os.kill(warden, signal.SIGKILL)
    assert backend.run(make_job("true"), tmp_path / "log", LONG, threading.Event()).exit_code == 0
