"""``python -m scorer.report``: means, families, Overall, intervals, and what is missing."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from contract.aggregate import Scored, summarise
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line, run_program
from scorer.bootstrap import intervals
from scorer.report_runs import ScoredRun, find_runs, missing_runs, skipped_keys
from scorer.report_tables import FORMATS, LISTING, Group, Report

_SHOWN = 3
"""Runs, and reasons, that the line on standard error names."""

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
    """Print the report; when runs are missing, status 1 for scripts, and a line on standard error."""
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
    sys.stdout.flush()
    if not report.missing:
        return EXIT_OK
    sys.stderr.write(f"{missing_line(report.missing, options.format)}\n")
    return EXIT_ITEM_FAILED


def missing_line(missing: Mapping[str, str], style: str) -> str:
    """One line for standard error: how many runs the means above lack, why, which first, where the rest
    stands.
    """
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in Counter(missing.values()).most_common(_SHOWN)
    )
    shown = ", ".join(list(missing)[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    listed = "listed above" if style in LISTING else "--format json lists them"
    return one_line(f"error: {len(missing)} run(s) missing ({reasons}): {shown}{more}; {listed}")


if __name__ == "__main__":
    run_program(main)
