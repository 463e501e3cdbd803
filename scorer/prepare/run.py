"""Making the estimates: group by group, each model loaded once, each failure staying with its case."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contract.checkpoint_store import unverified
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line
from scorer import arrays
from scorer.estimators.base import out_of_memory, pick_device, release_memory
from scorer.lock import locked
from scorer.prepare.abrupt import abrupt_ends, at_work, has_abrupt_ends
from scorer.prepare.cases import Case
from scorer.prepare.options import Options
from scorer.prepare.output import Output
from scorer.prepare.plan import BadCase, Item, Subject, item, wanted
from scorer.prepare.progress import Progress, plural
from scorer.prepare.provenance import State, provenance
from scorer.prepare.table import Estimate, Table, grouped

MEMORY_ADVICE = "give the device more free memory, or use --device cpu"


def prepare(
    cases: Sequence[Case],
    options: Options,
    table: Table,
    identities: Mapping[str, str],
    console: Progress,
    stop: threading.Event,
) -> int:
    """Make what is missing or out of date and return the exit status: 0 when none failed, else 1.

    ``stop`` is set when the program is to end: an interrupt that a library has swallowed ends it, too.
    ``KeyboardInterrupt`` comes out; files are whole then, and up to the last one.
    """
    run = Run(options, identities, console, stop, subjects=[Subject(case) for case in cases])
    console.line(f"{len(cases)} case(s), groups {list(options.groups)}")
    groups = grouped(table, options.groups)
    todo = {name: run.examine(name, estimates, run.subjects) for name, estimates in groups.items()}
    if not options.dry_run and any(todo.values()):
        run.device = pick_device(options.device)
    late = [] if options.dry_run else [each for items in todo.values() for each in items if _suspect(each)]
    for name, items in todo.items():
        console.line(f"== {name}")
        run.group(name, groups[name], [each for each in items if each not in late])
    if late:
        console.line("== cases that an earlier run never came back from")
        run.last(late)
    return run.summary()


@dataclass
class Run:
    options: Options
    identities: Mapping[str, str]
    console: Progress
    stop: threading.Event
    subjects: list[Subject]
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("computed", "kept", "to compute"), 0)
    )
    failures: list[str] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)
    device: Any = None

    # What there is to do.

    def examine(self, group: str, estimates: Sequence[Estimate], subjects: Sequence[Subject]) -> list[Item]:
        """Items of a group that are to be computed; what is said about the others is kept for its turn."""
        todo = []
        lines = self.notes.setdefault(group, [])
        left_out = [s for s in subjects if not self.options.every and not _any_needed(estimates, s)]
        if left_out:
            lines.append(
                f"{plural(len(left_out), 'case')} without a metric that needs it (--all computes it)"
            )
        current = 0
        for estimate, subject in wanted(estimates, subjects, self.options.every):
            try:
                found = item(estimate, subject, self.identities)
                state = found.state()
            except BadCase as error:
                self.bad(subject, error)
                continue
            except OSError as error:
                self.failed(f"{subject.name}: {estimate.file}", error)
                continue
            if state.usable and not self.options.redo:
                self.counts["kept"] += 1
                current += state is State.CURRENT
                if state is not State.CURRENT:
                    lines.append(f"{found.name}: {state.value}")
            else:
                todo.append(found)
                if self.options.dry_run:
                    lines.append(f"{found.name}: to be computed ({self._why(state)})")
                elif state in (State.STALE, State.DAMAGED):
                    lines.append(f"{found.name}: {state.value}, computed again")
        if current:
            lines.append(f"{plural(current, 'estimate')} up to date")
        return todo

    def _why(self, state: State) -> str:
        return "--redo" if state.usable else state.value

    # Doing it.

    def group(self, name: str, estimates: Sequence[Estimate], items: Sequence[Item]) -> None:
        """Compute the items of a group, one estimate (hence one model) after the other."""
        for line in self.notes[name]:
            self.console.line(line)
        if self.options.dry_run:
            self.counts["to compute"] += len(items)
            return
        for estimate in estimates:
            mine = [each for each in items if each.estimate is estimate]
            if mine:
                try:
                    self.estimate(estimate, mine)
                finally:
                    release_memory()

    def last(self, items: Sequence[Item]) -> None:
        """Compute what may end this process, that which has done so least often first.

        So every run gets further, wherever it ends.
        """
        for each in sorted(items, key=lambda each: abrupt_ends(each.path)):
            try:
                self.estimate(each.estimate, [each])
            finally:
                release_memory()

    def estimate(self, estimate: Estimate, items: Sequence[Item]) -> None:
        """Load a model and run it on every case that lacks its estimate. The model goes with this call."""
        try:
            model = self.load(estimate)
        except Exception as error:
            self.failed(f"{estimate.group}: {estimate.model().name} cannot be loaded", error)
            return
        self.console.start(len(items), estimate.file)
        for each in items:
            if not self.one(each, model):
                # The tensors of a failed attempt were referenced by its exception until here.
                release_memory()

    def load(self, estimate: Estimate) -> Any:
        """The estimate's model, ready to run."""
        return estimate.model().load(self.device, self.options.checkpoints)

    def one(self, each: Item, model: Any) -> bool:
        """One estimate of one case, and whether it is there now; whatever goes wrong stays with it."""
        self.end_if_told()
        try:
            found = self.compute(each, model)
        except BadCase as error:
            self.bad(each.subject, error)
            self.console.end()
        except Exception as error:
            self.end_if_told()
            self.failed(each.name, error)
            self.console.end()
        else:
            if found is None:
                self.counts["computed"] += 1
                self.console.made(each.name)
            else:
                self.counts["kept"] += 1
                self.console.line(f"{each.name}: {found.value}")
                self.console.end()
            return True
        return False

    def compute(self, each: Item, model: Any) -> State | None:
        """Write the estimate; the state of what another process has made meanwhile, else None."""
        directory = each.path.parent
        directory.mkdir(parents=True, exist_ok=True)

        def notice(text: str) -> None:
            self.console.failure(f"{each.name}: {text}")

        def ended(times: int) -> None:
            notice(f"an earlier run ended without a word while it was at this ({times} so far)")

        with locked(directory, self.stop, notice, "prepare") as held:
            if not held:
                raise KeyboardInterrupt
            arrays.sweep(directory)
            state = each.state()
            if state.usable and not self.options.redo:
                return state
            with at_work(each.path, ended):
                clip = each.subject.clip
                self.console.begin(each.name, clip.samples)
                each.estimate.write(model, clip, self.output(each))
            return None

    def output(self, each: Item) -> Output:
        model = each.estimate.model()
        note = provenance(
            each.estimate,
            each.stamp,
            checkpoint=self.identities[model.directory],
            verified=not unverified(),
            device=str(self.device.type),
            packages=model.requires,
        )
        return Output(each.path, note, self.frame)

    def frame(self) -> None:
        """A frame more is dealt with; an interrupt that was swallowed somewhere counts now."""
        self.end_if_told()
        self.console.frame()

    def end_if_told(self) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt

    # What went wrong.

    def bad(self, subject: Subject, error: Exception) -> None:
        """Nothing can be done with a case: said once, whatever the number of groups."""
        if not subject.reported:
            subject.reported = True
            self.fail(f"{subject.name}: {error}")

    def failed(self, what: str, error: Exception) -> None:
        """One line about what a user can mend or live with; a traceback for what only we can."""
        if out_of_memory(error):
            self.fail(f"{what}: out of memory: {error}; {MEMORY_ADVICE}")
        elif isinstance(error, ValueError | OSError | UserError):
            self.fail(f"{what}: {error}")
        else:
            self.fail(f"{what}: internal error: {type(error).__name__}: {error}")
            for line in "".join(traceback.format_exception(error)).splitlines():
                self.console.failure(line)

    def fail(self, text: str) -> None:
        self.failures.append(one_line(text))
        self.console.failure(text)

    def summary(self) -> int:
        counted = [f"{count} {what}" for what, count in self.counts.items() if count or what != "to compute"]
        self.console.line(", ".join([*counted, f"{len(self.failures)} failed"]))
        if not self.failures:
            return EXIT_OK
        for text in self.failures:
            self.console.failure(f"failed: {text}")
        if not self.options.dry_run:
            self.console.failure("the same command tries again what failed, and only that")
        return EXIT_ITEM_FAILED


def _any_needed(estimates: Sequence[Estimate], subject: Subject) -> bool:
    return any(estimate.needed(subject.name) for estimate in estimates)


def _suspect(each: Item) -> bool:
    return has_abrupt_ends(each.path.parent)
