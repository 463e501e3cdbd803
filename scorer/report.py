"""``python -m scorer.report``: means, families, Overall, intervals, and what is missing."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line, run_program
from report.build import GROUPINGS, build
from report.runs import find_runs
from report.tables import FORMATS, LISTING

_SHOWN = 3
"""Runs, and reasons, that the line on standard error names."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; when runs are missing, status 1 for scripts, and a line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m scorer.report", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="tree of runs (default: runs)")
    parser.add_argument("--by", choices=list(GROUPINGS), default="system", help="what a line stands for")
    parser.add_argument("--format", choices=list(FORMATS), default="table")
    parser.add_argument("--system", action="append", metavar="NAME", help="only this system (repeatable)")
    parser.add_argument("--case", action="append", metavar="KIND/CASE", help="only this case (repeatable)")
    options = parser.parse_args(argv)
    _write_any_name()
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


def _write_any_name() -> None:
    """Names of directories may hold what the terminal's encoding does not: write such characters escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
