"""What one array task does on its node: the work of a slot, with the devices that SLURM gave it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.errors import UserError
from contract.record import write_json
from contract.workqueue import Queue
from harness.runtime.backends import get_backend
from harness.runtime.backends.base import Backend, Job, Outcome
from harness.runtime.batch import remove_orphans, say, stopping_on_signals
from harness.runtime.config import load_runtime
from harness.runtime.engines.inference import work_off
from harness.runtime.slots import Slot, visible
from harness.runtime.slotwork import Shared
from harness.runtime.stagejob import Order, time_limit
from harness.runtime.stagework import slot_work

_SIGNAL_S = 1.0
"""How much later than what it runs the task may notice that it is being cancelled."""
ENDS = ".end.json"
"""Files in the job's folder in which tasks say why nothing further should be tried."""


def work(payload: Mapping[str, Any]) -> None:
    """Work off the queue as one of the slots.

    payload : ``what`` (``infer`` or a stage), ``runtime`` (path), ``folder``, and the order.
    """
    name = task_name()
    try:
        with _stopping() as stop:
            fault, status = (_infer if payload["what"] == "infer" else _stage)(payload, name, stop)
    except UserError as error:
        fault, status = error.line(), 2
    if fault:
        say(fault)
        write_json(Path(payload["folder"]) / f"{name}{ENDS}", {"fault": fault, "status": status})


def task_name() -> str:
    """The task's name as SLURM lists it. Workers' names begin with it, up to the first dot."""
    job, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{job}_{index}" if job and index else os.environ["SLURM_JOB_ID"]


def _prefix(name: str) -> str:
    """Unique among starts: SLURM starts a task again under its old name when its node failed."""
    return f"{name}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set when the task is cancelled, and a while before its time is up: what it holds goes back then."""
    with stopping_on_signals() as stop:
        # In place of submitit's own handlers, which would ignore the one and requeue the task at the other.
        for number in (signal.SIGUSR2, signal.SIGCONT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, lambda *_: stop.set())
        yield stop


class Cancelled:
    """A backend whose jobs count as interrupted when they end badly while the task is being cancelled.

    SLURM signals every process of a task at once. What runs here may die of that before the task has told it
    to end, and that must not pass for a failure of its own.
    """

    def __init__(self, backend: Backend, stop: threading.Event) -> None:
        self._backend, self._stop = backend, stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        outcome: Outcome = self._backend.run(job, log, timeout, stop)
        if outcome.exit_code == 0 or outcome.interrupted or not self._stop.wait(_SIGNAL_S):
            return outcome
        return replace(outcome, interrupted=True, error="")


def _stage(payload: Mapping[str, Any], name: str, stop: threading.Event) -> tuple[str, int]:
    runtime, order = load_runtime(payload["runtime"]), Order.of(payload["order"])
    backend = Cancelled(get_backend(runtime.backend, runtime), stop)
    remove_orphans(backend)
    ends_at = time.monotonic() + time_limit(runtime, order.stage)
    terms = runtime.file.launcher
    shared = Shared(Queue(order.queue), backend, say, stop, ends_at, terms.stale_sec, patient=False)
    slot = Slot(0, visible(runtime.file.scorer.environment.gpus))
    slot_work(order, slot, 1, _prefix(name), runtime, shared).run()
    return shared.fault, shared.status


def _infer(payload: Mapping[str, Any], name: str, stop: threading.Event) -> tuple[str, int]:
    runtime = load_runtime(payload["runtime"])
    backend = Cancelled(get_backend(runtime.backend, runtime), stop)
    remove_orphans(backend)
    work_off(payload["order"], runtime, backend, _prefix(name), stop)
    return "", 0
