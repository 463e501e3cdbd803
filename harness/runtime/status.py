"""How far launches are, and ending them from elsewhere: from what lies in their directories, and SLURM."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError
from contract.record import read_json, write_json
from contract.runs import RunKey
from contract.workqueue import FAILED, LOST, OK, Queue
from harness.runtime import attempts, owner
from harness.runtime.config import Runtime
from harness.runtime.engines import cluster
from harness.runtime.invocation import RECORD, invocations, is_going_on
from harness.runtime.rundir import Place, unfinished
from harness.runtime.runrecord import QUEUED, now, read_record, state_of

Say = Callable[[str], None]
_ENDING_S = 180.0


def show_launches(runtime: Runtime, program: str, say: Say) -> int:
    """Tell of the launches that have not ended, else of the last one."""
    known = invocations(runtime.runs, program)
    shown = [(path, record) for path, record in known if "ended_at" not in record] or known[-1:]
    for path, record in shown:
        say(f"{path.name}: {_launch(record)}")
        for stage in record.get("stages", []):
            for line in _stage(path, stage):
                say(f"  {line}")
    if not shown:
        say(f"no launch of {program}.py is on record below {runtime.runs}")
    return EXIT_OK


def _launch(record: Mapping[str, Any]) -> str:
    if "ended_at" in record:
        return f"ended {record['ended_at']} with status {record.get('exit')}"
    holder = record.get("owner") or {}
    where = f"launcher {holder.get('pid')} on {holder.get('host')}"
    if not is_going_on(record):
        return f"{where} is gone; the same command continues"
    return f"{where} is at it since {record.get('started_at')}"


def _stage(path: Path, stage: Mapping[str, Any]) -> Iterable[str]:
    """Lines about one stage: what has ended, who holds what, which tasks there are."""
    name = str(stage.get("stage"))
    queue = Queue(path / "queue" / name)
    states = [str(queue.outcome(outcome).get("state")) for outcome in queue.ended().values()]
    taken = queue.taken()
    counts = {
        "ok": states.count(OK), "failed": states.count(FAILED), "given up": states.count(LOST),
        "in progress": sum(map(len, taken.values())), "waiting": len(queue.ready()),
    }  # fmt: skip
    shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing left"
    yield f"{name}: {stage.get('items')} item(s): {shown}"
    beats, moment = queue.workers(), time.time_ns()
    for worker, items in taken.items():
        age = max(0, moment - beats.get(worker, 0)) // 10**9
        yield f"{worker} holds {len(items)}, last sign of life {age} s ago"
    for task in _tasks(stage):
        yield f"task {task.name} {task.state}" + (f" on {task.node}" if task.node else "")


def _tasks(stage: Mapping[str, Any]) -> list[cluster.Task]:
    if not stage.get("slurm") or "ended_at" in stage:
        return []
    try:
        return cluster.active(stage["slurm"])
    except RuntimeError as error:
        return [cluster.Task("?", f"unknown ({error})")]


def refuse_second(runtime: Runtime, program: str) -> None:
    """Raise ``UserError`` while an earlier launch has tasks in SLURM: they would work on the same."""
    for path, record in invocations(runtime.runs, program):
        if "ended_at" in record:
            continue
        numbers = [number for stage in record.get("stages", []) for number in stage.get("slurm", [])]
        with suppress(RuntimeError):
            if numbers and cluster.active(numbers):
                raise UserError(
                    f"launch {path.name} still has tasks in SLURM (jobs {', '.join(numbers)})",
                    where=runtime.path,
                    next_step=f"{program}.py --status shows them, --cancel ends them",
                )


def cancel(runtime: Runtime, program: str, say: Say) -> int:
    """End the launches that have not ended, their tasks and what those run; wait until all is gone."""
    status, count = EXIT_OK, 0
    for path, record in invocations(runtime.runs, program):
        if "ended_at" in record:
            continue
        count += 1
        if is_going_on(record) and _told_to_end(path, record):
            say(f"{path.name}: its launcher has ended it")
            continue
        numbers = [number for stage in record.get("stages", []) for number in stage.get("slurm", [])]
        for stage in record.get("stages", []):
            with suppress(OSError):
                Queue(path / "queue" / str(stage.get("stage"))).close()
        left = cluster.cancel(numbers)
        if left:
            say(f"{path.name}: still there: {', '.join(task.name for task in left)}")
            status = EXIT_ITEM_FAILED
            continue
        write_json(path / RECORD, {**record, "ended_at": now(), "exit": 130})
        say(f"{path.name}: cancelled")
    if not count:
        say("nothing is going on")
    return status


def _told_to_end(path: Path, record: Mapping[str, Any]) -> bool:
    """Ask the launcher on this machine to end as at Ctrl-C; whether it has."""
    holder = record["owner"]
    if holder.get("host") != socket.gethostname():
        return False
    with suppress(OSError):
        os.kill(int(holder["pid"]), signal.SIGINT)
    until = time.monotonic() + _ENDING_S
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            if "ended_at" in read_json(path / RECORD):
                return True
        if not owner.alive(holder):
            return False
        time.sleep(0.3)
    return False


def show_runs(keys: Sequence[RunKey], runs: Path, console: Console) -> None:
    """A table of the state of each run of a jobs file."""
    table = Table(title=f"{len(keys)} run(s)", title_justify="left")
    for heading in ("run", "state", "attempt", "since", "note"):
        table.add_column(heading, overflow="fold")
    for key in keys:
        table.add_row(*(Text(part) for part in _row(key, runs)))
    console.print(table)


def _row(key: RunKey, runs: Path) -> tuple[str, str, str, str, str]:
    place = Place(runs, key)
    begun = unfinished(place)[-1:]
    record = read_record(begun[0] / "run" if begun else place.final)
    if record is None:
        return str(key.path), "not begun", "", "", ""
    state, note = str(state_of(record)), str(record.get("failure_note") or "")
    holder = record.get("owner")
    if begun and isinstance(holder, dict):
        where = f"launcher {holder.get('pid')} on {holder.get('host')}"
        note = where if owner.alive(holder) else f"{where} is gone; the same command continues"
        if state == QUEUED:
            note = f"waits to be tried again: {record.get('failure_note') or ''}"
    history = record.get("history") or [{}]
    return str(key.path), state, str(attempts.number(record)), str(history[-1].get("at", "")), note
