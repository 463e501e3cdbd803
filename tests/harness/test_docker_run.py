"""Jobs in real containers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import docker
import pytest

from contract.errors import UserError
from harness.runtime.backends.base import LABEL, Job, Limits, Mount, Outcome
from harness.runtime.backends.docker import DockerBackend
from harness.runtime.backends.docker_owner import own_labels
from harness.runtime.backends.docker_spec import Engine
from harness.runtime.backends.docker_supervision import Supervision
from harness.runtime.backends.docker_warden import Warden
from harness.runtime.backends.docker_watch import Settings

if TYPE_CHECKING:
    from docker_engine import Proxy

pytest_plugins = ("docker_engine",)
pytestmark = pytest.mark.docker

LONG = 120.0
SCRIPT = ("sh", "-c")
MakeJob = Callable[..., Job]


class Run(threading.Thread):
    """A job run beside the test."""

    def __init__(self, backend: DockerBackend, job: Job, log: Path, timeout: float = LONG) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.outcome: Outcome | None = None
        self._work = lambda: backend.run(job, log, timeout, self.stop)
        self.start()

    def run(self) -> None:
        self.outcome = self._work()

    def result(self) -> Outcome:
        self.join(LONG)
        assert self.outcome is not None
        return self.outcome


def once(backend: DockerBackend, job: Job, log: Path, timeout: float = LONG) -> Outcome:
    return backend.run(job, log, timeout, threading.Event())


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def exists(engine: docker.DockerClient, job: Job) -> bool:
    return bool(engine.containers.list(all=True, ignore_removed=True, filters={"name": f"^{job.name}$"}))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "agent.log"


def test_variables_and_secrets_reach_the_job_and_nothing_else(
    backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job(
        *SCRIPT,
        'echo "$PLAIN $KEY"; cat /proc/1/cmdline; echo; sleep 100',
        env={"PLAIN": "p q"},
        secrets={"KEY": "sk-secret"},
        labels={f"{LABEL}.run": "the/run"},
    )
    run = Run(backend, job, log)
    until(lambda: log.exists() and b"sleep" in log.read_bytes())
    found = engine.api.inspect_container(job.name)
    labels = found["Config"]["Labels"]
    assert labels[f"{LABEL}.run"] == "the/run"
    assert labels[f"{LABEL}.owner"] == str(os.getpid())
    assert own_labels().items() <= labels.items()
    variables = found["Config"].pop("Env")
    assert "KEY=sk-secret" in variables
    assert "sk-secret" not in json.dumps(found)
    assert log.read_bytes().count(b"sk-secret") == 1
    host_side = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    for words in host_side:
        try:
            assert b"sk-secret" not in words.read_bytes()
        except OSError:
            continue
    run.stop.set()
    assert run.result().interrupted


def test_limits_gpus_and_init_are_what_the_engine_was_given(
    make_job: MakeJob, engine: docker.DockerClient
) -> None:
    job = make_job(
        "true",
        gpus=("0", "1"),
        limits=Limits(cpus=0.5, memory_mb=64, pids=33, shm_mb=8),
        mounts=(Mount(Path("/tmp"), PurePosixPath("/t")),),
    )
    supervision = Supervision(engine, Engine(), Settings((os.getuid(), os.getgid())))
    container, _ = supervision.create(job)
    host = engine.api.inspect_container(container)["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 64 << 20, 64 << 20)
    assert (host["PidsLimit"], host["ShmSize"], host["Init"]) == (33, 8 << 20, True)
    request = host["DeviceRequests"][0]
    assert (request["DeviceIDs"], request["Count"], request["Capabilities"]) == (["0", "1"], 0, [["gpu"]])
    # A creation whose answer was lost is found again, not made twice.
    assert supervision.create(job)[0] == container


def test_a_missing_gpu_is_an_error_of_the_engine(
    backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    if engine.info().get("Runtimes", {}).get("nvidia"):
        pytest.skip("this engine has GPUs")
    job = make_job("true", gpus=None)
    outcome = once(backend, job, log)
    assert outcome.exit_code is None
    assert "NVIDIA Container Toolkit" in outcome.error
    assert outcome.gone
    assert not exists(engine, job)


def test_a_container_that_somebody_removes_is_lost_not_failed(
    backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job(*SCRIPT, "echo on; sleep 100")
    run = Run(backend, job, log)
    until(lambda: log.exists() and log.read_text() == "on\n")
    engine.api.remove_container(job.name, force=True)
    outcome = run.result()
    assert "vanished" in outcome.error or "from outside" in outcome.error
    assert outcome.gone


@pytest.mark.parametrize("script", ["sleep 100", "trap 'exit 3' TERM; sleep 100 & wait"])
def test_a_container_that_somebody_stops_is_lost_not_failed(
    script: str, backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job(*SCRIPT, f"echo on; {script}")
    run = Run(backend, job, log)
    until(lambda: log.exists() and log.read_text() == "on\n")
    engine.api.kill(job.name, "SIGTERM")
    outcome = run.result()
    assert "from outside" in outcome.error
    assert outcome.exit_code != 0
    assert not outcome.interrupted


def test_a_last_line_without_line_break_is_kept(backend: DockerBackend, make_job: MakeJob, log: Path) -> None:
    for index in range(5):
        assert once(backend, make_job("printf", f"end {index}"), log).exit_code == 0
    assert log.read_text() == "".join(f"end {index}" for index in range(5))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to act for another user")
def test_roots_files_are_handed_back(make_job: MakeJob, log: Path, tmp_path: Path) -> None:
    backend = DockerBackend(owner=(4321, 8765))
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
        os.chown(folder, 4321, 8765)
    outside = tmp_path / "outside"
    outside.touch()
    script = (
        "id -u; mkdir -p /w/a/b /root/.cache; touch /w/a/b/c; chmod 000 /w/a/b/c; chmod 500 /w/a/b; "
        f"ln -s {outside} /w/link; ln -s / /w/all; mknod /w/pipe p; chown -R 77:77 /root/.cache"
    )
    mounts = (
        Mount(home, PurePosixPath("/root"), writable=True),
        Mount(work, PurePosixPath("/w"), writable=True),
    )
    outcome = once(backend, make_job(*SCRIPT, script, mounts=mounts, as_root=True), log)
    assert outcome == Outcome(0, outcome.seconds)
    assert log.read_text() == "0\n"
    below = [home, work, *home.rglob("*"), *work.rglob("*")]
    assert {path.lstat().st_uid for path in below} == {4321}
    assert (work / "a/b").stat().st_mode & 0o700 == 0o700
    assert outside.stat().st_uid == 0
    assert (work / "link").is_symlink()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to act for another user")
def test_a_job_of_the_callers_user_writes_as_the_caller(make_job: MakeJob, log: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 4321, 8765)
    mounts = (Mount(work, PurePosixPath("/w"), writable=True),)
    script = (
        "id -u; id -g; touch $HOME/x && touch /w/a; python3 -c 'import getpass; print(getpass.getuser())'"
    )
    outcome = once(DockerBackend(owner=(4321, 8765)), make_job(*SCRIPT, script, mounts=mounts), log)
    assert outcome.exit_code == 0
    assert log.read_text().split() == ["4321", "8765", "user"]
    assert ((work / "a").stat().st_uid, (work / "a").stat().st_gid) == (4321, 8765)


def test_the_name_is_taken_by_a_living_launcher(
    backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job("true")
    other = engine.containers.create(job.image, ["true"], name=job.name, labels=own_labels())
    outcome = once(backend, job, log)
    assert outcome.exit_code is None
    assert "exists already" in outcome.error
    assert engine.containers.get(job.name).id == other.id


def test_the_name_of_a_dead_launchers_container_is_free(
    backend: DockerBackend, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job("true")
    engine.containers.create(
        job.image, ["true"], name=job.name, labels={**own_labels(), f"{LABEL}.start": "1"}
    )
    assert once(backend, job, log).exit_code == 0
    assert not exists(engine, job)


def test_check(backend: DockerBackend, base_image: str, engine: docker.DockerClient) -> None:
    assert backend.check(base_image) == engine.images.get(base_image).id
    with pytest.raises(UserError) as caught:
        backend.check("4dcb/agent:never-built")
    assert "docker build -t 4dcb/agent:never-built -f harness/agent/Dockerfile ." in caught.value.next_step


def test_a_missing_image_is_an_error_of_the_engine(
    backend: DockerBackend, make_job: MakeJob, log: Path
) -> None:
    outcome = once(backend, make_job("true", image="4dcb/agent:never-built"), log)
    assert outcome.exit_code is None
    assert "never-built" in outcome.error
    assert outcome.gone


def test_a_full_disk_ends_the_log_and_not_the_job(
    backend: DockerBackend, make_job: MakeJob, tmp_path: Path
) -> None:
    outcome = once(backend, make_job(*SCRIPT, "echo a; sleep 0.5; exit 5"), Path("/dev/full"))
    assert outcome.exit_code == 5
    assert "log incomplete" in outcome.warnings[0]


def test_an_engine_that_does_not_answer_for_a_while_changes_nothing(
    proxy: Proxy, make_job: MakeJob, log: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    script = "for i in 1 2 3; do echo $i; until [ -e /s/$i ]; do sleep 0.05; done; done; exit 9"
    job = make_job(*SCRIPT, script, mounts=(Mount(shared, PurePosixPath("/s")),))
    run = Run(DockerBackend(host=proxy.address), job, log)
    until(lambda: log.exists() and log.read_text() == "1\n")
    proxy.cut()
    (shared / "1").touch()
    time.sleep(1.5)
    proxy.mend()
    until(lambda: log.read_text() == "1\n2\n")
    (shared / "2").touch()
    until(lambda: log.read_text() == "1\n2\n3\n")
    (shared / "3").touch()
    outcome = run.result()
    assert outcome.gone
    assert log.read_text() == "1\n2\n3\n"
    assert (outcome.exit_code, outcome.error) == (9, "")


def test_an_end_that_nobody_saw_is_not_the_agents(proxy: Proxy, make_job: MakeJob, log: Path) -> None:
    run = Run(DockerBackend(host=proxy.address), make_job(*SCRIPT, "echo on; sleep 1; echo off; exit 9"), log)
    until(lambda: log.exists() and log.read_text() == "on\n")
    proxy.cut()
    time.sleep(1.5)
    proxy.mend()
    outcome = run.result()
    assert log.read_text() == "on\noff\n"
    assert outcome.exit_code == 9
    assert "could not be reached when the container ended" in outcome.error


@pytest.fixture
def own_warden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A warden that does not go on trying after the test, as it should, to reach an engine that is lost."""
    warden = Warden()
    monkeypatch.setattr("harness.runtime.backends.docker._WARDEN", warden)
    yield
    assert warden._process is not None
    warden._process.kill()
    warden._process.wait()


@pytest.mark.usefixtures("own_warden")
def test_an_engine_that_is_lost_gives_no_result(
    proxy: Proxy, make_job: MakeJob, log: Path, engine: docker.DockerClient
) -> None:
    job = make_job(*SCRIPT, "echo on; sleep 100")
    run = Run(DockerBackend(host=proxy.address, patience=1.0), job, log)
    until(lambda: log.exists() and log.read_text() == "on\n")
    proxy.cut()
    outcome = run.result()
    assert outcome.exit_code is None
    assert "did not answer" in outcome.error
    assert not outcome.gone
    assert exists(engine, job)
