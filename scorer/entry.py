"""Scoring one world: what is up to date, the gates, then every type that is left, each failure on its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from contract.metrics import CLOUDS, GEOMETRY_TYPES, type_of
from contract.states import METRIC_FAILURE, REFERENCE_EMPTY
from scorer import arrays
from scorer.console import Console
from scorer.digest import ESTIMATES, combined, gate_inputs
from scorer.lock import locked
from scorer.manifest import Entry
from scorer.messages import Checked, GateRecord, Gates, Measured, VideoFacts
from scorer.model_passes import Pending, spent
from scorer.models import Models
from scorer.options import Options
from scorer.reference import References
from scorer.registry import MODEL_UNITS, Registry
from scorer.results import Results, Stamp
from scorer.wanted import Wanted
from scorer.worker import CallFailed, CallTimedOut, Slot, Stopped

_SHOWN = 10
"""Lines of a closed gate that are printed; the detail file has all."""

_NEVER = Stamp("")
"""Stamp of what must be computed again next time."""


@dataclass
class Known:
    """What one world has taught about its case, for the next worlds of the same case."""

    shapes: dict[Path, Any] = field(default_factory=dict)
    digests: dict[Path, str | None] = field(default_factory=dict)
    references: References = field(default_factory=References)


@dataclass(frozen=True)
class Outcome:
    """What became of a world: whether nothing failed so far, and what waits for its model."""

    fine: bool
    pending: tuple[Pending, ...] = ()


def score_entry(
    entry: Entry,
    slot: Slot,
    options: Options,
    registry: Registry,
    models: Models,
    known: Known,
    console: Console,
) -> Outcome:
    """Score one world as far as no model is needed. Raises ``Stopped`` when the scorer ends."""
    entry.results.mkdir(parents=True, exist_ok=True)
    with locked(entry.results, slot.stop, lambda text: console.failure(f"{entry.name}: {text}")) as held:
        if not held:
            raise Stopped
        arrays.sweep(entry.results)
        results = Results(entry.results, entry.case)
        scoring = _Scoring(entry, slot, options, registry, models, known, console, results)
        return Outcome(scoring.run(), tuple(scoring.pending))


@dataclass
class _Scoring:
    entry: Entry
    slot: Slot
    options: Options
    registry: Registry
    models: Models
    known: Known
    console: Console
    results: Results
    failed_steps: dict[str, CallFailed] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)

    def run(self) -> bool:
        self.results.note_skipped(self.wanted.all, self.wanted.skipped)
        digests = self.digests()
        if digests is None:
            return False
        stamps, inputs = self.wanted.stamps(digests), combined(gate_inputs(self.entry), digests)
        redo = self.options.redo
        todo = [
            name for name in self.wanted.scorable if redo or not self.results.up_to_date(name, stamps[name])
        ]
        gates = None if redo else self.results.gates(inputs)
        if gates is not None and not todo:
            self.console.line(f"{self.entry.name}: up to date")
        else:
            for name in self.wanted.scorable:
                if name not in todo:
                    self.console.line(f"{self.entry.name}: {name}: up to date")
            gates = self.pass_gates(gates, todo, stamps, inputs)
            if gates is None:
                return False
        self.results.write_inapplicable({name: stamps[name] for name in self.wanted.settled})
        left = [name for name in todo if name not in self.refused(gates)]
        done = self.score_types([name for name in left if name not in MODEL_UNITS], stamps)
        ready = [self.ready(name, stamps[name], digests, gates) for name in left if name in MODEL_UNITS]
        done = done and all(ready)
        waiting = {row.unit for row in self.pending}
        old = any(
            self.results.stamp(name).get("failed") for name in self.wanted.scorable if name not in waiting
        )
        return done and not old and not self.refused(gates)

    # Which types, resting on what.

    @cached_property
    def wanted(self) -> Wanted:
        return Wanted(self.entry, self.options, self.models)

    def digests(self) -> dict[Path, str | None] | None:
        """Digest of every input; None when that failed, which is then on record."""
        missing = sorted(self.wanted.inputs() - set(self.known.digests))
        try:
            found = self.slot.call("inputs", tuple(missing), seconds=self.seconds("gate")) if missing else {}
        except CallFailed as error:
            if self.gates_failed(error, self.wanted.scorable) is not None:
                self.results.write_inapplicable(dict.fromkeys(self.wanted.settled, _NEVER))
            return None
        submission = {self.entry.world, self.entry.render, self.entry.build_script}
        self.known.digests.update({path: value for path, value in found.items() if path not in submission})
        return {**self.known.digests, **found}

    def seconds(self, name: str) -> float:
        return self.options.deadlines.seconds(name, preparation=True)

    # Gates.

    @property
    def facts(self) -> dict[str, Any]:
        reference = self.entry.reference
        return {
            "reference": None if reference is None else str(reference),
            "checkpoints": str(self.options.roots.checkpoints),
        }

    def pass_gates(
        self, gates: Gates | None, todo: list[str], stamps: Mapping[str, Stamp], inputs: str
    ) -> Gates | None:
        """Run the gates unless their outcome is known, and write it; None when the machine failed at them."""
        if gates is None:
            try:
                gates = self.run_gates()
            except CallFailed as error:
                return self.gates_failed(error, todo)
        self.write_gates(gates, todo, stamps, inputs)
        return gates

    def run_gates(self) -> Gates:
        video = self.entry.video
        record, dimensions, shape = self.slot.call(
            "video_gate", self.entry, self.known.shapes.get(video), seconds=self.seconds("gate")
        )
        self.known.shapes[video] = shape
        if not record.ok:
            return Gates(record, None, dimensions)
        try:
            world = self.slot.call("world_gate", self.entry, seconds=self.seconds("gate"))
        except CallFailed as error:
            if error.infrastructure:
                raise
            world = GateRecord(METRIC_FAILURE, (str(error),))
        return Gates(record, world, dimensions)

    def gates_failed(self, error: CallFailed, todo: list[str]) -> Gates | None:
        """A call at the gates failed: a closed gate, unless it was the machine's fault."""
        if error.infrastructure:
            self.results.write_ungated(todo, str(error), self.facts)
            self.console.failure(f"{self.entry.name}: gate: infrastructure: {error}")
            self.results.write_inapplicable(dict.fromkeys(self.wanted.settled, _NEVER))
            return None
        gates = Gates(GateRecord(METRIC_FAILURE, (str(error),)))
        self.write_gates(gates, todo, {}, "")
        return gates

    def refused(self, gates: Gates) -> list[str]:
        """Units that a closed gate refuses: geometry only, when the video gate is open."""
        if gates.closed is None:
            return []
        return [
            name for name in self.wanted.all if not gates.video.ok or type_of(name).name in GEOMETRY_TYPES
        ]

    def write_gates(self, gates: Gates, todo: list[str], stamps: Mapping[str, Stamp], inputs: str) -> None:
        closed, refused = gates.closed, self.refused(gates)
        # An outcome that is no verdict on the files (time-out, exception) is not kept for the next time.
        final = closed is None or closed.cause != METRIC_FAILURE
        self.results.write_gates(gates, inputs if final else None, self.facts)
        if closed is None:
            self.console.line(f"{self.entry.name}: ok")
            return
        lasting = {name: stamps[name] if final else _NEVER for name in todo if name in refused}
        self.results.write_refused(lasting, str(closed.cause))
        self.console.line(f"{self.entry.name}: gate_failure" + (f" ({closed.cause})" if refused else ""))
        self.tell(closed)

    def tell(self, closed: GateRecord) -> None:
        for line in closed.detail[:_SHOWN]:
            self.console.failure(f"{self.entry.name}: {closed.cause}: {line}")
        if len(closed.detail) > _SHOWN:
            self.console.failure(f"{self.entry.name}: {closed.cause}: {len(closed.detail) - _SHOWN} more")

    # Metrics.

    def score_types(self, todo: list[str], stamps: Mapping[str, Stamp]) -> bool:
        """Measure each type; a failure of one leaves the others alone. False when any failed."""
        outcomes = [self.score_type(name, stamps[name]) for name in todo]
        return all(outcomes)

    def score_type(self, name: str, stamp: Stamp, failing: tuple[str, Stamp] | None = None) -> bool:
        """Measure one unit. failing : the unit, and its stamp, whose failure it is if this is only a part."""
        started = time.monotonic()
        step = ""
        found: dict[str, Any] = {}
        steps = self.wanted.steps(name)
        try:
            for step in steps:
                found |= self.prepared(step)
            step = ""
            measured = self.slot.call(
                "measure", name, self.registry[type_of(name).name], self.entry.results,
                seconds=self.wanted.seconds(name),
                scene=self.entry, opening=self.seconds("geometry"),
            )  # fmt: skip
        except CallFailed as error:
            whose, stamp = failing or (name, stamp)
            self.type_failed(whose, step, error, stamp, spent(started))
            return False
        self.results.write_measured(name, measured, stamp, steps, found, seconds=spent(started))
        self.console.line(f"{self.entry.name}: {name}: done")
        return True

    def prepared(self, step: str) -> dict[str, Any]:
        """Detail fields of a step, which a worker does once for a world. A step that failed is not retried.

        It is called for every type all the same: a worker that was replaced in between has lost its product.
        """
        failed = self.failed_steps.get(step)
        if failed is not None:
            raise failed
        try:
            facts = self.reference_facts() if step == "reference" else None
            return dict(
                self.slot.call(
                    "prepare", step, facts,
                    seconds=self.seconds(step),
                    scene=self.entry, opening=self.seconds("geometry"),
                )
            )  # fmt: skip
        except CallFailed as error:
            self.failed_steps[step] = error
            raise

    def reference_facts(self) -> VideoFacts | None:
        """What is known of the render of the case's own world. Raises ``CallFailed`` unless that is sound."""
        path, video = self.entry.reference, self.known.shapes.get(self.entry.video)
        if path is None:
            return None

        def look() -> Checked:
            found: Checked = self.slot.call(
                "check_reference", self.entry, video, seconds=self.seconds("reference")
            )
            return found

        return self.known.references.sound(path, look)

    def type_failed(self, name: str, step: str, error: CallFailed, stamp: Stamp, seconds: float) -> None:
        """Record a failure of the type itself, or of the preparation step that it needed."""
        where = f"{self.entry.name}: {name}" + (f": {step}" if step else "")
        if error.infrastructure:
            self.results.write_infrastructure(name, str(error))
            self.console.failure(f"{where}: infrastructure: {error}")
            return
        facts: dict[str, Any] = {"seconds": seconds, "timed_out": isinstance(error, CallTimedOut)}
        if error.trace:
            facts["traceback"] = error.trace.splitlines()
        self.results.write_error(name, str(error), stamp, step, **facts)
        self.console.failure(f"{where}: {error}")

    # What waits for a model.

    def ready(self, unit: str, stamp: Stamp, digests: Mapping[Path, str | None], gates: Gates) -> bool:
        """Do what comes before the unit's model, and let the unit wait for it; False when that failed."""
        clouds = None
        if unit == "uni3d":
            clouds = self.wanted.stamp(CLOUDS, digests)
            known = not self.options.redo and self.results.up_to_date(CLOUDS, clouds)
            if not known and not self.score_type(CLOUDS, clouds, (unit, stamp)):
                return False
        elif all(digests[self.entry.estimates / file] is None for file in ESTIMATES[unit]):
            # Nobody has prepared the case: no reason to load a model.
            nothing = Measured({}, vouched=frozenset(), causes={unit: REFERENCE_EMPTY})
            self.results.write_measured(unit, nothing, stamp)
            self.console.line(f"{self.entry.name}: {unit}: done")
            return True
        frames = gates.dimensions[0] if gates.dimensions is not None else 0
        self.pending.append(Pending(self.entry, unit, stamp, frames, clouds))
        return True
