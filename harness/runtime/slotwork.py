"""What a slot does: one container after the other, as long as the queue has work that nobody else ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contract.errors import EXIT_USAGE
from contract.workqueue import Queue, Watch
from harness.runtime.backends.base import Backend, Job, Outcome

Say = Callable[[str], None]
_TICK_S = 0.5
_MOST_IN_VAIN = 3
"""Containers in a row that end without having taken anything: then it is not the work that is wrong."""


@dataclass
class Shared:
    """What the slots of a process share.

    ends_at : ``time.monotonic()`` when the stage is over. mine : workers that run here, whose end is seen.
    patient : a slot waits for what others hold, as it may come back; else it ends when nothing is ready.
    fault : why nothing further is started, empty while all is well; status : exit status that goes with it.
    """

    queue: Queue
    backend: Backend
    say: Say
    stop: threading.Event
    ends_at: float
    stale: float
    patient: bool = True
    mine: set[str] = field(default_factory=set)
    fault: str = ""
    status: int = 1

    def over(self, fault: str, status: int = 1) -> None:
        """Start nothing further; the first reason counts."""
        if not self.fault:
            self.fault, self.status = fault, status


@dataclass
class SlotWork:
    """The work of one slot.

    job : makes the container's job from its worker's name. prefix : of workers' names, unique in the queue.
    """

    shared: Shared
    job: Callable[[str], Job]
    log: Path
    prefix: str

    def run(self) -> None:
        """Work until every item has ended, or nothing further may be started."""
        queue, watch = self.shared.queue, Watch(self.shared.queue, self.shared.stale)
        number = in_vain = 0
        while not (self.shared.stop.is_set() or self.shared.fault or queue.closed):
            for worker in watch.dead():
                if worker not in self.shared.mine:
                    back = queue.give_back(worker, "no sign of life")
                    self.shared.say(f"{worker} shows no sign of life: {back} item(s) go back to the queue")
            if queue.ready():
                number += 1
                in_vain = 0 if self.container(f"{self.prefix}.{number}") else in_vain + 1
                if in_vain >= _MOST_IN_VAIN:
                    self.shared.over(f"{in_vain} containers in a row ended before they took anything")
            elif self.shared.patient and queue.taken():
                self.shared.stop.wait(_TICK_S)
            else:
                return

    def container(self, worker: str) -> bool:
        """Run one container to its end and put its work in order; whether it got as far as taking any."""
        shared = self.shared
        left = shared.ends_at - time.monotonic()
        if left <= 0:
            shared.over("it ran out of time; run the same command again to continue")
            return True
        shared.mine.add(worker)
        try:
            outcome = shared.backend.run(self.job(worker), self.log, left, shared.stop)
        except Exception as error:  # one slot's fault must not cost the others
            outcome = Outcome(None, 0.0, error=f"{type(error).__name__}: {error}")
        why = how_it_ended(outcome)
        back = 0
        if outcome.gone:
            counts = not (outcome.interrupted or shared.stop.is_set())
            back = shared.queue.give_back(worker, why, counts=counts)
        else:
            shared.mine.discard(worker)  # it may still be at work: its heartbeat tells
        took = back > 0 or any(name.endswith(f"~{worker}") for name in shared.queue.ended().values())
        self.conclude(outcome, why, took, back)
        return took or outcome.exit_code == 0

    def conclude(self, outcome: Outcome, why: str, took: bool, back: int) -> None:
        shared = self.shared
        if outcome.interrupted or shared.stop.is_set():
            return
        if outcome.timed_out:
            shared.over("it ran out of time; run the same command again to continue")
        elif outcome.exit_code == EXIT_USAGE and not took:
            shared.over(f"it refused to start, see {self.log}", EXIT_USAGE)
        elif why and (back or not took):
            shared.say(f"{why}; {back} item(s) go back to the queue")


def how_it_ended(outcome: Outcome) -> str:
    """Why a container ended that should have gone on; empty when all is well."""
    if outcome.oom_killed:
        return "a container ran out of memory (raise [scorer.environment] memory_mb, or lower [scorer] jobs)"
    if outcome.error:
        return f"a container could not be run: {outcome.error}"
    if outcome.timed_out:
        return "a container ran out of time"
    if outcome.exit_code in (0, 1):
        return ""
    return f"a container ended with status {outcome.exit_code}"
