"""The Results page: the report of ``report.build`` over a selection of runs, kept until a run changes."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from contract.aggregate import Scored, metric_mean
from contract.errors import UserError
from contract.metrics import BY_KEY
from report.build import GROUPINGS, build, group_of
from report.runs import ScoredRun, machine_faults, missing_runs, skipped_keys
from report.tables import FORMATS, Group, Report
from viewer.index import Entry, Index
from viewer.rows import COLUMNS

_KEPT = 16
EXPORTS = {
    "csv": ("text/csv", "csv"),
    "json": ("application/json", "json"),
    "latex": ("text/x-tex", "tex"),
    "markdown": ("text/markdown", "md"),
}
"""Format of the report → media type and suffix of the downloaded file."""


@dataclass(frozen=True)
class Selection:
    """Which runs, and what a line stands for."""

    by: str = "system"
    kind: str = ""
    systems: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()

    def picks(self, run: ScoredRun) -> bool:
        return (
            (not self.kind or run.kind == self.kind)
            and (not self.systems or run.system in self.systems)
            and (not self.cases or run.case in self.cases)
        )


class Results:
    """Use from any thread."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._groups: dict[tuple[str, frozenset[tuple[str, int]]], Group] = {}
        self._reports: OrderedDict[tuple[int, Selection], Report] = OrderedDict()
        self._lock = threading.Lock()

    def report(self, selection: Selection) -> Report:
        """The report of a selection. Raises ``UserError`` when nothing in it is scored."""
        snapshot = self.index.snapshot()
        key = (snapshot.version, selection)
        with self._lock:
            if key in self._reports:
                return self._reports[key]
            entries = [entry for entry in snapshot.entries.values() if selection.picks(entry.run)]
            report = self._build(entries, selection)
            self._reports[key] = report
            while len(self._reports) > _KEPT:
                self._reports.popitem(last=False)
            return report

    def _build(self, entries: list[Entry], selection: Selection) -> Report:
        """As ``report.build.build``, but groups whose runs did not change are taken over."""
        runs = sorted((entry.run for entry in entries), key=lambda run: run.name)
        versions = {entry.run.name: entry.version for entry in entries}
        members: dict[str, list[ScoredRun]] = {}
        for run in runs:
            if run.reward is not None:
                members.setdefault(GROUPINGS[selection.by](run), []).append(run)
        if not members:
            return build(runs, selection.by, self.index.root)
        groups: dict[tuple[str, frozenset[tuple[str, int]]], Group] = {}
        for name in sorted(members):
            sound = [run for run in members[name] if _sound(run)]
            key = (name, frozenset((run.name, versions[run.name]) for run in sound))
            if sound:
                groups[key] = self._groups.get(key) or group_of(name, sound)
        if not groups:
            raise UserError("no reward here can be read", where=self.index.root, next_step="score again")
        self._groups = {**self._groups, **groups} if len(self._groups) < 1_000 else groups
        protocols = sorted({run.protocol for held in members.values() for run in held})
        missing = missing_runs(runs) | {
            run.name: "holds something that is no reading"
            for held in members.values()
            for run in held
            if not _sound(run)
        }
        return Report(list(groups.values()), missing, protocols, skipped_keys(runs), machine_faults(runs))

    def as_record(self, selection: Selection) -> dict[str, Any]:
        """What ``python -m scorer.report --format json`` prints, plus what each system spent."""
        record: dict[str, Any] = json.loads(FORMATS["json"](self.report(selection)))
        entries = [entry for entry in self.index.snapshot().entries.values() if selection.picks(entry.run)]
        record["spent"] = spent(entries, selection.by)
        return record

    def pivot(self, selection: Selection, key: str) -> dict[str, Any]:
        """Mean of one metric, or of ``Overall``, over the trials of each case and system."""
        cells: dict[str, dict[str, Any]] = {}
        held: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.index.snapshot().entries.values():
            if selection.picks(entry.run):
                held.setdefault((entry.run.case, entry.run.system), []).append(entry)
        for (case, system), entries in held.items():
            cells.setdefault(case, {})[system] = _cell(key, entries)
        return {"key": key, "cases": cells}


def _sound(run: ScoredRun) -> bool:
    """Whether a mean can be taken: one reward that holds nonsense must not hide all others."""
    try:
        group = [Scored(run.case, run.reward or {}, run.gates_open)]
        for metric in BY_KEY.values():
            metric_mean(metric, group)
    except ValueError:
        return False
    return True


def _cell(key: str, entries: list[Entry]) -> dict[str, Any]:
    states: dict[str, int] = {}
    numbers = []
    for entry in entries:
        run = entry.run
        value = (run.reward or {}).get(key)
        if key == "Overall":
            number = entry.row[COLUMNS.index("score")]
        else:
            try:
                number = Scored(run.case, run.reward or {}, run.gates_open).number(BY_KEY[key])
            except ValueError:
                number, value = None, "?"
            if isinstance(value, str):
                states[value] = states.get(value, 0) + 1
        if run.reward is None:
            states["missing"] = states.get("missing", 0) + 1
        if number is not None:
            numbers.append(number)
    return {
        "mean": sum(numbers) / len(numbers) if numbers else None,
        "trials": len(entries),
        "states": states,
    }


def spent(entries: Iterable[Entry], by: str) -> dict[str, dict[str, Any]]:
    """Dollars, seconds and tokens per run of each group, over the runs where they are known."""
    sums: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        group = sums.setdefault(GROUPINGS[by](entry.run), {"cost": [], "seconds": [], "tokens": []})
        for name, values in group.items():
            value = entry.row[COLUMNS.index(name)]
            if value is not None:
                values.append(value)
    return {
        name: {key: {"mean": sum(v) / len(v) if v else None, "runs": len(v)} for key, v in group.items()}
        for name, group in sums.items()
    }
