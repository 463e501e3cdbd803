"""The doctor: what each check says of a machine in order, and of each fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_server import ChatServer
from harness_lab import VIDEO, Lab, end, eventually, snapshot

from contract.checkpoints import CHECKPOINTS
from contract.errors import UserError
from harness.runtime import doctor, doctor_engine, doctor_machine, doctor_trial, prices
from harness.runtime.backends.base import Job, Outcome
from harness.runtime.config import load_runtime
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, examine
from harness.runtime.doctor_trial import Trial

DOCTOR = Path(doctor.__file__)


class Clinic:
    """A laboratory and the doctor in this process."""

    def __init__(self, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
        self.lab = lab
        self._capsys = capsys
        self.status = 0

    def look(self, *flags: str, jobs: bool = True) -> dict[str, Finding]:
        words = ["--runtime", str(self.lab.runtime_path), "--json", *flags]
        self.status = doctor.main([*words, "--jobs", str(self.lab.jobs_path)] if jobs else words)
        said = json.loads(self._capsys.readouterr().out)
        found = [Finding(**finding) for finding in said["findings"]]
        assert said["ok"] == (self.status == 0) == all(finding.status != FAIL for finding in found)
        assert all(finding.fix for finding in found if finding.status == FAIL), found
        return {finding.name: finding for finding in found}


@pytest.fixture
def clinic(lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Clinic:
    """Two cases with their references, no model store, one agent of our own."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("harness.runtime.doctor_trial.devices", lambda text: ())
    monkeypatch.setenv(prices.OVERLAY, "")
    for path in (
        "synthetic/B_01/world",
        "real/clip/annotation",
        "synthetic/B_01/estimates",
        "real/clip/estimates",
    ):
        (lab.data / path).mkdir(parents=True)
    (lab.data / "real/clip/annotation/dynamic_mask.npz").write_bytes(b"mask")
    lab.runtime(lab.shell_agent("true", extra='transcript = "free"'))
    lab.jobs({}, {"case": "clip"})
    return Clinic(lab, capsys)


def program(folder: Path, name: str, script: str) -> None:
    """A stand-in on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the head of PATH."""
    folder = lab.root / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def patient(lab: Lab) -> Patient:
    runtime = load_runtime(lab.runtime_path)
    return Patient(runtime, SimpleNamespace(name=runtime.backend))  # type: ignore[arg-type]


# --- the program


