"""Scoring worlds that are taken from a queue one by one, beside other scorers on this machine or others.

A world is taken when a slot is free for it, and ended when all of it is scored. What waits for a model is
measured once the queue has no more worlds, so that each model is loaded once; until then it stays taken, and
goes back if this process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK
from contract.workqueue import FAILED, OK, Item, Queue, Worker
from scorer.console import Console
from scorer.entry import Outcome
from scorer.manifest import Entry
from scorer.model_passes import run_passes
from scorer.models import Models, in_words
from scorer.options import Options
from scorer.queuedir import worker_facts, worker_name
from scorer.registry import Registry
from scorer.run import Crew

LOOK = "see the log, and results/ of the world"


def score_queue(
    entries: Sequence[Entry], options: Options, registry: Registry, models: Models, console: Console
) -> int:
    """Score what the queue of ``options`` has and return the exit status: 0 when none failed here, else 1.

    entries : all worlds of the queue, whoever scores them. Raises ``KeyboardInterrupt``; what is held then
    goes back.
    """
    if options.queue is None:
        raise ValueError("no queue")
    console.line(f"{len(entries)} world(s) in the queue, types {sorted(options.types)}")
    worker = Worker(Queue(options.queue), options.worker or worker_name(), worker_facts())
    with worker:
        taking = _Taking(entries, worker, console)
        while taking.round(options, registry, models):
            pass
    console.line(f"{taking.fine}/{taking.ended} completed without failures")
    if models.skipped:
        console.line(f"left out for want of a model: {in_words(models.skipped)}")
    return EXIT_OK if taking.fine == taking.ended else EXIT_ITEM_FAILED


@dataclass
class _Taking:
    """What this worker takes, and what becomes of it."""

    entries: Sequence[Entry]
    worker: Worker
    console: Console
    fine: int = 0
    ended: int = 0
    _held: dict[Entry, Item] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def round(self, options: Options, registry: Registry, models: Models) -> bool:
        """Take worlds until there are no more, then run the models on them. False when there were none."""
        before = self.ended
        crew = Crew(self.take(), options, registry, models, self.console, ended=self.scored)
        crew.work(len(self.entries))
        order = {entry: number for number, entry in enumerate(self.entries)}
        pending = sorted(crew.pending, key=lambda row: order[row.entry])
        failed = run_passes(pending, options, registry, models, self.console)
        for entry in list(self._held):
            self.end(entry, entry in crew.fine and entry not in failed)
        return self.ended > before

    def take(self) -> Iterator[Entry]:
        """Worlds from the queue, each held from now on."""
        while (item := self.next()) is not None:
            entry = self.entries[item.number]
            with self._lock:
                self._held[entry] = item
            yield entry

    def next(self) -> Item | None:
        try:
            return self.worker.take()
        except OSError as error:
            self.console.failure(f"infrastructure: the queue cannot be read: {error}")
            return None

    def scored(self, entry: Entry, outcome: Outcome) -> None:
        """A world is done as far as no model is needed: it ends unless something of it waits for one."""
        if not outcome.pending:
            self.end(entry, outcome.fine)

    def end(self, entry: Entry, fine: bool) -> None:
        with self._lock:
            item = self._held.pop(entry)
            self.ended += 1
            self.fine += fine
        try:
            mine = self.worker.finish(item, {"state": OK} if fine else {"state": FAILED, "note": LOOK})
        except OSError as error:
            self.console.failure(f"{entry.name}: infrastructure: its end cannot be recorded: {error}")
            return
        if not mine:
            self.console.failure(f"{entry.name}: another worker has taken it over; its outcome counts")
