"""``python -m scorer.report``: means, families, Overall, intervals, and what is missing."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.aggregate import Scored, summarise
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, run_program
from scorer.bootstrap import intervals
from scorer.report_runs import ScoredRun, find_runs, missing_runs, skipped_keys
from scorer.report_tables import FORMATS, Group, Report

GROUPINGS: dict[str, Callable[[ScoredRun], str]] = {
    "system": lambda run: run.system,
    "case": lambda run: f"{run.system} {run.case}",
    "kind": lambda run: f"{run.system} {run.kind}",
}


def build(runs: Sequence[ScoredRun], grouping: str, root: Path) -> Report:
    """The report of these runs. Raises ``UserError`` when none of them is scored."""
    scored = [run for run in runs if run.reward is not None]
    if not scored:
        raise UserError("no run here is scored", where=root, next_step="run score.py first")
    key = GROUPINGS[grouping]
    groups = []
    for name in sorted({key(run) for run in scored}):
        members = [run for run in scored if key(run) == name]
        rewards = [Scored(run.case, run.reward, run.gates_open) for run in members if run.reward is not None]
        try:
            summary = summarise(rewards)
        except ValueError as error:
            raise UserError(
                str(error), where=f"rewards of {name}", next_step="score these runs again"
            ) from error
        cases = len({run.case for run in members})
        groups.append(Group(name, len(members), cases, summary, intervals(rewards)))
    protocols = sorted({run.protocol for run in scored})
    return Report(groups, missing_runs(list(runs)), protocols, skipped_keys(list(runs)))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; status 1 when runs are missing, so that a script notices."""
    parser = argparse.ArgumentParser(prog="python -m scorer.report", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="tree of runs (default: runs)")
    parser.add_argument("--by", choices=list(GROUPINGS), default="system", help="what a line stands for")
    parser.add_argument("--format", choices=list(FORMATS), default="table")
    parser.add_argument("--system", action="append", metavar="NAME", help="only this system (repeatable)")
    parser.add_argument("--case", action="append", metavar="KIND/CASE", help="only this case (repeatable)")
    options = parser.parse_args(argv)
    runs = [
        run
        for run in find_runs(options.runs)
        if (not options.system or run.system in options.system)
        and (not options.case or run.case in options.case)
    ]
    if not runs:
        raise UserError("the selection is empty", where=options.runs, next_step="mend --system or --case")
    report = build(runs, options.by, options.runs)
    sys.stdout.write(FORMATS[options.format](report))
    return EXIT_ITEM_FAILED if report.missing else EXIT_OK


if __name__ == "__main__":
    run_program(main)
