"""One agent run as a job of a backend: command, mounts, variables, and the scratch directories behind."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from contract.names import CONTAINER, REFERENCE_VIDEO, SESSION, TASK_FILES, AgentPaths
from contract.runs import RunKey
from harness.runtime import owner, tasktext
from harness.runtime.agents import Agent, Context
from harness.runtime.backends.base import LABEL, Job, Limits, Mount
from harness.runtime.config import REPOSITORY
from harness.runtime.credentials import copy_login
from harness.runtime.delivery import Bounds
from harness.runtime.logins import read_login, secret_texts

TASK_SHOWN = "<text of TASK.md>"
"""Stands for the task text wherever a command is shown or recorded."""


@dataclass(frozen=True)
class Credential:
    """A login file on this machine, and where the agent looks for it in its container.

    write_back : whether what the agent refreshes in its copy comes back to ``source``.
    """

    source: Path
    target: PurePosixPath
    write_back: bool = True

    @property
    def in_home(self) -> bool:
        return self.target.is_relative_to(CONTAINER.home)

    def copy(self, staging: Path) -> Path:
        """Where a run's private copy lies. Below the agent's home it is a plain file there, which a program
        can replace by renaming; a mounted single file could only be overwritten.
        """
        if self.in_home:
            return staging / "home" / self.target.relative_to(CONTAINER.home)
        return staging / "credential"


@dataclass(frozen=True)
class Setting:
    """Everything that decides how one run is carried out.

    reader : format of the agent's transcript, see ``accounting``. max_usd, max_tokens : bounds of this run.
    tools_python : interpreter of an agent whose program is part of this repository.
    """

    key: RunKey
    agent: Agent
    backend: str
    image: str
    video: Path
    timeout: int
    network: bool = True
    gpus: tuple[str, ...] | None = ()
    limits: Limits = field(default_factory=Limits)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    credential: Credential | None = None
    as_root: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    engine: str = ""
    reader: str = "none"
    max_usd: float | None = None
    max_tokens: int | None = None
    tools_python: str = "python3"

    def with_engine(self, engine: str) -> Setting:
        """The same with the engine's digest or version, known once it has been asked."""
        return replace(self, engine=engine)

    def with_gpus(self, gpus: tuple[str, ...] | None) -> Setting:
        """The same on the GPUs of a slot."""
        return replace(self, gpus=gpus)

    @property
    def login(self) -> str:
        """What identifies the account that the run uses, so that a refused login stops others of its kind."""
        return str(self.credential.source) if self.credential else f"agent {self.key.agent}"

    @property
    def on_host(self) -> bool:
        return self.backend == "host"

    def paths(self, staging: Path) -> AgentPaths:
        """Where the agent finds things: the container's fixed paths, on the host those of the staging
        directory.
        """
        if not self.on_host:
            return CONTAINER
        return AgentPaths(
            task=PurePosixPath(staging / "task"),
            video=PurePosixPath(staging / "input" / REFERENCE_VIDEO),
            workspace=PurePosixPath(staging / "workspace"),
            home=PurePosixPath(staging / "home"),
        )

    def task_text(self, staging: Path) -> str:
        """The filled TASK.md."""
        paths = self.paths(staging)
        checker, preview = "python -m checker", "python -m checker.preview"
        if self.on_host:
            where = f"--workspace {shlex.quote(str(paths.workspace))}"
            python = shlex.quote(sys.executable)
            checker = f"{python} -m checker {where} --video {shlex.quote(str(paths.video))}"
            preview = f"{python} -m checker.preview {where}"
        return tasktext.task_text(tasktext.placeholders(paths, checker, preview, self.timeout))

    def job(self, staging: Path, run_id: str, attempt: int = 1, *, shown: bool = False) -> Job:
        """The job for a backend; ``shown`` leaves the task text out of its command, for people and records.
        Pure.
        """
        paths = self.paths(staging)
        text = TASK_SHOWN if shown else self.task_text(staging)
        task = str(paths.task / TASK_FILES[0])
        context = Context(
            task=task,
            task_text=text,
            workspace=str(paths.workspace),
            video=str(paths.video),
            world=str(paths.world),
            solution=str(paths.solution),
            model=self.key.model,
            effort=self.key.effort,
            timeout=self.timeout,
            python=sys.executable if self.on_host else "python3",
            tools=str(REPOSITORY / str(self.agent.tools)) if self.on_host else self.agent.tools_target,
            tools_python=self.tools_python,
        )
        command = self.agent.command(context)
        if self.agent.task_on_stdin:
            # A fixed script; the command stays an argument vector.
            command = ("sh", "-c", 'task=$1; shift; exec "$@" < "$task"', "sh", task, *command)
        env = dict(self.env)
        if self.on_host:
            env = {"HOME": str(paths.home), "TMPDIR": str(staging / "tmp"), **env}
        return Job(
            name=container_name(self.key, f"{run_id}.{attempt}"),
            command=command,
            image=self.image,
            mounts=() if self.on_host else tuple(self._mounts(staging)),
            env=env,
            secrets=dict(self.secrets),
            workdir=paths.workspace,
            network=self.network,
            gpus=self.gpus,
            limits=self.limits,
            labels=labels(str(self.key.path)),
            as_root=self.as_root,
            scratch=None if self.on_host else staging / "scratch",
        )

    def _mounts(self, staging: Path) -> list[Mount]:
        mounts = [
            Mount(staging / "home", CONTAINER.home, writable=True),
            Mount(staging / "workspace", CONTAINER.workspace, writable=True),
            Mount(staging / "task", CONTAINER.task),
            Mount(self.video.resolve(), CONTAINER.video),
        ]
        if self.agent.session_dir:
            source = staging / "run" / SESSION / self.agent.session_dir
            mounts.append(Mount(source, CONTAINER.home / self.agent.session_dir, writable=True))
        if self.agent.tools:
            mounts.append(Mount(REPOSITORY / self.agent.tools, PurePosixPath(self.agent.tools_target)))
        if self.credential and not self.credential.in_home:
            mounts.append(Mount(self.credential.copy(staging), self.credential.target, writable=True))
        return mounts

    def prepare(self, staging: Path) -> None:
        """Create what the job's paths and mounts point to below ``staging``."""
        for name in ("workspace", "home", "tmp"):
            (staging / name).mkdir()
        tasktext.write_task(staging / "task", self.task_text(staging))
        home = staging / "home"
        if self.agent.session_dir:
            self._prepare_session(staging, home / self.agent.session_dir)
        if self.on_host:
            (staging / "input").mkdir()
            # A copy: on the host nothing keeps an agent from writing to the case itself.
            shutil.copyfile(self.video, staging / "input" / REFERENCE_VIDEO)
        if self.credential:
            copy = self.credential.copy(staging)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy_login(read_login(self.credential.source, self.key.agent), copy)

    def _prepare_session(self, staging: Path, place: Path) -> None:
        session = staging / "run" / SESSION / str(self.agent.session_dir)
        session.mkdir(parents=True)
        if self.on_host:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(session, target_is_directory=True)
        else:
            place.mkdir(parents=True)

    def known_secrets(self, *contents: bytes | None) -> list[str]:
        """Values that must stand in no file of the run: those of secret variables, and the long texts of the
        login. ``contents``: further states of the login file, such as the agent's refreshed copy.
        """
        values = set(self.secrets.values())
        if self.credential:
            with suppress(OSError):
                values.update(secret_texts(self.credential.source.read_bytes()))
        for content in contents:
            if content:
                values.update(secret_texts(content))
        return sorted(values)


def container_name(key: RunKey, run_id: str) -> str:
    """A unique name that engines accept."""
    return f"4dcb-{run_id}-{re.sub(r'[^A-Za-z0-9_.-]', '_', key.label)}"[:120]


def labels(run: str) -> dict[str, str]:
    """Labels that tell whose container it is; ``run`` says what for."""
    me = owner.this_process()
    return {
        f"{LABEL}.run": run,
        f"{LABEL}.owner": str(me["pid"]),
        f"{LABEL}.boot": str(me["boot_id"]),
    }
