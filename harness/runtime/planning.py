"""From the two configuration files to runs that can be started: everything is checked here, before anything
is touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from contract.errors import UserError
from contract.names import CONTAINER, RUN_RECORD
from contract.runs import RunKey
from harness.runtime.agentconfig import AgentTable
from harness.runtime.agentjob import Credential, Setting
from harness.runtime.agents import BUILT_IN, Agent, Context, custom_agent
from harness.runtime.agents.stirrup import PACKAGE, RUNNER, TOOLS_PYTHON, unfit_interpreter
from harness.runtime.backends import check_job
from harness.runtime.backends.base import Backend, Limits
from harness.runtime.boundcheck import check_bounds, live_warnings
from harness.runtime.config import NO_NETWORK, Runtime
from harness.runtime.delivery import Bounds
from harness.runtime.gpus import devices
from harness.runtime.jobs import JobList, reference_video
from harness.runtime.logins import check_login
from harness.runtime.mp4boxes import check_video
from harness.runtime.provenance import sha256
from harness.runtime.rundir import Place, has_foreign_content
from harness.runtime.runrecord import FINISHED, read_record, state_of
from harness.runtime.tomlfile import nearest
from harness.runtime.trees import check_writable
from harness.runtime.variables import expand_env

_MIB = 1 << 20
_HOME = CONTAINER.home


@dataclass(frozen=True)
class Plan:
    """One run, ready to start. ``skip`` : its finished state, when a finished run stands in its place
    already. ``warnings`` : about its login.
    """

    place: Place
    setting: Setting
    config: Mapping[str, Any]
    skip: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> RunKey:
        return self.place.key


def plan_all(
    jobs: JobList, runtime: Runtime, backend: Backend, *, redo: bool = False, keep: bool = False
) -> list[Plan]:
    """Check every run of ``jobs`` and return them in order. Touches nothing. Raises ``UserError`` at the
    first fault.

    ``redo`` : finished runs are run again. ``keep`` : finished runs of another configuration are left as they
    are.
    """
    image = runtime.image(runtime.file.agent.image, "agent")
    check_writable(runtime.runs, "runs_root")
    plans = [plan_run(key, jobs.path, runtime, image) for key in jobs.keys]
    engine = backend.check(image)
    ready = []
    for plan in plans:
        job = plan.setting.job(Path(os.devnull), "check")
        check_job(backend, job, runtime.path, f"agent.{plan.key.agent}")
        skip = "" if redo else finished_state(plan, keep)
        if not skip:
            check_writable(plan.place.final.parent, "runs_root")
        setting = plan.setting.with_engine(engine)
        ready.append(Plan(plan.place, setting, plan.config, skip, plan.warnings))
    check_bounds([plan.setting for plan in ready if not plan.skip], runtime.file.budget, runtime.path)
    return ready


def plan_run(key: RunKey, jobs: Path, runtime: Runtime, image: str) -> Plan:
    """One run with its case, agent, credential and limits resolved."""
    section = runtime.file.agent
    table = section.agents.get(key.agent, AgentTable())
    agent = find_agent(key.agent, runtime, jobs)
    if agent.efforts and key.effort not in agent.efforts:
        raise UserError(
            f"effort {key.effort!r} is not known to {key.agent}",
            where=jobs,
            expected=f"one of {', '.join(agent.efforts)}",
        )
    tools_python = check_tools(agent, table, runtime) if agent.tools else "python3"
    video = reference_video(key.case, runtime.cases)
    check_video(video)
    plain, secrets = expand_env(table.env, f"agent.{key.agent}.env", runtime.path)
    limits = section.limits
    setting = Setting(
        key=key,
        agent=agent,
        backend=runtime.backend,
        image=image,
        video=video,
        timeout=section.timeout_sec,
        network=section.environment.network_mode != NO_NETWORK,
        gpus=devices(section.environment.gpus),
        limits=Limits(limits.cpus, limits.memory_mb, limits.pids, limits.shm_mb),
        env=plain,
        secrets=secrets,
        credential=credential_of(key.agent, table, runtime),
        as_root=runtime.backend != "host" and section.environment.root,
        bounds=Bounds(
            section.delivery.max_files,
            section.delivery.max_file_mb * _MIB,
            section.delivery.max_total_mb * _MIB,
        ),
        reader=key.agent if key.agent in BUILT_IN else table.transcript,
        max_usd=runtime.file.budget.max_usd_per_run,
        max_tokens=runtime.file.budget.max_tokens_per_run,
        tools_python=tools_python,
    )
    warnings: tuple[str, ...] = ()
    if setting.credential:
        warnings = _login_warnings(setting.credential.source, key.agent, setting.timeout)
    warnings += live_warnings(setting)
    return Plan(Place(runtime.runs, key), setting, comparable(setting, table), warnings=warnings)


def find_agent(name: str, runtime: Runtime, jobs: Path) -> Agent:
    """A built-in agent or one of the runtime file. Raises ``UserError`` with the nearest known name."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    tables = runtime.file.agent.agents
    table = tables.get(name)
    if table is None or table.command is None:
        known = sorted({*BUILT_IN, *(other for other, entry in tables.items() if entry.command)})
        like = nearest(name, known)
        raise UserError(
            f"agent {name!r} is neither built in nor defined in {runtime.path}",
            where=jobs,
            expected=f"one of {', '.join(known)}",
            next_step=f"did you mean {like!r}?" if like else f"define [agent.{name}] command = [\u2026]",
        )
    try:
        return custom_agent(name, table.command, table.session_dir, table.efforts, table.stdin == "task")
    except UserError as error:
        raise UserError(
            f"[agent.{name}]: {error.what}",
            where=runtime.path,
            expected=error.expected,
            next_step=error.next_step,
        ) from error


