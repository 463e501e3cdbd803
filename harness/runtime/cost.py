"""Count the tokens and the cost of finished runs again: ``python harness/runtime/cost.py RUNS``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line, run_program
from contract.names import RUN_RECORD
from contract.record import dumps, read_json, write_json
from harness.runtime import accounting, attempts, prices
from harness.runtime.accounting import Account
from harness.runtime.attempts import Spent
from harness.runtime.batch import output_console

FIELDS = ("usage", "cost_usd", "cost_note", "steps", "tool_calls")
OLD_FIELDS = ("cost_error", "steps_error")
"""Fields in which the public harness notes a failure; replaced by what is counted here."""


@dataclass(frozen=True)
class Counted:
    """One run: its record, what was counted now, and a fault that kept it from being counted."""

    run: Path
    record: dict[str, Any]
    account: Account
    fault: str = ""
    whole: Spent = field(default_factory=Spent)
    """What all its attempts have used, those that were spoilt or cut off too."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="cost.py",
        description="Read the transcripts of runs again, and show tokens, steps and cost.",
        epilog="Exit status: 0 everything was counted, 1 some run was not, 2 a fault in what was given.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", metavar="RUNS", type=Path, help="a runs tree, or any directory inside one")
    parser.add_argument("--write", action="store_true", help="put what was counted into each run.json")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--prices",
        metavar="FILE",
        type=Path,
        help=f"TOML with prices of your own (or {prices.OVERLAY}): "
        '["model"] input = …, output = …, dollars per million tokens',
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Count, show, and write if asked. Returns the exit status."""
    given = arguments().parse_args(argv)
    if not given.runs.is_dir():
        raise UserError("no such directory", where=given.runs, next_step="cost.py runs")
    if given.prices is not None:
        os.environ[prices.OVERLAY] = str(given.prices)
        prices.price("")  # a faulty file is said before anything is read
    counted = [count(run) for run in find(given.runs)]
    if not counted:
        raise UserError(f"holds no {RUN_RECORD}", where=given.runs, expected="a tree with runs")
    if given.write:
        counted = [written(one) for one in counted]
    if given.json:
        sys.stdout.write(dumps(report(counted)))
    else:
        show(counted)
    for one in counted:
        if one.fault:
            sys.stderr.write(f"{one.run}: {one_line(one.fault)}\n")
    return EXIT_ITEM_FAILED if any(one.fault for one in counted) else EXIT_OK


def find(root: Path) -> Iterator[Path]:
    """Directories below ``root`` that hold a run record, in order; what agents delivered is not searched."""
    for parent, names, files in os.walk(root):
        names.sort()
        if RUN_RECORD in files:
            yield Path(parent)
            names.clear()


def count(run: Path) -> Counted:
    """Read one run's record and transcripts."""
    try:
        record = read_json(run / RUN_RECORD)
        if not isinstance(record, dict):
            raise ValueError("holds no JSON object")
    except (OSError, ValueError) as error:
        return Counted(run, {}, Account(), f"{RUN_RECORD} cannot be read: {error}")
    format_ = str(record.get("transcript") or record.get("agent", ""))
    account = accounting.account(format_, run, str(record.get("model", "")))
    fresh = attempts.recounted(record, run, format_)
    known = {"usage": account.usage, "cost_usd": account.cost_usd} if account.usage else {}
    whole = attempts.spent(fresh if "attempts" in fresh else known)
    return Counted(run, fresh, account, whole=whole)


def written(one: Counted) -> Counted:
    """Put the account into the record; what is unknown now leaves a known number of before as it is."""
    if one.fault or one.account == Account():
        return one
    found = {"usage": one.account.usage, "cost_usd": one.account.cost_usd, "cost_note": one.account.cost_note,
             "steps": one.account.steps, "tool_calls": one.account.tool_calls}  # fmt: skip
    kept = {name: value for name, value in one.record.items() if name not in OLD_FIELDS}
    merged = kept | {name: value for name, value in found.items() if value is not None or name not in kept}
    if merged != read_json(one.run / RUN_RECORD):
        try:
            write_json(one.run / RUN_RECORD, merged)
        except OSError as error:
            return Counted(one.run, one.record, one.account, f"cannot be written: {error}")
    return one


def report(counted: Sequence[Counted]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "runs": [
            {
                "run": str(one.run),
                **{name: one.record.get(name) for name in ("case", "agent", "model", "effort", "trial")},
                **{name: getattr(one.account, name) for name in FIELDS},
                "fault": one.fault or None,
            }
            for one in counted
        ],
        "total": totals(counted),
    }


def totals(counted: Sequence[Counted]) -> dict[str, Any]:
    """Sums over the runs; how many of them have a price stands beside the sum of dollars."""
    costs = [one.whole.cost for one in counted if one.whole.cost is not None]
    return {
        "runs": len(counted),
        "priced": len(costs),
        "cost_usd": round(sum(costs), 6) if costs else None,
        "tokens": sum(one.whole.tokens for one in counted),
        "steps": sum(one.account.steps or 0 for one in counted),
        "tool_calls": sum(one.account.tool_calls or 0 for one in counted),
    }


def show(counted: Sequence[Counted]) -> None:
    """A table with a line a run and one of totals."""
    total = totals(counted)
    table = Table(title=f"{total['priced']} of {total['runs']} runs priced", title_justify="left")
    for heading in ("run", "tokens", "steps", "tool calls", "USD", "note"):
        right = heading not in ("run", "note")
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    for one in counted:
        table.add_row(Text(str(one.run)), *_cells(one.account), Text(one.fault or one.account.cost_note))
    table.add_section()
    cost = "" if total["cost_usd"] is None else f"{total['cost_usd']:.4f}"
    table.add_row(
        Text("total"), f"{total['tokens']:,}", f"{total['steps']:,}", f"{total['tool_calls']:,}", cost, ""
    )
    output_console().print(table)


def _cells(account: Account) -> list[str]:
    numbers = (account.tokens if account.usage else None, account.steps, account.tool_calls)
    cost = "unknown" if account.cost_usd is None else f"{account.cost_usd:.4f}"
    return ["" if number is None else f"{number:,}" for number in numbers] + [cost]


if __name__ == "__main__":
    run_program(main)
