"""One agent run as a job of a backend: command, mounts, variables, and the scratch directories behind."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from contract.names import CONTAINER, REFERENCE_VIDEO, SESSION, TASK_FILES, AgentPaths
from contract.runs import RunKey
from harness.runtime import owner, tasktext
from harness.runtime.agents import Agent, Context
from harness.runtime.backends.base import LABEL, Job, Limits, Mount
from harness.runtime.config import REPOSITORY
from harness.runtime.delivery import Bounds

TASK_SHOWN = "<text of TASK.md>"
"""Stands for the task text wherever a command is shown or recorded."""


@dataclass(frozen=True)
class Credential:
    """A login file on this machine, and where the agent looks for it in its container."""

    source: Path
    target: PurePosixPath


@dataclass(frozen=True)
class Setting:
    """Everything that decides how one run is carried out."""

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

    def with_engine(self, engine: str) -> Setting:
        """The same with the engine's digest or version, known once it has been asked."""
        return replace(self, engine=engine)

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

    def job(self, staging: Path, run_id: str, *, shown: bool = False) -> Job:
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
        )
        command = self.agent.command(context)
        if self.agent.task_on_stdin:
            # A fixed script; the command stays an argument vector.
            command = ("sh", "-c", 'task=$1; shift; exec "$@" < "$task"', "sh", task, *command)
        env = dict(self.env)
        if self.on_host:
            env = {"HOME": str(paths.home), "TMPDIR": str(staging / "tmp"), **env}
        return Job(
            name=container_name(self.key, run_id),
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
        if self.credential:
            mounts.append(Mount(staging / "credential", self.credential.target, writable=True))
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
            self._prepare_credential(staging, home)

    def _prepare_session(self, staging: Path, place: Path) -> None:
        session = staging / "run" / SESSION / str(self.agent.session_dir)
        session.mkdir(parents=True)
        if self.on_host:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(session, target_is_directory=True)
        else:
            place.mkdir(parents=True)

    def _prepare_credential(self, staging: Path, home: Path) -> None:
        """A private copy that the agent may refresh; the file of the operator is never written."""
        assert self.credential is not None
        copy = staging / "credential"
        if self.credential.target.is_relative_to(CONTAINER.home):
            place = home / self.credential.target.relative_to(CONTAINER.home)
            place.parent.mkdir(parents=True, exist_ok=True)
            if self.on_host:
                copy = place
            else:
                place.touch(mode=0o600)
        copy.touch(mode=0o600)
        copy.write_bytes(self.credential.source.read_bytes())

    def known_secrets(self) -> list[str]:
        """Values that must stand in no file of the run: those of secret variables, and the long texts of the
        login.
        """
        values = set(self.secrets.values())
        if self.credential:
            values.update(_texts(self.credential.source.read_text(encoding="utf-8", errors="replace")))
        return sorted(values)


def _texts(content: str) -> list[str]:
    """Long texts inside a JSON document (tokens), or the whole content when it is none."""
    try:
        todo = [json.loads(content)]
    except ValueError:
        return [content.strip()]
    found = []
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, str) and len(item) >= 16:
            found.append(item)
    return found


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
