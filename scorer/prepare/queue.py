"""Estimates that are taken from a queue one by one, beside other processes on this machine or others.

A row of the queue is a case and one group. Rows come group by group, so a process moves through the models
like one that does everything by itself, and loads each once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contract.checkpoints import GROUP_MODELS
from contract.errors import UserError
from contract.workqueue import FAILED, OK, Item, Queue, Worker
from scorer.estimators.base import pick_device, release_memory
from scorer.prepare.cases import Case
from scorer.prepare.options import Options
from scorer.prepare.plan import Subject
from scorer.prepare.progress import Progress
from scorer.prepare.run import Run
from scorer.prepare.table import GROUPS, Estimate, Table, grouped
from scorer.queuedir import worker_facts, worker_name


def prepare_queue(
    cases: Sequence[Case],
    options: Options,
    table: Table,
    identities: Mapping[str, str],
    console: Progress,
    stop: threading.Event,
) -> int:
    """Make what the queue of ``options`` asks for; like ``prepare``, but for single cases and groups.

    What is held when a ``KeyboardInterrupt`` comes out goes back to the queue.
    """
    if options.queue is None:
        raise ValueError("no queue")
    queue = Queue(options.queue)
    rows = [_row(row, number, queue) for number, row in enumerate(queue.rows(), 1)]
    console.line(f"{len(rows)} item(s) in the queue, {len(cases)} case(s), groups {list(options.groups)}")
    run = _QueueRun(options, identities, console, stop, [Subject(case) for case in cases])
    groups = grouped(table, options.groups)
    with Worker(queue, options.worker or worker_name(), worker_facts()) as worker:
        while (item := worker.take()) is not None:
            case, group = rows[item.number]
            _end(worker, item, run.item(case, group, groups.get(group, [])), console)
    return run.summary()


def _row(row: Any, number: int, queue: Queue) -> tuple[str, str]:
    """Case and group of an item. Raises ``UserError``."""
    group = row.get("group") if isinstance(row, dict) else None
    if group not in GROUPS:
        raise UserError(
            f"item {number} has no group", where=queue.directory, expected=f"one of {', '.join(GROUPS)}"
        )
    return str(row.get("case")), group


def _end(worker: Worker, item: Item, failures: Sequence[str], console: Progress) -> None:
    outcome = {"state": FAILED, "note": "; ".join(failures)} if failures else {"state": OK}
    if not worker.finish(item, outcome):
        console.failure("another process has taken it over; its outcome counts")


@dataclass
class _QueueRun(Run):
    """Models stay loaded from one item to the next while the same ones are needed."""

    _loaded: dict[str, Any] = field(default_factory=dict)
    _group: str = ""

    def item(self, case: str, group: str, estimates: Sequence[Estimate]) -> list[str]:
        """Make what a group has of a case; returns what failed."""
        subject = next(each for each in self.subjects if each.name == case)
        if not estimates:
            return [f"{case}: {group} is not among the groups of --only"]
        before = len(self.failures)
        if group != self._group:
            self._group = group
            self._keep(GROUP_MODELS[group])
            self.console.line(f"== {group}")
        self.notes[group] = []
        again, subject.reported = subject.reported, False
        todo = self.examine(group, estimates, [subject])
        if todo and self.device is None and not self.options.dry_run:
            self.device = pick_device(self.options.device)
        self.group(group, estimates, todo)
        subject.reported = subject.reported or again
        return self.failures[before:]

    def load(self, estimate: Estimate) -> Any:
        """The model, loaded unless it is still there."""
        directory = estimate.model().directory
        if directory not in self._loaded:
            self._loaded[directory] = super().load(estimate)
        return self._loaded[directory]

    def _keep(self, directories: Sequence[str]) -> None:
        """Let go of models that the group does not run."""
        for directory in set(self._loaded) - set(directories):
            del self._loaded[directory]
        release_memory()
