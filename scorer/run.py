"""Scoring a list of worlds, several at once, and ending cleanly whatever happens."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK
from scorer.console import Console
from scorer.entry import Known, Outcome, score_entry
from scorer.environment import worker_environment
from scorer.manifest import Entry
from scorer.model_passes import Pending, run_passes
from scorer.models import Models, in_words
from scorer.options import Options
from scorer.registry import Registry
from scorer.worker import Slot, Stopped


def score(
    entries: Sequence[Entry], options: Options, registry: Registry, models: Models, console: Console
) -> int:
    """Score every entry and return the exit status: 0 when none failed, else 1.

    First everything that needs no model, world by world; then the model passes, model by model. A
    ``KeyboardInterrupt`` ends all workers and is raised again; files on disk are whole and up to the last
    type.
    """
    console.line(f"{len(entries)} world(s), types {sorted(options.types)}")
    console.start(len(entries))
    crew = Crew(iter(entries), options, registry, models, console)
    crew.work(len(entries))
    order = {entry: number for number, entry in enumerate(entries)}
    pending = sorted(crew.pending, key=lambda row: order[row.entry])
    ok = len(crew.fine - run_passes(pending, options, registry, models, console))
    console.line(f"{ok}/{len(entries)} completed without failures")
    if models.skipped:
        console.line(f"left out for want of a model: {in_words(models.skipped)}")
    return EXIT_OK if ok == len(entries) else EXIT_ITEM_FAILED


@dataclass
class Crew:
    """Threads that take entries in their order; each has a slot for one worker process.

    ended : told of each entry that is done as far as no model is needed, by the thread that did it.
    """

    entries: Iterator[Entry]
    options: Options
    registry: Registry
    models: Models
    console: Console
    ended: Callable[[Entry, Outcome], None] = lambda entry, outcome: None
    fine: set[Entry] = field(default_factory=set)
    pending: list[Pending] = field(default_factory=list)
    known: Known = field(default_factory=Known)
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, most: int) -> None:
        """Score the entries, of which there are at most so many."""
        jobs = min(self.options.jobs, max(1, most))
        env = worker_environment(jobs)
        start = self.options.deadlines.seconds("worker", preparation=True)
        slots = [Slot(env, start, self.stop) for _ in range(jobs)]
        lock = threading.Lock()
        threads = [threading.Thread(target=self._serve, args=(slot, lock), daemon=True) for slot in slots]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.stop.set()
            for slot in slots:
                slot.kill()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _serve(self, slot: Slot, lock: threading.Lock) -> None:
        while not self.stop.is_set():
            with lock:
                entry = next(self.entries, None)
            if entry is None:
                return
            try:
                done = self._score(entry, slot)
            except Stopped:
                return
            finally:
                slot.empty()  # the next world starts with a clean process
            with lock:
                self.pending += done.pending
                if done.fine:
                    self.fine.add(entry)
            self.ended(entry, done)
            self.console.advance()

    def _score(self, entry: Entry, slot: Slot) -> Outcome:
        """One entry; what goes wrong in its results directory, or in the scorer itself, stays with it."""
        try:
            return score_entry(
                entry, slot, self.options, self.registry, self.models, self.known, self.console
            )
        except Stopped:
            raise
        except OSError as error:
            self.console.failure(f"{entry.name}: infrastructure: {error}")
        except Exception as error:
            self.console.failure(f"{entry.name}: internal error: {type(error).__name__}: {error}")
            for line in traceback.format_exc().splitlines():
                self.console.failure(line)
        return Outcome(False)
