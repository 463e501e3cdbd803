"""One run from its lock to its place in the tree."""

from __future__ import annotations

import dataclasses
import shlex
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import one_line
from contract.names import AGENT_LOG, LOGS, SESSION, WORKSPACE
from contract.record import clear_unfinished
from contract.runs import RunKey
from harness.runtime import owner
from harness.runtime.agentjob import Setting
from harness.runtime.backends.base import Backend, Outcome
from harness.runtime.delivery import collect, drop_special_files, is_delivered
from harness.runtime.planning import Plan
from harness.runtime.provenance import circumstances
from harness.runtime.rundir import locked, new_run_id, publish, recover
from harness.runtime.runrecord import (
    COLLECTING,
    DONE,
    ENVIRONMENT_ERROR,
    FAILED,
    FINISHED,
    INTERRUPTED,
    RUNNING,
    RunRecord,
    now,
    read_record,
    state_of,
)
from harness.runtime.scrub import scrub_tree

TIMEOUT_EXIT = 124
BUSY, NOT_STARTED = "busy", "not started"
"""States of a result that no record holds: another launcher has the run; the batch was stopped before it."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What became of one run in this launch. ``skipped``: it was finished before."""

    key: RunKey
    state: str
    note: str = ""
    skipped: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.state == DONE


def execute(plan: Plan, backend: Backend, stop: threading.Event, say: Say, *, redo: bool = False) -> Result:
    """Carry out one run. Never raises for what goes wrong with it: the result and its record say so."""
    if stop.is_set():
        return Result(plan.key, NOT_STARTED)
    try:
        with locked(plan.place) as mine:
            if not mine:
                return Result(plan.key, BUSY, "another launcher is at it")
            resume_collecting(plan, say)
            for note in recover(plan.place):
                say(f"{plan.key.label}: {note}")
            record = read_record(plan.place.final)
            state = state_of(record)
            if record is not None and state in FINISHED and not redo:
                return Result(plan.key, str(state), "finished before", skipped=True, record=record)
            return _attempt(plan, backend, stop, say)
    except Exception as error:
        # The one place that catches everything: a fault in one run must not cost the others.
        return Result(plan.key, ENVIRONMENT_ERROR, one_line(f"{type(error).__name__}: {error}"))


def _attempt(plan: Plan, backend: Backend, stop: threading.Event, say: Say) -> Result:
    run_id = new_run_id()
    staging = plan.place.staging(run_id)
    run = staging / "run"
    (run / LOGS).mkdir(parents=True)
    (run / SESSION).mkdir()
    record = RunRecord(run, first_fields(plan, backend, staging, run_id))
    record.enter(RUNNING)
    say(f"infer {plan.key.label} ({staging})")
    outcome = _run(plan.setting, backend, staging, run_id, stop)
    record.enter(COLLECTING, **outcome_fields(outcome))
    if outcome.gone:
        _collect(plan.setting, staging, record)
    record.enter(classify(record.fields), ended_at=now())
    left = publish(plan.place, staging, remove=outcome.gone)
    for warning in [*record.fields["warnings"], *left]:
        say(f"{plan.key.label}: warning: {one_line(warning)}")
    return Result(
        plan.key, record.fields["state"], one_line(reason(record.fields)), record=dict(record.fields)
    )


def resume_collecting(plan: Plan, say: Say) -> None:
    """Finish what a launcher had begun that was killed after its agent had ended; the caller holds the
    lock.

    The hours of the agent are not to be spent twice. Whatever goes wrong leaves the staging directory to
    ``recover``.
    """
    for staging in plan.place.stagings():
        fields = read_record(staging / "run")
        if state_of(fields) != COLLECTING or fields is None or not fields.get("gone"):
            continue
        clear_unfinished(staging / "run")
        record = RunRecord.load(staging / "run")
        _collect(plan.setting, staging, record)
        record.enter(classify(record.fields), ended_at=now())
        say(f"{plan.key.label}: collected what a killed launcher had left")


