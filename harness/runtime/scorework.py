"""What a launch of ``score.py`` has to do: the items of each stage, longest first, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contract.runs import RunKey
from harness.runtime import modelcheck
from harness.runtime.config import Runtime
from harness.runtime.jobs import reference_video
from harness.runtime.scoring import Entry
from harness.runtime.stages import PREPARE, SCORE, Stage, groups_needed, is_estimated
from harness.runtime.workload import video_cost, world_cost


@dataclass
class Work:
    """Cases and worlds of a launch.

    missing : runs that cannot be scored, with the reason. groups : of the prepare stage. left_out : entries
    that are not scored after all, with the reason.
    """

    runtime: Runtime
    stages: Sequence[Stage]
    cases: Sequence[str]
    entries: Sequence[Entry]
    missing: Mapping[RunKey, str]
    types: Sequence[str]
    groups: Sequence[str]
    media: Sequence[str] = ()
    redo: bool = False
    allow_missing: bool = False
    left_out: dict[str, str] = field(default_factory=dict)

    def names(self, stage: Stage) -> tuple[str, ...]:
        """What of the stage is wanted; none for all."""
        if stage is PREPARE:
            return tuple(self.groups)
        return tuple(self.types if stage is SCORE else self.media)

    def rows(self, stage: Stage) -> list[dict[str, str]]:
        """Items of a stage in the order in which they are to be taken."""
        if stage is PREPARE:
            return [
                {"case": case, "group": group}
                for group in self.groups
                for case in sorted(self.cases, key=self._video_cost, reverse=True)
                if is_estimated(group, case)
            ]
        ready = [entry for entry in self.entries if entry.name not in self.left_out]
        return [entry.record() for entry in sorted(ready, key=self._world_cost, reverse=True)]

    def _video_cost(self, case: str) -> int:
        return video_cost(reference_video(case, self.runtime.cases))

    def _world_cost(self, entry: Entry) -> int:
        return world_cost(
            entry.world_directory(self.runtime), reference_video(entry.case, self.runtime.cases)
        )

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Keep worlds of those cases out of what follows; the reasons are case → text."""
        for entry in self.entries:
            if entry.case in reasons:
                self.left_out[entry.name] = reasons[entry.case]

    def check_models(self, say: Callable[[str], None]) -> None:
        """Raise ``UserError`` for checkpoints that the stages need and that are missing or not the published
        ones; where that is allowed, leave out the groups that need them.
        """
        store, where = self.runtime.checkpoints, self.runtime.path
        if PREPARE in self.stages:
            names = modelcheck.models_for_groups(self.groups, self.cases)
            faults = modelcheck.faulty(store, names, say)
            if self.allow_missing and faults:
                bad = [
                    g for g in self.groups if set(modelcheck.models_for_groups([g], self.cases)) & set(faults)
                ]
                say(f"not prepared for want of a model: {', '.join(bad)}")
                self.groups = [group for group in self.groups if group not in bad]
            else:
                modelcheck.require(faults, where, f"leave groups out with --only or {modelcheck.ALLOW}")
        if SCORE in self.stages and not self.allow_missing:
            names = modelcheck.models_for_types(self.types, {entry.case for entry in self.entries})
            faults = modelcheck.faulty(store, names, say)
            modelcheck.require(faults, where, f"leave metrics out with --type or {modelcheck.ALLOW}")


def row_name(stage: Stage, row: Mapping[str, str]) -> str:
    """How lines call an item."""
    return f"{row['case']} {row['group']}" if stage is PREPARE else Entry(**row).name


def wanted_groups(only: Sequence[str], types: Sequence[str]) -> list[str]:
    """Groups to prepare: those that are named, else those that the types rest on."""
    return list(only) or groups_needed(types)


def failed_cases(rows: Sequence[Mapping[str, str]], why: Callable[[int], str]) -> dict[str, str]:
    """Cases of which something could not be prepared, with the reasons.

    why : of an item, by its number; empty when it is fine.
    """
    reasons: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        if text := why(number):
            reasons.setdefault(row["case"], []).append(f"{row['group']}: {text}")
    return {case: f"prepare: {'; '.join(dict.fromkeys(texts))}" for case, texts in reasons.items()}
