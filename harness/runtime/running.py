"""One run from its lock to its place in the tree, one attempt at a time."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import UserError, one_line
from contract.names import AGENT_LOG, LOGS, SESSION
from contract.record import clear_unfinished
from contract.runs import RunKey
from harness.runtime import attempts, failures, owner
from harness.runtime.agentjob import Setting
from harness.runtime.backends.base import Backend, Outcome
from harness.runtime.ending import end_killed, finish, outcome_fields
from harness.runtime.going import Going
from harness.runtime.logins import check_login
from harness.runtime.planning import Plan
from harness.runtime.provenance import circumstances
from harness.runtime.rundir import locked, new_run_id, publish, recover, take_back, unfinished
from harness.runtime.runrecord import (
    COLLECTING,
    DONE,
    ENVIRONMENT_ERROR,
    FINISHED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    RunRecord,
    now,
    read_record,
    state_of,
)
from harness.runtime.scrub import patterns

BUSY, NOT_STARTED = "busy", "not started"
"""States of a result that no record holds: another launcher has the run; the batch was stopped before it."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What became of one run in this launch. ``skipped``: it was finished before. ``again``: it waits to be
    tried again. ``login_refused``: no further run with its login should be started.
    """

    key: RunKey
    state: str
    note: str = ""
    skipped: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    again: bool = False
    login_refused: bool = False

    @property
    def succeeded(self) -> bool:
        return self.state == DONE


@dataclass(frozen=True)
class Terms:
    """How a run is to be treated. ``redo``: although it is finished. ``queued_at``: since when it waits.

    tries_left : attempts after this one, for failures of the infrastructure. take_over : runs of launchers on
    other machines, which cannot be looked at from here, count as abandoned.
    """

    redo: bool = False
    tries_left: int = 0
    queued_at: str = field(default_factory=now)
    take_over: bool = False


def execute(plan: Plan, backend: Backend, going: Going, say: Say, terms: Terms) -> Result:
    """Carry out one attempt at a run. Never raises for what goes wrong with it: the result and its record
    say so.
    """
    if going.stop.is_set():
        return Result(plan.key, NOT_STARTED)
    try:
        with locked(plan.place) as mine:
            if not mine:
                return Result(plan.key, BUSY, "another launcher is at it")
            holder = held_elsewhere(plan, terms.take_over)
            if holder:
                return Result(plan.key, BUSY, holder)
            finished = _take_stock(plan, backend, say, terms.redo)
            if finished is not None:
                return finished
            return _attempt(plan, backend, going, say, terms)
    except Exception as error:
        # The one place that catches everything: a fault in one run must not cost the others.
        return Result(plan.key, ENVIRONMENT_ERROR, one_line(f"{type(error).__name__}: {error}"))


def conclude(plan: Plan, why: str) -> Result:
    """Put a run in its place that waited to be tried again and will not be; ``why`` is added to its note."""
    try:
        with locked(plan.place) as mine:
            if not mine:
                return Result(plan.key, BUSY, "another launcher is at it")
            for staging in unfinished(plan.place)[-1:]:
                record = RunRecord.load(staging / "run")
                if record.fields.get("state") == QUEUED and attempts.has_ended(record.fields):
                    record.fields.pop("retry_at", None)
                    record.enter(failures.final_state(str(record.fields.get("failure") or "interrupted")))
                    publish(plan.place, staging)
                    note = "; ".join(filter(None, [str(record.fields.get("failure_note") or ""), why]))
                    return Result(plan.key, record.fields["state"], one_line(note), record=record.fields)
    except Exception as error:
        return Result(plan.key, ENVIRONMENT_ERROR, one_line(f"{type(error).__name__}: {error}"))
    return Result(plan.key, NOT_STARTED, why)


def held_elsewhere(plan: Plan, take_over: bool) -> str:
    """Who else may be at a run although its lock is free: on some network file systems a lock of another
    machine is not seen. Empty when nobody is.
    """
    for staging in unfinished(plan.place):
        record = read_record(staging / "run") or {}
        holder = record.get("owner")
        if record.get("state") not in (RUNNING, COLLECTING, QUEUED) or not isinstance(holder, dict):
            continue
        host = holder.get("host")
        if host in (None, socket.gethostname()):
            if owner.alive(holder) and holder.get("pid") != owner.this_process()["pid"]:
                return f"launcher {holder.get('pid')} is at it"
        elif not take_over:
            return f"a launcher on {host} is at it, or was: if it is gone, give --take-over"
    return ""


def _take_stock(plan: Plan, backend: Backend, say: Say, redo: bool) -> Result | None:
    """Bring into order what earlier launchers left; the caller holds the lock. A result when nothing is to
    be run.
    """
    _resume_collecting(plan, say)
    begun = unfinished(plan.place)[-1:]
    for staging in begun:
        _close_killed(plan, backend, staging, say)
    for note in recover(plan.place, keep=begun):
        say(f"{plan.key.label}: {note}")
    record = read_record(plan.place.final)
    state = state_of(record)
    if record is None or state not in FINISHED or redo:
        return None
    for staging in begun:
        left = RunRecord.load(staging / "run")
        left.enter(INTERRUPTED)
        publish(plan.place, staging)
    return Result(plan.key, str(state), "finished before", skipped=True, record=record)


def _resume_collecting(plan: Plan, say: Say) -> None:
    """Finish what a launcher had begun that was killed after its agent had ended: the agent's hours are not
    to be spent twice.
    """
    for staging in plan.place.stagings():
        fields = read_record(staging / "run")
        if state_of(fields) != COLLECTING or fields is None or not fields.get("gone"):
            continue
        clear_unfinished(staging / "run")
        record = RunRecord.load(staging / "run")
        kind = finish(plan.setting, staging, record)
        record.enter(failures.final_state(kind))
        say(f"{plan.key.label}: collected what a killed launcher had left")


def _close_killed(plan: Plan, backend: Backend, staging: Path, say: Say) -> None:
    """End what is left of an attempt whose launcher was killed, and put it on record."""
    clear_unfinished(staging / "run")
    record = RunRecord.load(staging / "run")
    if attempts.has_ended(record.fields) or record.fields.get("state") not in (RUNNING, COLLECTING):
        return
    for orphan in backend.orphans():
        if orphan.dead_owner and orphan.run == str(plan.key.path):
            backend.remove(orphan)
    end_killed(plan.setting, staging, record)
    record.enter(QUEUED)
    say(f"{plan.key.label}: attempt {attempts.number(record.fields)} was cut off with its launcher")


def _begin(plan: Plan, backend: Backend, terms: Terms) -> tuple[Path, RunRecord]:
    """A staging directory for the next attempt: the one that is there, cleared, or a new one."""
    if not unfinished(plan.place):
        take_back(plan.place)
    begun = unfinished(plan.place)[-1:]
    if begun:
        staging = begun[0]
        record = RunRecord.load(staging / "run")
        if record.fields.get("state") != QUEUED and not attempts.has_ended(record.fields):
            # Of a launcher that kept no list of attempts.
            attempts.add_account(record, plan.setting.reader, staging / "run")
            attempts.close(record)
        attempts.set_aside(staging, record)
        if record.fields.get("state") != QUEUED:
            record.passed(QUEUED, terms.queued_at)
    else:
        run_id = new_run_id()
        staging = plan.place.staging(run_id)
        (staging / "run").mkdir(parents=True)
        record = RunRecord(staging / "run", {"run_id": run_id, "attempt": 1, "attempts": []})
        record.passed(QUEUED, terms.queued_at)
    for name in (LOGS, SESSION):
        (staging / "run" / name).mkdir(exist_ok=True)
    return staging, record


def _attempt(plan: Plan, backend: Backend, going: Going, say: Say, terms: Terms) -> Result:
    staging, record = _begin(plan, backend, terms)
    run_id, number = str(record.fields["run_id"]), attempts.number(record.fields)
    record.enter(RUNNING, **first_fields(plan, backend, staging, run_id, number))
    going.forms = patterns(plan.setting.known_secrets())
    going.attempt, going.earlier = number, attempts.spent(record.fields)
    going.staging, going.phase = staging, "running"
    say(f"infer {plan.key.label} ({staging})" + (f", attempt {number}" if number > 1 else ""))
    outcome, refused = _run(plan.setting, backend, staging, run_id, number, going)
    going.phase = COLLECTING
    stopped = {"stopped_by": going.reason, "stopped_for": going.detail} if going.reason else {}
    if refused:
        stopped = {"stopped_by": "auth_error", "said": refused}
    elif not outcome.interrupted:
        stopped = {}
    record.enter(COLLECTING, **outcome_fields(outcome), **stopped)
    kind = finish(plan.setting, staging, record)
    again = bool(kind) and failures.TABLE[kind].retry and terms.tries_left > 0 and not going.stop.is_set()
    if again:
        record.enter(QUEUED)
        left = attempts.clear_scratch(staging)
    else:
        record.enter(failures.final_state(kind))
        if record.fields["state"] in FINISHED:
            attempts.drop_old_deliveries(staging / "run")
        left = publish(plan.place, staging, remove=outcome.gone)
    for warning in [*record.fields["warnings"], *left]:
        say(f"{plan.key.label}: warning: {one_line(warning)}")
    return Result(
        plan.key,
        record.fields["state"],
        one_line(str(record.fields["failure_note"])),
        record=dict(record.fields),
        again=again,
        login_refused=bool(kind) and failures.TABLE[kind].stops,
    )


def first_fields(plan: Plan, backend: Backend, staging: Path, run_id: str, attempt: int) -> dict[str, Any]:
    """What ``run.json`` holds from the first second of an attempt."""
    key = plan.key
    shown = plan.setting.job(staging, run_id, attempt, shown=True)
    return {
        "case": key.case,
        "agent": key.agent,
        "model": key.model,
        "effort": key.effort,
        "trial": key.trial,
        "backend": plan.setting.backend,
        "transcript": plan.setting.reader,
        "session": SESSION,
        "config": dict(plan.config),
        "engine": plan.setting.engine,
        "provenance": circumstances(),
        "owner": owner.this_process(),
        "gpus": None if plan.setting.gpus is None else list(plan.setting.gpus),
        "started_at": now(),
        "timeout_sec": plan.setting.timeout,
        "agent_command": shlex.join(backend.describe(shown)),
        "delivered": False,
    }


def _run(
    setting: Setting, backend: Backend, staging: Path, run_id: str, attempt: int, going: Going
) -> tuple[Outcome, str]:
    """Prepare the scratch directories and run the agent; what fails before it starts is an error of the
    environment. The text says why the login cannot be used, empty when it can.
    """
    if setting.credential:
        try:
            # Hours may have passed since all logins were checked.
            check_login(setting.credential.source, setting.key.agent, setting.timeout)
        except UserError as error:
            return Outcome(None, 0.0), error.line()
    try:
        setting.prepare(staging)
        job = setting.job(staging, run_id, attempt)
        log = staging / "run" / LOGS / AGENT_LOG
        return backend.run(job, log, float(setting.timeout), going.stop), ""
    except Exception as error:
        return Outcome(None, 0.0, error=f"{type(error).__name__}: {error}"), ""
