"""Runs that tasks on several machines take from a queue; the ordinary launcher carries each of them out."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import UserError, file_faults
from contract.runs import RunKey
from contract.workqueue import FAILED, OK, Queue, Worker
from harness.runtime import owner, prices
from harness.runtime.agentconfig import Budget
from harness.runtime.attempts import Spent, spent
from harness.runtime.backends.base import Backend
from harness.runtime.batch import say
from harness.runtime.config import Runtime
from harness.runtime.jobs import JobList
from harness.runtime.planning import plan_all
from harness.runtime.rundir import Place, unfinished
from harness.runtime.running import BUSY, NOT_STARTED, Result
from harness.runtime.runrecord import INTERRUPTED, read_record, state_of
from harness.runtime.scheduler import Batch, Options


@dataclass(frozen=True)
class Terms:
    """How runs are to be treated, as the flags of ``infer.py`` say."""

    redo: bool = False
    keep: bool = False
    take_over: bool = False


def rows(keys: Sequence[RunKey]) -> list[dict[str, Any]]:
    """Items of a queue, in the order of the jobs file."""
    return [dataclasses.asdict(key) for key in keys]


def work_off(
    order: Mapping[str, Any], runtime: Runtime, backend: Backend, name: str, stop: threading.Event
) -> None:
    """Take runs from the queue and carry them out, one at a time, until there are no more.

    order : ``queue`` and ``jobs`` (paths), ``terms``. name : of this worker.
    """
    queue = Queue(Path(order["queue"]))
    keys = [RunKey(**row) for row in queue.rows()]
    prices.use(runtime.price_file)
    with Worker(queue, name, dict(owner.this_process())) as worker:
        while not stop.is_set():
            item = worker.take()
            if item is None:
                return
            # Of a run that came back the launcher is dead, although it may have been on another machine.
            terms = Terms(**order["terms"])
            terms = dataclasses.replace(terms, take_over=terms.take_over or item.returns > 0)
            result = _carry_out(keys[item.number], keys, Path(order["jobs"]), runtime, backend, terms, stop)
            if stop.is_set() and result.state in (INTERRUPTED, NOT_STARTED):
                return
            note = f"{result.state}{f': {result.note}' if result.note else ''}"
            worker.finish(item, {"state": OK if result.succeeded else FAILED, "note": note})


def _carry_out(
    key: RunKey, keys: Sequence[RunKey], jobs: Path, runtime: Runtime, backend: Backend, terms: Terms,
    stop: threading.Event,
) -> Result:  # fmt: skip
    """One run, with whatever of the batch's budget is left."""
    budget, over = remaining(runtime.file.budget, [other for other in keys if other != key], runtime.runs)
    if over:
        return Result(key, NOT_STARTED, over)
    try:
        with file_faults():
            plans = plan_all(JobList(jobs, (key,)), runtime, backend, redo=terms.redo, keep=terms.keep)
    except UserError as error:
        return Result(key, NOT_STARTED, error.line())
    section = runtime.file.agent
    options = Options(
        slots=[plans[0].setting.gpus],
        retries=section.retries,
        retry_wait=section.retry_wait_sec,
        floor_gb=section.min_free_gb,
        places=(runtime.runs, *getattr(backend, "storage", tuple)()),
        budget=budget,
        redo=terms.redo,
        take_over=terms.take_over,
    )
    (result,) = Batch(plans, backend, options, stop, say).run()
    return result


def remaining(budget: Budget, others: Sequence[RunKey], runs: Path) -> tuple[Budget, str]:
    """The budget without what the other runs of the batch have used so far, and why no run may start."""
    if budget.max_usd is None and budget.max_tokens is None:
        return budget, ""
    used = sum((spent_by(key, runs) for key in others), Spent())
    if budget.max_tokens is not None and used.tokens >= budget.max_tokens:
        return budget, f"the budget is used up: {used.tokens} tokens used"
    if budget.max_usd is not None and used.usd >= budget.max_usd:
        return budget, f"the budget is used up: {used.usd:.2f} dollars spent"
    left = {
        "max_usd": None if budget.max_usd is None else budget.max_usd - used.usd,
        "max_tokens": None if budget.max_tokens is None else budget.max_tokens - used.tokens,
    }
    return budget.model_copy(update=left), ""


def spent_by(key: RunKey, runs: Path) -> Spent:
    """What a run has used in all its ended attempts, wherever it stands."""
    place = Place(runs, key)
    found = [spent(read_record(path / "run") or {}) for path in unfinished(place)]
    return sum(found, spent(read_record(place.final) or {}))


def results_of(keys: Sequence[RunKey], runs: Path, why: Mapping[int, str]) -> list[Result]:
    """What became of the runs, from their records. ``why`` : of those that nobody carried out to an end."""
    results = []
    for number, key in enumerate(keys):
        record = read_record(Place(runs, key).final)
        state, note = state_of(record), why.get(number, "")
        if record is None or state is None:
            state = BUSY if note.startswith(BUSY) else NOT_STARTED
        else:
            note = str(record.get("failure_note") or "") or note
        results.append(Result(key, state, note, record=record or {}))
    return results