def first_fields(plan: Plan, backend: Backend, staging: Path, run_id: str) -> dict[str, Any]:
    """What ``run.json`` holds from the first second."""
    key = plan.key
    shown = plan.setting.job(staging, run_id, shown=True)
    return {
        "case": key.case,
        "agent": key.agent,
        "model": key.model,
        "effort": key.effort,
        "trial": key.trial,
        "backend": plan.setting.backend,
        "session": SESSION,
        "run_id": run_id,
        "config": dict(plan.config),
        "engine": plan.setting.engine,
        "provenance": circumstances(),
        "owner": owner.this_process(),
        "started_at": now(),
        "timeout_sec": plan.setting.timeout,
        "agent_command": shlex.join(backend.describe(shown)),
        "delivered": False,
    }


def _run(setting: Setting, backend: Backend, staging: Path, run_id: str, stop: threading.Event) -> Outcome:
    """Prepare the scratch directories and run the agent; what fails before it starts is an error of the
    environment.
    """
    try:
        setting.prepare(staging)
        job = setting.job(staging, run_id)
        return backend.run(job, staging / "run" / LOGS / AGENT_LOG, float(setting.timeout), stop)
    except Exception as error:
        return Outcome(None, 0.0, error=f"{type(error).__name__}: {error}")


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """How the agent ended, for the record."""
    fields = dataclasses.asdict(outcome)
    return {
        "agent_exit": TIMEOUT_EXIT if outcome.timed_out else outcome.exit_code,
        "agent_seconds": round(outcome.seconds, 1),
        "container_exit": outcome.exit_code,
        **{
            name: fields[name]
            for name in ("timed_out", "interrupted", "oom_killed", "killed_after_sec", "gone")
        },
        "error": outcome.error or None,
        "warnings": list(outcome.warnings),
    }


def _collect(setting: Setting, staging: Path, record: RunRecord) -> None:
    """Take the delivery and clean session and logs. Returns warnings; the delivery itself is never lost to
    one.
    """
    run = staging / "run"
    delivery = collect(staging / "workspace", run / WORKSPACE, setting.bounds)
    record.fields |= delivery.record() | {"delivered": is_delivered(run / WORKSPACE)}
    warnings = [f"the delivery was cut: {delivery.cut}"] if delivery.cut else []
    try:
        dropped = drop_special_files(run / SESSION)
        if dropped:
            record.fields["session_dropped"] = dropped
        scrubbed = scrub_tree(run, setting.known_secrets())
        if scrubbed:
            record.fields["scrubbed"] = scrubbed
            warnings.append(f"secret values were masked in {len(scrubbed)} file(s)")
    except OSError as error:
        warnings.append(f"session and logs were not cleaned: {error}")
    record.fields["warnings"] = [*record.fields.get("warnings", []), *warnings]


def classify(fields: Mapping[str, Any]) -> str:
    """The final state of a record. What the engine or the machine did wrong is never the agent's failure."""
    if fields["interrupted"]:
        return INTERRUPTED
    if fields["error"] or fields["oom_killed"] or not fields["gone"] or fields["agent_exit"] is None:
        return ENVIRONMENT_ERROR
    return DONE if fields["agent_exit"] == 0 and fields["delivered"] else FAILED


def reason(fields: Mapping[str, Any]) -> str:
    """One clause for the summary."""
    if fields["error"]:
        return str(fields["error"])
    if not fields["gone"]:
        return "processes of the agent would not end"
    if fields["oom_killed"]:
        return "out of memory"
    if fields["interrupted"]:
        return "stopped by the operator"
    if fields["timed_out"]:
        return f"timed out after {fields['timeout_sec']} s"
    if fields["agent_exit"] != 0:
        return f"the agent ended with status {fields['agent_exit']}"
    return "" if fields["delivered"] else "no world/ and solution/build.sh delivered"
