"""Scoring one world: what is up to date, the gates, then every type that is left, each failure on its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from contract.metrics import GEOMETRY_TYPES, TYPE_BY_NAME
from contract.states import METRIC_FAILURE, case_state
from scorer import arrays
from scorer.console import Console
from scorer.digest import combined, gate_inputs, type_inputs
from scorer.lock import locked
from scorer.manifest import Entry
from scorer.messages import Checked, GateRecord, Gates, VideoFacts
from scorer.options import Options
from scorer.reference import References
from scorer.registry import Registry
from scorer.results import Results, Stamp
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


def score_entry(
    entry: Entry, slot: Slot, options: Options, registry: Registry, known: Known, console: Console
) -> bool:
    """Score one world and return whether nothing failed. Raises ``Stopped`` when the scorer ends."""
    entry.results.mkdir(parents=True, exist_ok=True)
    with locked(entry.results, slot.stop, lambda text: console.failure(f"{entry.name}: {text}")) as held:
        if not held:
            raise Stopped
        arrays.sweep(entry.results)
        results = Results(entry.results, entry.case)
        return _Scoring(entry, slot, options, registry, known, console, results).run()


@dataclass
class _Scoring:
    entry: Entry
    slot: Slot
    options: Options
    registry: Registry
    known: Known
    console: Console
    results: Results
    failed_steps: dict[str, CallFailed] = field(default_factory=dict)

    def run(self) -> bool:
        digests = self.digests()
        if digests is None:
            return False
        stamps, inputs = self.stamps(digests), combined(gate_inputs(self.entry), digests)
        redo = self.options.redo
        todo = [name for name in self.scorable if redo or not self.results.up_to_date(name, stamps[name])]
        gates = None if redo else self.results.gates(inputs)
        if gates is not None and not todo:
            self.console.line(f"{self.entry.name}: up to date")
        else:
            for name in self.scorable:
                if name not in todo:
                    self.console.line(f"{self.entry.name}: {name}: up to date")
            gates = self.pass_gates(gates, todo, stamps, inputs)
            if gates is None:
                return False
        self.results.write_inapplicable({name: stamps[name] for name in self.settled})
        done = self.score_types([name for name in todo if name not in self.refused(gates)], stamps)
        old = any(self.results.stamp(name).get("failed") for name in self.scorable)
        return done and not old and not self.refused(gates)

    # Which types, resting on what.

    @cached_property
    def settled(self) -> list[str]:
        """Wanted types none of whose keys can be scored on this case."""
        return [
            name
            for name in self.options.types
            if all(case_state(key, self.entry.case) is not None for key in TYPE_BY_NAME[name].keys)
        ]

    @cached_property
    def scorable(self) -> list[str]:
        return [name for name in self.options.types if name not in self.settled]

    def stamps(self, digests: Mapping[Path, str | None]) -> dict[str, Stamp]:
        return {
            name: Stamp(combined(type_inputs(self.entry, name), digests), self.allowance(name))
            for name in self.options.types
        }

    def allowance(self, name: str) -> float:
        """Seconds that a type may take with its preparation: more of any of them is another chance."""
        steps = ["geometry", *self.steps(name)] if TYPE_BY_NAME[name].preparation else []
        return self.options.deadlines.seconds(name) + sum(self.seconds(step) for step in steps)

    def digests(self) -> dict[Path, str | None] | None:
        """Digest of every input; None when that failed, which is then on record."""
        paths = set(gate_inputs(self.entry).values())
        for name in self.options.types:
            paths.update(type_inputs(self.entry, name).values())
        missing = sorted(paths - set(self.known.digests))
        try:
            found = self.slot.call("inputs", tuple(missing), seconds=self.seconds("gate")) if missing else {}
        except CallFailed as error:
            if self.gates_failed(error, self.scorable) is not None:
                self.results.write_inapplicable(dict.fromkeys(self.settled, _NEVER))
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
            self.results.write_inapplicable(dict.fromkeys(self.settled, _NEVER))
            return None
        gates = Gates(GateRecord(METRIC_FAILURE, (str(error),)))
        self.write_gates(gates, todo, {}, "")
        return gates

    def refused(self, gates: Gates) -> list[str]:
        """Wanted types that a closed gate refuses: geometry only, when the video gate is open."""
        if gates.closed is None:
            return []
        return [name for name in self.options.types if not gates.video.ok or name in GEOMETRY_TYPES]

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

    def score_type(self, name: str, stamp: Stamp) -> bool:
        started = time.monotonic()
        step = ""
        found: dict[str, Any] = {}
        try:
            for step in self.steps(name):
                found |= self.prepared(step)
            step = ""
            measured = self.slot.call(
                "measure", name, self.registry[name], self.entry.results,
                seconds=self.options.deadlines.seconds(name),
                scene=self.entry, opening=self.seconds("geometry"),
            )  # fmt: skip
        except CallFailed as error:
            self.type_failed(name, step, error, stamp, _spent(started))
            return False
        self.results.write_measured(name, measured, stamp, self.steps(name), found, seconds=_spent(started))
        self.console.line(f"{self.entry.name}: {name}: done")
        return True

    def steps(self, name: str) -> list[str]:
        """Preparation steps of a type on this case, after opening the submission."""
        kind = TYPE_BY_NAME[name]
        if self.entry.reference is None:
            return []
        wanted = (*kind.preparation, *kind.with_reference)
        return [step for step in wanted if step != "geometry"]

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


def _spent(started: float) -> float:
    return round(time.monotonic() - started, 3)
