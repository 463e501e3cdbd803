"""``judge.py elo``: ratings from pairwise records, judge by judge."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.errors import EXIT_OK, UserError
from contract.record import dumps, finite
from vlm_judge import agreement
from vlm_judge.console import out, warn
from vlm_judge.csvtext import csv_text
from vlm_judge.games import collect
from vlm_judge.judges import by_judge, mixed_settings
from vlm_judge.records import Row, read_rows
from vlm_judge.table import LOSSES, Options, Table, rate

SCHEMA = "vlm-judge-elo/1"


def main(given: argparse.Namespace) -> int:
    """Read, rate, print. Raises ``UserError`` on an unreadable file or one without a record."""
    if given.prior < 0 or given.boot < 0:
        raise UserError("cannot be negative", where="--prior" if given.prior < 0 else "--boot")
    read = read_rows(Path(given.pairs))
    rows = [row for row in read.rows if "a" in row and "b" in row]
    if not rows:
        raise UserError("holds no comparison", where=given.pairs, next_step="judge.py pairwise --out …")
    notes = [*read.warnings]
    if len(rows) < len(read.rows):
        notes.append(f"{len(read.rows) - len(rows)} records are no comparisons and were skipped")
    judges = by_judge(rows, given.judge, notes)
    options = Options(given.prior, given.boot, given.seed, given.boot_over, given.judged_only)
    tables = []
    for judge, own in judges.items():
        notes += mixed_settings(judge, own)
        tables.append(rate(judge, collect(own, both_orders=given.both_orders), options))
    agreed = agreement.between({judge: _decisions(own) for judge, own in judges.items()})
    for table in tables:
        notes += _notes(table)
    for note in notes:
        warn(note)
    if given.json:
        out(dumps(finite(as_json(tables, agreed, options, notes, judges))), end="")
    elif given.csv:
        out(csv_text(_flat(tables)), end="")
    else:
        out("\n\n".join(text(table, options) for table in tables))
        if agreed:
            out("\n" + "\n".join(entry.line() for entry in agreed))
    return EXIT_OK


def as_json(
    tables: Sequence[Table],
    agreed: Sequence[agreement.Agreement],
    options: Options,
    notes: Sequence[str],
    judges: dict[str, list[Row]],
) -> dict[str, Any]:
    """All of it; ``comparisons`` is what a viewer shows side by side."""
    shown = ("scene", "case", "kind", "a", "b", "trial", "winner", "how", "states", "raw", "both_orders")
    return {
        "schema": SCHEMA,
        "options": vars(options),
        "judges": [table.as_json() for table in tables],
        "agreement": [entry.as_json() for entry in agreed],
        "notes": list(notes),
        "comparisons": sorted(
            (
                {"judge": judge} | {key: row[key] for key in shown if key in row}
                for judge, rows in judges.items()
                for row in rows
            ),
            key=lambda row: dumps(finite(row)),
        ),
    }


def text(table: Table, options: Options) -> str:
    """The table as people read it; the first columns are the published program's."""
    found = table.found
    head = f"{found.records} comparisons, {len(found.systems)} systems"
    if options.boot:
        unit = "tasks" if options.over == "tasks" else "comparisons"
        head += f", 95 % intervals from {options.boot} bootstrap draws over {unit}"
    head += f"; judge {table.judge}"
    wide = f"  {'95 %':^17}" if options.boot else ""
    lines = [head, f"{'system':24} {'elo':>8}{wide} {'wins':>7} {'games':>6}"]
    lines[-1] += "".join(f" {word:>8}" for word in LOSSES.values())
    for system in table.systems:
        elo = "–" if system.elo is None else f"{system.elo:.1f}"
        between = ""
        if options.boot:
            known = system.low is not None and system.high is not None
            between = f"  [{system.low:7.0f},{system.high:7.0f}]" if known else f"  {'–':^17}"
        line = f"{system.name:24} {elo:>8}{between} {system.wins:7.1f} {system.games:6d}"
        lines.append(line + "".join(f" {system.lost[word]:8d}" for word in LOSSES.values()))
    return "\n".join([*lines, *_position(table), *_orders(table)])


def _position(table: Table) -> list[str]:
    place = table.position
    if place.first is None:
        return []
    line = f"shown first won {place.first:.1%} of {place.judged} verdicts"
    if place.log_odds is not None and place.error is not None and place.points is not None:
        line += (
            f"; worth {place.points:+.0f} points (log-odds {place.log_odds:+.3f}, "
            f"standard error {place.error:.3f})"
        )
    return [line]


def _orders(table: Table) -> list[str]:
    pairs = table.found.same_orders + table.found.split_orders
    if not pairs:
        return []
    return [f"both orders: {table.found.same_orders} of {pairs} pairs with one winner, the others are ties"]


def _notes(table: Table) -> list[str]:
    notes = []
    left = table.found.left_out
    if left:
        parts = ", ".join(f"{count} {reason}" for reason, count in sorted(left.items()))
        notes.append(f"{table.judge}: records that count nothing: {parts}")
    unrated = [system.name for system in table.systems if system.elo is None]
    if unrated:
        notes.append(f"{table.judge}: without a game that counts, not rated: {', '.join(unrated)}")
    if len(table.groups) > 1:
        parts = "; ".join(", ".join(group) for group in table.groups)
        notes.append(
            f"{table.judge}: {len(table.groups)} groups never met each other, only the prior compares them: "
            f"{parts}"
        )
    if not table.settled:
        notes.append(f"{table.judge}: the fit still moved after {table.steps} steps")
    return notes


def _decisions(rows: Sequence[Row]) -> dict[Any, str]:
    """The winner of each pair on each scene by the model's verdicts; "tie" where they disagree."""
    shares: dict[Any, set[float]] = {}
    for game in collect(rows).judged:
        shares.setdefault(game.pair, set()).add(game.share_of(game.pair[2]))
    return {pair: _winner(found, pair) for pair, found in shares.items()}


def _winner(shares: set[float], pair: tuple[str, str, str, str]) -> str:
    if len(shares) > 1:
        return "tie"
    return pair[2] if shares == {1.0} else pair[3]


def _flat(tables: Sequence[Table]) -> list[dict[str, Any]]:
    rows = []
    for table in tables:
        for system in table.systems:
            entry = {"judge": table.judge} | vars(system)
            lost = entry.pop("lost")
            rows.append(entry | {f"lost_{key.replace(' ', '_')}": value for key, value in lost.items()})
    return rows
