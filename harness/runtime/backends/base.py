"""The one interface behind which Docker, Apptainer and the host run a command."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from contract.names import CONTAINER

LABEL = "org.4dcodebench"
"""Prefix of every container label of ours: ``.run`` (run label), ``.owner`` (launcher's pid), ``.boot`` (boot
id). A caller needs to give ``.run`` only; a backend adds what tells a dead owner from a living one.
"""


@dataclass(frozen=True)
class Mount:
    """A host file or directory inside the container. The source must exist; it is never created by the
    engine.
    """

    source: Path
    target: PurePosixPath
    writable: bool = False


@dataclass(frozen=True)
class Limits:
    """Resources of one container; None leaves the engine's default. A backend says what it cannot keep."""

    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    shm_mb: int | None = None


@dataclass(frozen=True)
class Job:
    """One command to run in isolation.

    command : argument vector; never a shell string.
    image : image of the backend's kind; empty on the host.
    env : plain variables. secrets : variables whose values appear in no argv, record or log.
    gpus : device ids for one job, () for none, None for all.
    name : unique container name. labels : see ``LABEL``.
    as_root : the command runs as root inside its container (an agent may install packages), and what it
        leaves in writable mounts is handed to the caller's user afterwards; otherwise it runs as the caller's
        user, with a writable ``HOME``. The host and sif backends always run as the caller.
    scratch : existing or new folder of this machine for what a container's ``/tmp`` and ``/var/tmp`` hold,
        where the backend needs one; it lives as long as its caller lets it. None: one that goes with the job.
    """

    name: str
    command: tuple[str, ...]
    image: str = ""
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    workdir: PurePosixPath = field(default_factory=lambda: CONTAINER.workspace)
    network: bool = True
    gpus: tuple[str, ...] | None = ()
    limits: Limits = Limits()
    labels: Mapping[str, str] = field(default_factory=dict)
    as_root: bool = False
    scratch: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    exit_code : the command's status; None when it never started or vanished.
    gone : the container (or every process of the job) was confirmed to be gone.
    error : what the engine said when the job could not be run or was lost; empty otherwise. An outcome with
        an error is an infrastructure failure, never the agent's.
    warnings : what did not go as asked without spoiling the result (a limit lowered or not kept, files that
        could not be handed back), one sentence each, for the record.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool = False
    interrupted: bool = False
    oom_killed: bool = False
    killed_after_sec: float | None = None
    gone: bool = True
    error: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Orphan:
    """A container or process group of ours. ``dead_owner``: its launcher is gone, so it may be removed."""

    name: str
    run: str
    dead_owner: bool


class Backend(Protocol):
    """What each backend offers. ``run`` blocks; several may run at once from different threads."""

    name: str

    def check(self, image: str) -> str:
        """Digest or version of what will run. Raises ``UserError`` when engine or image cannot be used."""

    def check_job(self, job: Job) -> None:
        """Raise ``UserError`` for anything in ``job`` that this backend cannot keep."""

    def describe(self, job: Job) -> list[str]:
        """Words of an equivalent command line for people, secrets replaced by ``***``. Pure."""

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        """Run the job, standard output and error streamed to ``log`` while it runs (standard input closed).

        On timeout, and when ``stop`` is set: SIGTERM, a grace period, SIGKILL, then confirm that it is gone.
        """

    def orphans(self) -> list[Orphan]:
        """Everything of ours that runs on this machine, whoever started it."""

    def remove(self, orphan: Orphan) -> None:
        """Stop and remove it; raises ``RuntimeError`` when it will not go."""
