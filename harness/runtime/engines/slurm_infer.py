"""A jobs file worked off by SLURM tasks: the side of the machine that submits them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.errors import file_faults
from contract.workqueue import OK, Queue
from harness.runtime.config import Runtime
from harness.runtime.engines.cluster import check_programs
from harness.runtime.engines.inference import Terms as SlurmTerms
from harness.runtime.engines.inference import results_of, rows
from harness.runtime.invocation import Invocation, new_directory
from harness.runtime.planning import Plan
from harness.runtime.running import Result
from harness.runtime.runrecord import now
from harness.runtime.status import refuse_second

__all__ = ["SlurmTerms", "infer_on_slurm"]


def infer_on_slurm(
    plans: Sequence[Plan],
    jobs: Path,
    runtime: Runtime,
    terms: SlurmTerms,
    stop: threading.Event,
    say: Callable[[str], None],
) -> list[Result]:
    """Carry out the runs that are to be carried out, and return what became of all. Raises ``UserError``."""
    from harness.runtime.engines.slurm import run_slurm

    check_programs(runtime.path)
    refuse_second(runtime, "infer")
    keys = [plan.key for plan in plans]
    wanted = [number for number, plan in enumerate(plans) if not plan.skip]
    if not wanted:
        return results_of(keys, runtime.runs, {})
    record = Invocation(
        new_directory(runtime.runs), "infer", say, backend=runtime.backend, engine="slurm", entries=len(keys)
    )
    queue = record.directory / "queue" / "infer"
    with file_faults("make room, or change runs_root in the runtime file"):
        record.begin()
        queue.parent.mkdir()
        Queue.create(queue, rows([keys[number] for number in wanted]))
    stage = record.stage(stage="infer", items=len(wanted))
    order = {"queue": str(queue), "jobs": str(jobs), "terms": dataclasses.asdict(terms)}
    payload = {"what": "infer", "runtime": str(runtime.path), "order": order}
    names = [str(keys[number].path) for number in wanted]
    end = run_slurm(payload, queue, names, runtime, record, stop, say)
    stage |= {"ended_at": now(), "ended": len(end.outcomes), "fault": end.fault or None}
    why = {}
    for place, number in enumerate(wanted):
        outcome = end.outcomes.get(place, {})
        why[number] = end.why_not(place) or str(outcome.get("note") if outcome.get("state") != OK else "")
    results = results_of(keys, runtime.runs, why)
    record.end(130 if stop.is_set() else 0 if all(result.succeeded for result in results) else 1)
    return results
