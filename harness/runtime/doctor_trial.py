"""A command run once, the way that agents or the scorer are run, for the checks of the doctor."""

from __future__ import annotations

import os
import secrets as randomness
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from contract.errors import one_line
from contract.names import CONTAINER
from harness.runtime.agentjob import labels
from harness.runtime.backends import check_job
from harness.runtime.backends.base import Job, Limits, Mount
from harness.runtime.config import NO_NETWORK, Runtime
from harness.runtime.doctor_check import Patient, scratch
from harness.runtime.gpus import Gpus, devices
from harness.runtime.plainfile import open_plain

ROLES = ("agent", "scorer")
_LOG_BYTES = 65_536
_RW, _RO = {"agent": "/workspace", "scorer": "/runs"}, {"agent": "/task", "scorer": "/cases"}


@dataclass(frozen=True)
class Trial:
    """A command to run as the agent's or the scorer's containers are run.

    role : ``agent`` or ``scorer``. ``{rw}`` and ``{ro}`` in the command's words stand for a directory that it
    may write and one that it may only read (empty on the host). tool : a file of this machine that it needs,
    ``{tool}`` in words. gpus : as of a job. seconds : time limit.
    """

    role: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    gpus: Gpus = ()
    tool: Path | None = None
    seconds: float = 60.0


@dataclass(frozen=True)
class Said:
    """How a trial ended.

    lines : its output. exit_code : None when it did not run. fault : what the engine said. began, ended :
    seconds since 1970. owners : of the files that it wrote.
    """

    lines: list[str]
    exit_code: int | None
    fault: str
    began: float
    ended: float
    owners: frozenset[int]


def image_of(runtime: Runtime, role: str) -> str:
    """Name of the image, empty on the host. Raises ``UserError`` when the runtime file names none."""
    section = runtime.file.agent if role == "agent" else runtime.file.scorer
    return runtime.image(section.image, role)


def network_of(runtime: Runtime, role: str) -> bool:
    """Whether containers of the role have a network."""
    if role == "agent":
        return runtime.file.agent.environment.network_mode != NO_NETWORK
    return runtime.backend == "host" or runtime.file.scorer.environment.network_mode == "default"


def gpus_of(runtime: Runtime, role: str) -> Gpus:
    """GPUs that containers of the role get."""
    if role == "agent":
        return devices(runtime.file.agent.environment.gpus)
    count = runtime.file.scorer.environment.gpus
    return () if count == 0 else devices("auto")


def try_out(patient: Patient, trial: Trial, stop: threading.Event) -> Said:
    """Run a trial in a directory beside the runs, which is removed again. Raises ``UserError`` when engine or
    image cannot be used at all.
    """
    patient.backend.check(image_of(patient.runtime, trial.role))
    with scratch(patient.runtime) as place:
        for name in ("rw", "ro", "home"):
            (place / name).mkdir()
        job = _job(patient.runtime, trial, place)
        check_job(patient.backend, job, patient.runtime.path, trial.role)
        log, began = place / "log", time.time()
        outcome = patient.backend.run(job, log, trial.seconds, stop)
        ended = time.time()
        fault = outcome.error or ("it did not end in time" if outcome.timed_out else "")
        owners = frozenset(path.lstat().st_uid for path in (place / "rw").iterdir())
        return Said(_lines(log), outcome.exit_code, one_line(fault), began, ended, owners)


def _job(runtime: Runtime, trial: Trial, place: Path) -> Job:
    role, on_host = trial.role, runtime.backend == "host"
    rw = place / "rw" if on_host else PurePosixPath(_RW[role])
    ro = "" if on_host else _RO[role]
    tool = trial.tool if on_host else PurePosixPath("/opt", trial.tool.name) if trial.tool else None
    filled = {"{rw}": str(rw), "{ro}": ro, "{tool}": str(tool)}
    mounts = [Mount(place / "rw", PurePosixPath(rw), True), Mount(place / "ro", PurePosixPath(_RO[role]))]
    if role == "agent":
        mounts.append(Mount(place / "home", CONTAINER.home, True))
    if trial.tool:
        mounts.append(Mount(trial.tool, PurePosixPath(str(tool))))
    agent, scorer = runtime.file.agent.limits, runtime.file.scorer.environment
    limits = (
        Limits(agent.cpus, agent.memory_mb, agent.pids, agent.shm_mb)
        if role == "agent"
        else Limits(cpus=None if on_host else scorer.cpus, memory_mb=scorer.memory_mb)
    )
    name = f"4dcb-doctor-{role}-{os.getpid()}-{randomness.token_hex(3)}"
    return Job(
        name=name,
        command=tuple(filled.get(word, word) for word in trial.command),
        image=image_of(runtime, role),
        mounts=() if on_host else tuple(mounts),
        env={"HOME": str(place / "home"), **trial.env} if on_host else trial.env,
        secrets=trial.secrets,
        workdir=PurePosixPath(rw),
        network=network_of(runtime, role),
        gpus=trial.gpus,
        limits=limits,
        labels=labels("doctor"),
        as_root=role == "agent" and not on_host and runtime.file.agent.environment.root,
    )


def _lines(log: Path) -> list[str]:
    try:
        with open_plain(log) as stream:
            text = stream.read(_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
