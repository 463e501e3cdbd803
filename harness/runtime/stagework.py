"""A stage on this machine: its slots side by side, and what became of each item."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import one_line
from contract.workqueue import LOST, OK, Queue
from harness.runtime.backends.base import Backend
from harness.runtime.config import Runtime
from harness.runtime.logtail import streamed
from harness.runtime.slots import Slot
from harness.runtime.slotwork import Shared, SlotWork
from harness.runtime.stagejob import Order, stage_job, time_limit

Say = Callable[[str], None]
_TICK_S = 0.3


@dataclass(frozen=True)
class StageEnd:
    """How a stage ended. outcomes : of the items that have one. fault : why others have none; empty when all
    have. status : exit status that goes with the fault.
    """

    outcomes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    fault: str = ""
    status: int = 1

    def why_not(self, number: int) -> str:
        """Why an item is not done; empty when it is, whatever is wrong with the result."""
        outcome = self.outcomes.get(number)
        if outcome is None:
            return self.fault or "nobody has done it"
        return str(outcome.get("note")) if outcome.get("state") == LOST else ""


@dataclass
class Progress:
    """Tells of each item that has ended, once."""

    queue: Queue
    names: Sequence[str]
    stage: str
    say: Say
    outcomes: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def tell(self) -> None:
        ended = self.queue.ended()
        for number in sorted(set(ended) - set(self.outcomes)):
            outcome = self.queue.outcome(ended[number])
            self.outcomes[number] = outcome
            state = str(outcome.get("state"))
            note = "" if state == OK else f": {outcome.get('note')}"
            done = f"{len(self.outcomes)}/{len(self.names)}"
            self.say(one_line(f"{self.stage} {done} {self.names[number]}: {state}{note}"))


def run_local(
    order: Order,
    names: Sequence[str],
    runtime: Runtime,
    backend: Backend,
    slots: Sequence[Slot],
    stop: threading.Event,
    say: Say,
) -> StageEnd:
    """Carry out a stage whose queue is there, in ``slots`` of this machine, and wait for its end."""
    used = list(slots)[: max(1, order.items)]
    queue = Queue(order.queue)
    ends_at = time.monotonic() + time_limit(runtime, order.stage)
    shared = Shared(queue, backend, say, stop, ends_at, runtime.file.launcher.stale_sec)
    works = [slot_work(order, slot, len(used), f"slot{slot.number}", runtime, shared) for slot in used]
    progress = Progress(queue, names, order.stage, say)
    threads = [threading.Thread(target=work.run, name=work.prefix) for work in works]
    with ExitStack() as stack:
        for slot, work in zip(used, works, strict=True):
            prefix = f"[gpu {slot.label}, slot {slot.number}] " if len(used) > 1 else ""
            stack.enter_context(streamed(work.log, sys.stdout, prefix))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            progress.tell()
            next(thread for thread in threads if thread.is_alive() or thread is threads[-1]).join(_TICK_S)
    progress.tell()
    return StageEnd(progress.outcomes, "stopped" if stop.is_set() else shared.fault, shared.status)


def slot_work(
    order: Order, slot: Slot, slots: int, prefix: str, runtime: Runtime, shared: Shared
) -> SlotWork:
    """The work of one of so many slots of this machine."""
    return SlotWork(
        shared,
        lambda worker: stage_job(runtime, order, worker, slot, slots),
        log_of(order, prefix, alone=slots == 1 and prefix == "slot0"),
        prefix,
    )


def log_of(order: Order, prefix: str, *, alone: bool) -> Path:
    """Where the output of a slot's containers goes."""
    return order.directory / (f"{order.stage}.log" if alone else f"{order.stage}-{prefix}.log")
