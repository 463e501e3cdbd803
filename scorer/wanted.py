"""What is to be measured on one world, and what each of it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from contract.metrics import CLOUDS, metrics_of, type_of, units_of
from contract.states import case_state
from scorer.digest import combined, gate_inputs, type_inputs
from scorer.manifest import Entry
from scorer.models import Models
from scorer.options import Options
from scorer.results import Stamp


@dataclass(frozen=True)
class Wanted:
    """The units of the wanted types on one entry."""

    entry: Entry
    options: Options
    models: Models

    @cached_property
    def settled(self) -> list[str]:
        """Units none of whose keys can be scored on this case."""
        return [
            unit
            for unit in self._units
            if all(case_state(metric.key, self.entry.case) is not None for metric in metrics_of(unit))
        ]

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Units that are left out for want of a model, and why."""
        reasons = self.models.skipped
        return {unit: reasons[unit] for unit in self._units if unit in reasons and unit not in self.settled}

    @cached_property
    def scorable(self) -> list[str]:
        return [unit for unit in self._units if unit not in self.settled and unit not in self.skipped]

    @property
    def all(self) -> list[str]:
        """Units that get a reading: scorable and settled ones, in table order."""
        return [unit for unit in self._units if unit not in self.skipped]

    @cached_property
    def _units(self) -> list[str]:
        return [unit for name in self.options.types for unit in units_of(name)]

    def inputs(self) -> set[Path]:
        """Every path that the readings and the gates rest on."""
        paths = set(gate_inputs(self.entry).values())
        return paths.union(*(type_inputs(self.entry, unit).values() for unit in self.all))

    def stamps(self, digests: Mapping[Path, str | None]) -> dict[str, Stamp]:
        """The stamp of each unit, from the digests of all inputs."""
        return {unit: self.stamp(unit, digests) for unit in self.all}

    def stamp(self, unit: str, digests: Mapping[Path, str | None]) -> Stamp:
        model = self.models.identity.get(unit)
        return Stamp(combined(type_inputs(self.entry, unit), digests, model=model), self.allowance(unit))

    def allowance(self, unit: str) -> float:
        """Seconds that a unit may take with its preparation: more of any of them is another chance."""
        steps = ["geometry", *self.steps(unit)] if type_of(unit).preparation else []
        before = sum(self.options.deadlines.seconds(step, preparation=True) for step in steps)
        return self.seconds(unit) + before + (self.seconds(CLOUDS) if unit == "uni3d" else 0.0)

    def seconds(self, unit: str) -> float:
        """Deadline of a unit's own call."""
        if unit == CLOUDS:
            return self.options.deadlines.seconds("sampling", preparation=True)
        return self.options.deadlines.seconds(unit)

    def steps(self, unit: str) -> list[str]:
        """Preparation steps of a unit on this case, after opening the submission."""
        if self.entry.reference is None:
            return []
        kind = type_of(unit)
        return [step for step in (*kind.preparation, *kind.with_reference) if step != "geometry"]
