"""The model passes: after all worlds' geometry, each model in a process of its own, loaded once for all.

A world that kills its worker costs only itself: the model is loaded again for the next. Whatever goes wrong
with the model or the machine leaves no reading; the next run goes on there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contract import checkpoint_store
from contract.metrics import CLOUDS, type_of
from scorer import arrays
from scorer.console import Console
from scorer.environment import worker_environment
from scorer.lock import locked
from scorer.manifest import Entry
from scorer.messages import CaseFault
from scorer.model_tasks import TASKS, ModelChoice
from scorer.models import Models
from scorer.options import Options
from scorer.registry import MODEL_UNITS, Registry, model_key
from scorer.results import Results, Stamp
from scorer.subject import Subject
from scorer.worker import CallFailed, CallTimedOut, Slot


@dataclass(frozen=True)
class Pending:
    """A unit of a world that waits for its model.

    stamp : what its result will rest on. clouds : the same of what the geometry pass left for it, if it did.
    frames : of the render, and of the reference video.
    """

    entry: Entry
    unit: str
    stamp: Stamp
    frames: int
    clouds: Stamp | None = None


def run_passes(
    pending: Iterable[Pending], options: Options, registry: Registry, models: Models, console: Console
) -> set[Entry]:
    """Measure everything that waits and return the entries of which something failed.

    A ``KeyboardInterrupt`` ends the worker and is raised again; what is finished is on disk.
    """
    rows = list(pending)
    failed: set[Entry] = set()
    for unit in MODEL_UNITS:
        waiting = [row for row in rows if row.unit == unit]
        if waiting:
            failed |= _Pass(unit, options, registry, models, console).run(waiting)
    return failed


@dataclass
class _Pass:
    unit: str
    options: Options
    registry: Registry
    models: Models
    console: Console

    def __post_init__(self) -> None:
        self.choice = ModelChoice(self.registry[model_key(self.unit)], self.options.roots.checkpoints)
        self.stop = threading.Event()
        start = self.options.deadlines.seconds("worker", preparation=True)
        self.slot = Slot(worker_environment(1), start, self.stop, TASKS)
        self.unloadable = ""
        """Why the model cannot be loaded: true of every world that is left."""

    def run(self, waiting: Sequence[Pending]) -> set[Entry]:
        self.console.start(len(waiting), self.unit)
        self.console.line(f"{self.unit}: loading model")
        failed = set()
        try:
            for row in waiting:
                if not self.locked(row):
                    failed.add(row.entry)
                self.console.advance()
        finally:
            self.stop.set()
            self.slot.empty()
        return failed

    def locked(self, row: Pending) -> bool:
        """Measure one world; what goes wrong in its results directory stays with it."""
        try:
            with locked(row.entry.results, self.stop, lambda text: self.tell(row, text)):
                return self.measure(row, Results(row.entry.results, row.entry.case))
        except OSError as error:
            self.tell(row, f"infrastructure: {error}")
        except ValueError as error:
            self.tell(row, f"internal error: {type(error).__name__}: {error}")
        return False

    def measure(self, row: Pending, results: Results) -> bool:
        started = time.monotonic()
        keep: tuple[str, ...] = ()
        if row.clouds is not None:
            keep = tuple(arrays.files_of([CLOUDS]))
            if not results.up_to_date(CLOUDS, row.clouds):
                return self.machine_failed(row, results, "the clouds of the geometry pass are gone", keep)
        if self.unloadable:
            return self.machine_failed(row, results, self.unloadable, keep)
        entry = row.entry
        subject = Subject(
            self.unit, entry.case, entry.render, row.frames, entry.estimates, entry.results,
            self.models.identity[self.unit],
        )  # fmt: skip
        try:
            measured = self.slot.call(
                "measure", subject, self.registry[type_of(self.unit).name], entry.results,
                seconds=self.options.deadlines.seconds(self.unit),
                scene=self.choice, opening=self.options.deadlines.seconds("model_load", preparation=True),
            )  # fmt: skip
        except CallFailed as error:
            if error.opening:
                self.unloadable = f"model load failed: {error}"
                return self.machine_failed(row, results, self.unloadable, keep)
            # Gates have fixed the work: as many frames, or points, as the reference has. If there is not
            # time enough for it, that is the machine's fault.
            if error.infrastructure or isinstance(error, CallTimedOut):
                return self.machine_failed(row, results, str(error), keep)
            trace = {"traceback": error.trace.splitlines()} if error.trace else {}
            results.write_error(self.unit, str(error), row.stamp, keep=keep, seconds=spent(started), **trace)
            self.tell(row, str(error))
            return False
        if isinstance(measured, CaseFault):
            return self.machine_failed(row, results, measured.text, keep)
        facts = {"model": self.models.identity[self.unit]}
        if checkpoint_store.unverified():
            facts["note"] = checkpoint_store.NOTE
        results.write_measured(self.unit, measured, row.stamp, keep=keep, seconds=spent(started), **facts)
        self.console.line(f"{entry.name}: {self.unit}: done")
        return True

    def machine_failed(self, row: Pending, results: Results, text: str, keep: Sequence[str]) -> bool:
        results.write_infrastructure(self.unit, text, keep)
        self.tell(row, f"infrastructure: {text}")
        return False

    def tell(self, row: Pending, text: str) -> None:
        self.console.failure(f"{row.entry.name}: {self.unit}: {text}")


def spent(started: float) -> float:
    """Seconds since ``started``, as stamps hold them."""
    return round(time.monotonic() - started, 3)