def test_a_machine_in_order_and_nothing_is_left(clinic: Clinic) -> None:
    before = snapshot(clinic.lab.root)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    found = clinic.look()
    assert clinic.status == 0
    assert [name for name, finding in found.items() if finding.status != OK] == ["engine", "checkpoints"]
    assert list(found) == [
        "runtime file", "jobs file", "engine", "process", "gpu agent", "gpu scorer", "agent tester", "cases",
        "data", "checkpoints", "prices", "runs_root", "clock", "disk runs_root", "disk temp",
    ]  # fmt: skip
    assert "nothing isolates them" in found["engine"].what
    assert "(it will be made)" in found["runs_root"].what
    assert snapshot(clinic.lab.root) == before
    assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_the_table_shows_what_to_do(clinic: Clinic) -> None:
    (clinic.lab.cases / "real/clip/reference.mp4").write_bytes(VIDEO[:-10])
    words = [sys.executable, str(DOCTOR), "--runtime", str(clinic.lab.runtime_path)]
    done = subprocess.run(
        words, capture_output=True, text=True, env=clinic.lab.environment(CUDA_VISIBLE_DEVICES=""),
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 of 2 videos" in done.stdout
    assert "next step" in done.stdout
    assert "1 failed, 2 to think about" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_runtime_file_that_cannot_be_read_is_the_only_finding(clinic: Clinic) -> None:
    clinic.lab.runtime_path.write_text("backendd = 'host'", encoding="utf-8")
    found = clinic.look()
    assert list(found) == ["runtime file"]
    assert "unknown key 'backendd'" in found["runtime file"].what
    assert "'backend'" in found["runtime file"].fix


def test_a_fault_in_the_jobs_file_stops_nothing_else(clinic: Clinic) -> None:
    clinic.lab.jobs({"case": "B_02"})
    found = clinic.look()
    assert found["jobs file"].status == FAIL
    assert found["cases"].status == OK
    assert len(found) > 10


def test_without_jobs_everything_of_the_runtime_file_is_looked_at(clinic: Clinic) -> None:
    found = clinic.look(jobs=False)
    assert found["agent tester"].status == OK
    assert found["cases"].what.startswith("2 below")


def test_ctrl_c_ends_what_is_being_looked_at(clinic: Clinic) -> None:
    lab = clinic.lab
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        lab.runtime(f'[agent.stirrup.env]\nOPENAI_BASE_URL = "{url}"')
        process = subprocess.Popen(
            [sys.executable, str(DOCTOR), "--runtime", str(lab.runtime_path)],
            env=lab.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=lab.root,
        )  # fmt: skip
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            connection.close()
        finally:
            end(process)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert not list(lab.root.glob(".4dcb-doctor*"))


# --- one check


def _raises(error: Exception) -> Callable[[threading.Event], Finding]:
    def look(_: threading.Event) -> Finding:
        raise error

    return look


def test_what_a_check_raises_is_its_finding() -> None:
    found = examine(Check("x", _raises(UserError("bad", where="here", expected="good", next_step="mend it"))))
    assert found == Finding("x", FAIL, "here: bad; expected good", "mend it")
    found = examine(Check("x", _raises(ZeroDivisionError("oops\nline"))))
    assert found == Finding(
        "x", FAIL, "ZeroDivisionError: oops line", "this is a fault of ours, please report it"
    )


def test_a_check_without_an_end_is_told_to_stop() -> None:
    told: list[bool] = []

    def look(stop: threading.Event) -> Finding:
        told.append(stop.wait(60))
        return Finding("x", OK, "too late")

    found = examine(Check("x", look, deadline=0.05))
    assert (found.status, told) == (FAIL, [True])
    assert "no answer within 0.05 s" in found.what


# --- inputs


def test_cases(clinic: Clinic) -> None:
    (clinic.lab.cases / "real/clip/reference.mp4").unlink()
    found = clinic.look()["cases"]
    assert (found.status, found.what.split(":")[0]) == (FAIL, "1 of 2 videos")
    shutil.rmtree(clinic.lab.cases)
    found = clinic.look(jobs=False)
    assert found["cases"].status == FAIL
    assert "make_demo_case" in found["cases"].fix
    assert found["data"].status == WARN


def test_data(clinic: Clinic) -> None:
    shutil.rmtree(clinic.lab.data / "real/clip/estimates")
    found = clinic.look()["data"]
    assert (found.status, "scorer.prepare" in found.fix) == (WARN, True)
    assert "1 of 2 cases have no estimates" in found.what
    (clinic.lab.data / "real/clip/annotation/dynamic_mask.npz").unlink()
    found = clinic.look()["data"]
    assert found.status == WARN
    assert found.what.endswith("real/clip/annotation/dynamic_mask.npz")


def test_checkpoints(clinic: Clinic) -> None:
    store = clinic.lab.root / "store"
    clinic.lab.runtime(clinic.lab.shell_agent("true") + f'[scorer]\ncheckpoints = "{store}"')
    assert clinic.look()["checkpoints"].status == FAIL
    store.mkdir()
    found = clinic.look()["checkpoints"]
    assert (found.status, "none of the" in found.what) == (WARN, True)
    for checkpoint in CHECKPOINTS.values():
        (store / checkpoint.directory).mkdir(exist_ok=True)
        for file in checkpoint.files:
            (store / checkpoint.directory / file.path).write_bytes(b"weights")
    assert clinic.look()["checkpoints"].status == OK
    before = snapshot(store)
    found = clinic.look()["checkpoints"]
    assert (found.status, snapshot(store)) == (OK, before)
    found = clinic.look("--hashes")["checkpoints"]
    assert found.status == FAIL
    assert "expected" in found.what
    (store / checkpoint.directory / checkpoint.files[0].path).unlink()
    found = clinic.look()["checkpoints"]
    assert (found.status, "is missing" in found.what) == (FAIL, True)
    assert "download_checkpoints.py" in found.fix


def test_prices(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(tables: str = "", transcript: str = "codex") -> Finding:
        extra = f'transcript = "{transcript}"\n'
        clinic.lab.runtime(clinic.lab.shell_agent("true", extra=extra) + tables)
        return clinic.look()["prices"]

    clinic.lab.jobs({"model": "nobody-knows-4dcb"})
    assert (look().status, look("[budget]\nmax_usd = 1.0").status) == (WARN, FAIL)
    assert look("[budget]\nmax_tokens = 5").status == WARN
    assert "nobody counts" in look("[budget]\nmax_tokens = 5", transcript="none").what
    assert look(transcript="free").status == OK
    overlay = clinic.lab.root / "prices.toml"
    table = f'[prices]\noverlay = "{overlay}"\n[budget]\nmax_usd = 1.0'
    assert "no such file" in look(table).what
    overlay.write_text("[nobody-knows-4dcb]\ninput = 1.0\noutput = 2.0\n", encoding="utf-8")
    assert look(table).status == OK
    monkeypatch.setenv(prices.OVERLAY, "")
    monkeypatch.setattr(prices, "_litellm", lambda: ({}, {}))
    assert "not installed" in look().what
    found = clinic.look(jobs=False)["prices"]
    assert (found.status, "fourdcodebench[prices]" in found.fix) == (WARN, True)


# --- agents


def test_agents(clinic: Clinic, programs: Path) -> None:
    program(programs, "claude", "exit 0")
    program(programs, "codex", "exit 0")
    lab = clinic.lab
    lab.runtime(
        "[agent.codex.env]\nOPENAI_API_KEY = '${NOT_SET_4DCB}'\n[agent.mine]\ncommand = ['no-such-4dcb']"
    )
    lab.jobs({"agent": "claude", "effort": "extreme"}, {"agent": "codex", "effort": "low"}, {"agent": "mine"},
             {"agent": "nobody"})  # fmt: skip
    found = clinic.look()
    assert "effort 'extreme' is not known" in found["agent claude"].what
    assert "NOT_SET_4DCB" in found["agent codex"].what
    assert "'no-such-4dcb' was not found" in found["agent mine"].what
    assert "neither built in" in found["agent nobody"].what
    lab.jobs({"agent": "claude", "effort": "low"})
    found = clinic.look()
    assert (found["agent claude"].status, "docs/agents.md" in found["agent claude"].fix) == (WARN, True)
    lab.runtime("[agent.claude.env]\nANTHROPIC_API_KEY = 'sk-ant-0123456789'")
    found = clinic.look()
    assert found["agent claude"].status == OK
    assert found["agent claude"].what == "runs claude with ANTHROPIC_API_KEY"
    assert "login claude" not in found


def test_logins(clinic: Clinic, programs: Path) -> None:
    program(programs, "claude", "exit 0")
    lab = clinic.lab
    lab.auth.mkdir()
    lab.runtime("[agent.claude]\ncredential = 'c.json'\ncontainer = '/root/.claude/.credentials.json'")
    lab.jobs({"agent": "claude", "effort": "low"})
    path = lab.auth / "c.json"

    def look(seconds: float, mode: int = 0o600, **more: str) -> Finding:
        tokens = {"accessToken": "t" * 20, "expiresAt": int((time.time() + seconds) * 1000), **more}
        path.write_text(json.dumps({"claudeAiOauth": tokens}), encoding="utf-8")
        path.chmod(mode)
        return clinic.look()["login claude"]

    found = clinic.look()["login claude"]
    assert (found.status, "does not exist" in found.what) == (FAIL, True)
    assert look(9000).status == OK
    assert (look(9000, 0o640).status, look(9000, 0o640).fix) == (WARN, f"chmod 600 {path}")
    assert (look(9000, 0o620).status, look(9000, 0o620).fix) == (FAIL, f"chmod 600 {path}")
    assert "expired" in look(-5).what
    assert look(-5, refreshToken="r" * 20).status == OK
    assert (look(30).status, "before a run of 60 s" in look(30).what) == (WARN, True)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().running() as running:
        yield running


def test_the_endpoint_is_asked(clinic: Clinic, server: ChatServer) -> None:
    def look(url: str, *statuses: int) -> Finding:
        server.health = list(statuses)
        env = f'[agent.stirrup.env]\nOPENAI_BASE_URL = "{url}"\nOPENAI_API_KEY = "sk-0123456789abcdef"'
        clinic.lab.runtime(env)
        return clinic.look(jobs=False)["endpoint stirrup"]

    assert (look(server.url, 200).status, server.health_asked) == (OK, 1)
    assert look(server.url, 404).status == OK
    assert (look(server.url, 401).status, "OPENAI_API_KEY" in look(server.url, 403).fix) == (FAIL, True)
    assert look(server.url, 503).status == WARN
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = look(f"http://127.0.0.1:{closed.getsockname()[1]}/v1")
    assert (found.status, "Connection refused" in found.what) == (FAIL, True)
    found = look("http://no-such-host.invalid/v1")
    assert (found.status, "does not answer" in found.what) == (FAIL, True)
    assert "sk-0123456789" not in str(found)


def test_a_model_that_the_endpoint_does_not_offer(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic.lab.jobs({"agent": "stirrup", "model": "right"}, {"agent": "stirrup", "model": "wrong"})
    monkeypatch.setattr(
        "harness.runtime.doctor_agents.try_out",
        lambda *_: doctor_trial.Said(["status=200", 'models=["right"]'], 0, "", 0, 1, frozenset()),
    )
    found = clinic.look()["endpoint stirrup"]
    assert (found.status, "does not offer 'wrong'" in found.what) == (WARN, True)


# --- this machine


def test_a_runs_root_that_is_no_directory(clinic: Clinic) -> None:
    clinic.lab.runs.write_text("", encoding="utf-8")
    found = clinic.look()
    assert (found["runs_root"].status, found["clock"].status) == (FAIL, FAIL)
    assert found["disk temp"].status == OK


def test_a_file_system_without_renames_or_locks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.runtime()
    lab.runs.mkdir()
    look = lambda: doctor_machine.runs_root(patient(lab))  # noqa: E731
    assert look().status == OK

    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as changed:
        changed.setattr(doctor_machine.fcntl, "flock", refuse)
        assert "locks (flock) do not work: Operation not supported" in look().what
        changed.setattr(doctor_machine.fcntl, "flock", lambda *_: None)
        assert (look().status, "keeps nobody out" in look().what) == (FAIL, True)
    with monkeypatch.context() as changed:
        changed.setattr(Path, "rename", refuse)
        assert "rename does not work" in look().what
    assert list(lab.runs.iterdir()) == []


@pytest.mark.parametrize(("offset", "status"), [(0, OK), (10, WARN), (-10, WARN), (3600, FAIL)])
def test_a_clock_that_differs(lab: Lab, monkeypatch: pytest.MonkeyPatch, offset: int, status: str) -> None:
    lab.runtime()
    real = time.time
    monkeypatch.setattr(doctor_machine, "time", SimpleNamespace(time=lambda: real() + offset))
    assert doctor_machine.clock(patient(lab)).status == status


def test_disks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.runtime(agent="min_free_gb = 1e9")
    found = doctor_machine.disk("disk", patient(lab), lab.runs)
    assert (found.status, "less than [agent] min_free_gb" in found.what) == (FAIL, True)
    lab.runtime(agent="min_free_gb = 0.0")
    assert doctor_machine.disk("disk", patient(lab), lab.runs / "not/there").status == OK
    few = SimpleNamespace(f_files=100_000, f_favail=7)
    monkeypatch.setattr(doctor_machine, "os", SimpleNamespace(statvfs=lambda _: few))
    assert "room for 7 more files" in doctor_machine.disk("disk", patient(lab), lab.runs).what


def test_slurm(lab: Lab, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    look = doctor_machine.slurm
    assert look(None).what == "sbatch is not on PATH"
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        program(programs, name, "exit 0")
    program(programs, "sinfo", "case \"$*\" in *none*) exit 0;; esac; echo 'gpu* up'; echo 'old down'")
    program(programs, "scontrol", "echo 'Slurmctld(primary) at host is DOWN'; exit 1")
    assert (look(None).status, "DOWN" in look(None).what) == (FAIL, True)
    program(programs, "scontrol", "echo 'Slurmctld(primary) at host is UP'")
    assert "no partition 'none'" in look("none").what
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert (look(None).status, "fourdcodebench[slurm]" in look(None).fix) == (FAIL, True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    assert (look("gpu").status, "gpu*" in look("gpu").what) == (OK, True)
    program(programs, "sinfo", "echo 'gpu* down'")
    assert "is not up" in look("gpu").what


def test_slurm_is_looked_at_where_it_is_the_engine(lab: Lab) -> None:
    launcher = SimpleNamespace(engine="slurm", partition="gpu")
    file = SimpleNamespace(launcher=launcher, agent=SimpleNamespace(min_free_gb=1.0))
    runtime = SimpleNamespace(file=file, backend="host", runs=lab.runs)
    whole = Patient(runtime, SimpleNamespace(name="host"))  # type: ignore[arg-type]
    assert [check.name for check in doctor_machine.checks(whole)][-1] == "slurm"
    launcher.engine = "local"
    assert "slurm" not in [check.name for check in doctor_machine.checks(whole)]


# --- containers and GPUs, with stand-ins


class StandIn:
    """An engine that runs a container's command as a plain process, its mounts by their sources."""

    name = "docker"

    def __init__(self, path: Path, after: Callable[[Job], None] = lambda job: None, error: str = "") -> None:
        self.path, self.after, self.error = path, after, error
        self.jobs: list[Job] = []

    def check(self, image: str) -> str:
        return "sha256:0123"

    def check_job(self, job: Job) -> None:
        pass

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        self.jobs.append(job)
        if self.error:
            return Outcome(None, 0.1, error=self.error)
        sources = {str(mount.target): str(mount.source) for mount in job.mounts}
        for mount in job.mounts:
            if not mount.writable and mount.source.is_dir():
                mount.source.chmod(stat.S_IRUSR | stat.S_IXUSR)
        words = [sources.get(word, word) for word in job.command]
        with log.open("wb") as stream:
            done = subprocess.run(
                words, stdout=stream, stderr=stream, env={"PATH": f"{self.path}:{os.defpath}"}, timeout=60
            )
        self.after(job)
        return Outcome(done.returncode, 0.1)


def contained(lab: Lab, backend: StandIn, tables: str = "", agent: str = "") -> Patient:
    lab.runtime(tables, top='backend = "docker"', agent=agent)
    lab.runs.mkdir(exist_ok=True)
    return Patient(load_runtime(lab.runtime_path), backend)  # type: ignore[arg-type]


def container(lab: Lab, backend: StandIn, **more: str) -> Finding:
    return doctor_engine.container(contained(lab, backend, **more), "agent", threading.Event())


def test_a_container_is_tried_out_as_an_agents(lab: Lab, programs: Path) -> None:
    backend = StandIn(programs)
    found = container(lab, backend, agent="limits = {memory_mb = 512}")
    (job,) = backend.jobs
    assert (job.limits.memory_mb, job.network, job.gpus, job.as_root) == (512, True, (), True)
    assert {str(mount.target): mount.writable for mount in job.mounts} == {
        "/workspace": True, "/task": False, "/root": True,
    }  # fmt: skip
    if os.getuid() == 0:  # root writes to what is read-only
        assert found.what == "it can write to a mount that is read-only"
    else:
        assert (found.status, "has a network" in found.what) == (OK, True)
    assert list(lab.runs.iterdir()) == []


def lines(rw: str = "yes", ro: str = "yes", routes: int = 1, clock: int = 0, more: str = "") -> list[str]:
    """``clock`` : by how much it is wrong."""
    return [f"clock={clock}", f"rw={rw}", f"ro={ro}", f"routes={routes}", *more.split()]


@pytest.mark.parametrize(
    ("said", "network", "owners", "status", "part"),
    [
        (lines(), "default", {os.getuid()}, OK, "has a network"),
        (lines(routes=0), "no-network", {os.getuid()}, OK, "has no network"),
        (lines(rw="no"), "default", {os.getuid()}, FAIL, "cannot write to its workspace"),
        (lines(), "default", set(), FAIL, "the engine runs elsewhere"),
        (lines(), "default", {54321}, FAIL, "belongs to user 54321"),
        (lines(ro="no"), "default", {os.getuid()}, FAIL, "read-only"),
        (lines(routes=0), "default", {os.getuid()}, FAIL, "it has no network"),
        (lines(routes=2), "no-network", {os.getuid()}, FAIL, "although"),
        (lines(more="missing=claude missing=git"), "default", {os.getuid()}, FAIL, "no program claude, git"),
        (lines(clock=-4000), "default", {os.getuid()}, WARN, "clock is wrong by 4000 s"),
        (lines(clock=4001), "default", {os.getuid()}, WARN, "clock is wrong by 4000 s"),
        (["exec format error"], "default", set(), FAIL, "exec format error"),
        ([], "default", set(), FAIL, "ended with status 0"),
    ],
)
def test_what_a_container_says_of_itself(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    network: str,
    owners: set[int],
    status: str,
    part: str,
) -> None:
    answer = doctor_trial.Said(said, 0, "", 0.0, 1.0, frozenset(owners))
    monkeypatch.setattr(doctor_engine, "try_out", lambda *_: answer)
    found = container(lab, StandIn(lab.root), tables=f'[agent.environment]\nnetwork_mode = "{network}"')
    assert (found.status, part in found.what) == (status, True), found


def test_an_engine_that_cannot_start_it(lab: Lab) -> None:
    found = container(lab, StandIn(lab.root, error="no space left on device"))
    assert found.what == "it cannot be run: no space left on device"


def gpu(
    lab: Lab, backend: StandIn, monkeypatch: pytest.MonkeyPatch, role: str = "agent", variant: str = "cuda"
) -> Finding:
    monkeypatch.setattr(doctor_engine, "variant_of", lambda *_: variant)
    tables = '[agent.environment]\ngpus = "0,1"'
    return doctor_engine.gpu(contained(lab, backend, tables), role, threading.Event())


def test_gpus_in_an_image(lab: Lab, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "python3", 'echo "some banner"; echo "=== all held: $2"')
    backend = StandIn(programs)
    found = gpu(lab, backend, monkeypatch)
    assert found == Finding(
        "gpu agent", OK, "verified: driver, toolkit, torch, bpy, egl, cycles, eevee, caches"
    )
    assert backend.jobs[0].gpus == ("0", "1")
    script = (
        'case $2 in egl) echo "error: egl: /x/10_nvidia.json is missing" >&2; exit 1;; '
        'torch) echo "no driver"; echo "error: torch: python ended with status 1"; exit 1;; '
        'cycles) kill -9 $$;; *) echo "=== all held: $2";; esac'
    )
    program(programs, "python3", script)
    found = gpu(lab, backend, monkeypatch)
    assert found.status == FAIL
    assert "torch: python ended with status 1 (no driver); egl: /x/10_nvidia.json is missing" in found.what
    assert "cycles: it ended with a failure" in found.what
    assert "CUDA" in found.fix
    found = gpu(lab, StandIn(programs, error='could not select device driver ""'), monkeypatch)
    assert (found.status, "NVIDIA Container Toolkit" in found.fix) == (FAIL, True)
    assert "CPU variant" in gpu(lab, backend, monkeypatch, variant="cpu").what
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    program(programs, "python3", 'echo "=== all held: $2"')
    found = gpu(lab, backend, monkeypatch, role="scorer")
    assert found.what == "verified: driver, toolkit, torch, caches"


def test_an_image_for_the_cpu_where_gpus_are_asked_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_engine, "variant_of", lambda *_: "cpu")
    asked = contained(lab, StandIn(lab.root), '[agent.environment]\ngpus = "0"')
    found = doctor_engine.image(asked, "agent")
    assert (found.status, "sha256:0123, cpu variant" in found.what) == (WARN, True)
    none = contained(lab, StandIn(lab.root), '[agent.environment]\ngpus = "none"')
    assert doctor_engine.image(none, "agent").status == OK


def test_the_gpu_of_this_machine(clinic: Clinic, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtime.doctor_trial.devices", lambda text: ("0",))
    nothing = SimpleNamespace(which=lambda _: None, util=SimpleNamespace(find_spec=lambda _: None))
    monkeypatch.setattr(doctor_engine, "shutil", nothing)
    monkeypatch.setattr(doctor_engine, "importlib", nothing)
    program(programs, "nvidia-smi", "echo H200")
    found = clinic.look()
    assert (found["gpu agent"].what, found["gpu scorer"].what) == ("verified: driver",) * 2
    program(programs, "nvidia-smi", "echo 'Driver/library version mismatch'; exit 18")
    found = clinic.look()
    assert found["gpu agent"].status == FAIL
    assert "ended with status 18 (Driver/library version mismatch)" in found["gpu agent"].what


def test_a_trial_ends_when_it_is_told_to(clinic: Clinic) -> None:
    clinic.lab.runtime()
    runtime = load_runtime(clinic.lab.runtime_path)
    from harness.runtime.backends.host import HostBackend

    stop = threading.Event()
    whole = Patient(runtime, HostBackend(0.5))
    results: list[doctor_trial.Said] = []
    trial = Trial("agent", ("sh", "-c", "echo begun; sleep 300", "sh"), seconds=200)
    thread = threading.Thread(target=lambda: results.append(doctor_trial.try_out(whole, trial, stop)))
    thread.start()
    assert eventually(lambda: any(clinic.lab.root.glob(".4dcb-doctor*/log")))
    stop.set()
    thread.join(60)
    assert results[0].exit_code != 0
    assert not list(clinic.lab.root.glob(".4dcb-doctor*"))
