"""Group scored runs and summarise each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from contract.aggregate import Scored, summarise
from contract.errors import UserError
from report.bootstrap import intervals
from report.runs import ScoredRun, machine_faults, missing_runs, skipped_keys
from report.tables import Group, Report

GROUPINGS: dict[str, Callable[[ScoredRun], str]] = {
    "system": lambda run: run.system,
    "case": lambda run: f"{run.system} {run.case}",
    "kind": lambda run: f"{run.system} {run.kind}",
}


def build(runs: Sequence[ScoredRun], grouping: str, root: Path) -> Report:
    """The report of these runs. Raises ``UserError`` when none of them is scored."""
    members: dict[str, list[ScoredRun]] = {}
    for run in runs:
        if run.reward is not None:
            members.setdefault(GROUPINGS[grouping](run), []).append(run)
    if not members:
        raise UserError("no run here is scored", where=root, next_step="run score.py first")
    groups = [group_of(name, members[name]) for name in sorted(members)]
    protocols = sorted({run.protocol for runs in members.values() for run in runs})
    every = list(runs)
    return Report(groups, missing_runs(every), protocols, skipped_keys(every), machine_faults(every))


def group_of(name: str, runs: Sequence[ScoredRun]) -> Group:
    """One line of a report. Raises ``UserError`` when a reward holds something that is no reading."""
    rewards = [Scored(run.case, run.reward, run.gates_open) for run in runs if run.reward is not None]
    try:
        summary = summarise(rewards)
    except ValueError as error:
        raise UserError(str(error), where=f"rewards of {name}", next_step="score these runs again") from error
    return Group(name, len(runs), len({run.case for run in runs}), summary, intervals(rewards))