def check_tools(agent: Agent, table: AgentTable, runtime: Runtime) -> str:
    """The interpreter for an agent whose program is part of this repository. Raises ``UserError`` where it
    cannot run: on the host, where nothing is prepared for it, without its packages.
    """
    directory = runtime.root / str(agent.tools)
    if not (directory / RUNNER).is_file():
        raise UserError(f"agent {agent.name} cannot run: its runner is missing", where=directory / RUNNER)
    if runtime.backend != "host":
        return "python3"
    given = table.python or "python3"
    python = str(runtime.resolve(given)) if "/" in given else given
    fault = unfit_interpreter(python)
    if fault:
        raise UserError(
            f"[agent.{agent.name}]: python = {given!r} {fault}",
            where=runtime.path,
            expected=f"an interpreter of Python {'.'.join(map(str, TOOLS_PYTHON))} or newer with {PACKAGE}",
            next_step=f'name one with python = "\u2026" in [agent.{agent.name}], see docs/agents.md, '
            'or use backend = "docker"',
        )
    return python


def credential_of(name: str, table: AgentTable, runtime: Runtime) -> Credential | None:
    """The login of an agent, its paths checked. On the host it must belong below the home that the agent is
    given.
    """
    if not table.credential:
        return None
    if ".." in table.credential.split("/") or table.credential.startswith("/"):
        raise UserError(
            f"[agent.{name}]: credential {table.credential!r} is no file below auth_root", where=runtime.path
        )
    source, target = runtime.auth / table.credential, PurePosixPath(str(table.container))
    if ".." in target.parts or target == _HOME:
        raise UserError(f"[agent.{name}]: container {str(target)!r} is no path of a file", where=runtime.path)
    if runtime.backend == "host" and not target.is_relative_to(_HOME):
        raise UserError(
            f"[agent.{name}]: container {str(target)!r} is not below {_HOME}, as the host backend needs",
            where=runtime.path,
        )
    return Credential(source, target, table.write_back)


@cache
def _login_warnings(source: Path, agent: str, timeout: int) -> tuple[str, ...]:
    return tuple(check_login(source, agent, timeout))


def comparable(setting: Setting, table: AgentTable) -> dict[str, Any]:
    """What must be equal for a finished run to stand for this one; free of paths of this machine and of
    secrets.
    """
    names = ("task", "task_text", "workspace", "video", "world", "solution", "python")
    context = Context(
        **{name: f"{{{name}}}" for name in names},
        model=setting.key.model,
        effort=setting.key.effort,
        timeout=setting.timeout,
        tools="{tools}" if setting.on_host else setting.agent.tools_target,
        tools_python="{tools_python}" if setting.on_host else "python3",
    )
    key, limits = setting.key, setting.limits
    # Named only where they are set: runs of launchers that knew no budgets stay what they are.
    bounds = {"max_usd_per_run": setting.max_usd, "max_tokens_per_run": setting.max_tokens}
    return {
        "case": key.case, "agent": key.agent, "model": key.model, "effort": key.effort, "trial": key.trial,
        "backend": setting.backend,
        "image": setting.image,
        "command": list(setting.agent.command(context)),
        "stdin": "task" if setting.agent.task_on_stdin else "closed",
        "timeout_sec": setting.timeout,
        "network": setting.network,
        "limits": {
            "cpus": limits.cpus, "memory_mb": limits.memory_mb, "pids": limits.pids, "shm_mb": limits.shm_mb,
        },
        "env": dict(setting.env),
        "secret_env": sorted(setting.secrets),
        "credential": table.credential,
        "video_sha256": _hash(setting.video),
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }  # fmt: skip


@cache
def _hash(video: Path) -> str:
    return sha256(video)


def finished_state(plan: Plan, keep: bool) -> str:
    """State of a finished run in the plan's place, empty when there is none.

    Raises ``UserError`` when a finished run has another configuration (unless ``keep``) or when something
    that is no run of ours stands there.
    """
    final = plan.place.final
    record = read_record(final)
    state = state_of(record)
    if record is None and (has_foreign_content(plan.place) or (final / RUN_RECORD).exists()):
        raise UserError(
            "something stands in the run's place that has no readable run.json",
            where=final,
            next_step="move it away, or give --redo to replace it",
        )
    if record is None or state not in FINISHED:
        return ""
    known = record.get("config")
    changes = differences(known, plan.config) if isinstance(known, dict) else []
    if changes and not keep:
        raise UserError(
            f"the finished run has another configuration: {'; '.join(changes)}",
            where=final,
            next_step="restore the setting, or give --keep to leave such runs alone, or --redo to run again",
        )
    return state or ""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], place: str = "") -> list[str]:
    """What changed, as ``key: old -> new``, one level of tables unfolded."""
    changes = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            changes += differences(before, after, f"{place}{name}.")
        elif before != after:
            changes.append(f"{place}{name}: {_short(before)} -> {_short(after)}")
    return changes


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "\u2026"
