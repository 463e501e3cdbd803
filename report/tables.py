"""A report's formats: a terminal table, CSV, JSON, Markdown, LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contract.aggregate import MISSING, NUMBER, OVERALL_RULE, Summary
from contract.errors import one_line
from contract.metrics import FAMILIES, MAIN_FAMILIES, METRICS
from contract.record import dumps
from contract.states import STATES
from report.bootstrap import OVERALL, Interval

COUNTED = (NUMBER, *STATES, MISSING)


@dataclass(frozen=True)
class Group:
    """One line of a report: a system, or a system on one case or kind."""

    name: str
    runs: int
    cases: int
    summary: Summary
    intervals: Mapping[str, Interval]


@dataclass(frozen=True)
class Report:
    """Everything that a format can show. ``skipped``: keys whose model was left out, and in how many runs.
    ``faults``: what the machine's faults left without a reading, by run and type.
    """

    groups: Sequence[Group]
    missing: Mapping[str, str]
    protocols: Sequence[str]
    skipped: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One quantity of one group."""

    name: str
    label: str
    family: str
    value: float | None
    interval: Interval | None
    cases: int | None
    states: Mapping[str, int]


def rows(group: Group) -> Iterator[Row]:
    """Overall, the families and every metric of a group, in table order."""
    summary, bounds = group.summary, group.intervals
    yield Row(OVERALL, OVERALL, "", summary.overall, bounds.get(OVERALL), None, {})
    for family in FAMILIES:
        if family in MAIN_FAMILIES:
            yield Row(family, family, family, summary.families[family], bounds.get(family), None, {})
        for metric in METRICS:
            if metric.family == family:
                mean = summary.metrics[metric.key]
                arrow = "↑" if metric.higher_is_better else "↓"
                yield Row(
                    metric.key,
                    f"{metric.label} {arrow}",
                    family,
                    mean.value,
                    bounds.get(metric.key),
                    mean.cases,
                    mean.states,
                )


def as_json(report: Report) -> str:
    """Everything, nested by group; numbers unrounded."""
    return dumps(
        {
            "groups": [
                {
                    "name": group.name,
                    "runs": group.runs,
                    "cases": group.cases,
                    "overall_families": list(group.summary.overall_families),
                    "rows": [_record(row) for row in rows(group)],
                }
                for group in report.groups
            ],
            "missing": dict(report.missing),
            "protocols": list(report.protocols),
            "rule": OVERALL_RULE,
            "skipped": dict(report.skipped),
            "infrastructure": {name: dict(found) for name, found in report.faults.items()},
        }
    )


def _record(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "family": row.family,
        "mean": row.value,
        "low": row.interval.low if row.interval else None,
        "high": row.interval.high if row.interval else None,
        "cases": row.cases,
        "states": dict(row.states),
    }


def as_csv(report: Report) -> str:
    """One line a group and quantity, with the counts of every state."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "name", "family", "mean", "low", "high", "cases", *COUNTED])
    for group in report.groups:
        for row in rows(group):
            bounds = (row.interval.low, row.interval.high) if row.interval else ("", "")
            counts = [row.states.get(state, 0) if row.states else "" for state in COUNTED]
            value = "" if row.value is None else row.value
            cases = "" if row.cases is None else row.cases
            writer.writerow([group.name, row.name, row.family, value, *bounds, cases, *counts])
    return text.getvalue()


def as_markdown(report: Report) -> str:
    """A Markdown table of means and intervals, then counts, what is missing, and the rule."""
    head, body = _grid(report)
    lines = [_pipes(head), _pipes(["---"] * len(head)), *(_pipes(line) for line in body), ""]
    return "\n".join([*lines, *notes(report)]) + "\n"


def as_latex(report: Report) -> str:
    """A tabular environment; notes as comments."""
    head, body = _grid(report)
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline", _ampersands(head), r"\hline"]
    lines += [_ampersands(line) for line in body]
    lines += [r"\hline", r"\end{tabular}", *(f"% {note}" for note in notes(report))]
    return "\n".join(lines) + "\n"


def as_table(report: Report) -> str:
    """Aligned columns for a terminal."""
    head, body = _grid(report)
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "  ".join([cells[0].ljust(widths[0]), *rest]).rstrip()

    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(head), rule, *map(line, body), "", *notes(report)]) + "\n"


FORMATS = {"table": as_table, "csv": as_csv, "json": as_json, "markdown": as_markdown, "latex": as_latex}
LISTING = ("table", "json", "markdown", "latex")
"""Formats that list what is missing."""


def _grid(report: Report) -> tuple[list[str], list[list[str]]]:
    """Few groups: one column each. Many: one line each. Quantities without any number are left out."""
    tables = [list(rows(group)) for group in report.groups]
    shown = [
        index for index, _ in enumerate(tables[0]) if any(table[index].value is not None for table in tables)
    ]
    names = [one_line(group.name) for group in report.groups]
    if len(names) > 4:
        labels = [tables[0][index].label for index in shown]
        lines = [[_cell(table[index]) for index in shown] for table in tables]
        return ["", *labels], [[name, *line] for name, line in zip(names, lines, strict=True)]
    body: list[list[str]] = []
    family = ""
    for index in shown:
        row = tables[0][index]
        if row.family != family:
            family = row.family
            if row.name != family:
                body.append([family, *("" for _ in names)])
        label = row.label if row.name in (OVERALL, family) else f"  {row.label}"
        body.append([label, *(_cell(table[index]) for table in tables)])
    return ["", *names], body


def _cell(row: Row) -> str:
    if row.value is None:
        return "–"
    if row.interval is None:
        return f"{row.value:.4f}"
    return f"{row.value:.4f} [{row.interval.low:.3f}, {row.interval.high:.3f}]"


def notes(report: Report) -> list[str]:
    """What a reader must know besides the numbers."""
    lines = [
        "Means over cases with 95 % bootstrap intervals over cases; trials averaged first.",
        OVERALL_RULE,
    ]
    for group in report.groups:
        used = group.summary.overall_families
        counts = ", ".join(f"{count} {state}" for state, count in _states(group).items())
        lines.append(f"{group.name}: {group.runs} run(s) on {group.cases} case(s); readings: {counts}")
        if len(used) < len(MAIN_FAMILIES):
            lines.append(
                f"{group.name}: Overall rests on {len(used)} of 5 families: {', '.join(used) or 'none'}"
            )
    if report.skipped:
        keys = ", ".join(f"{key} in {count} run(s)" for key, count in report.skipped.items())
        lines.append(f"Not measured, as the model was left out: {keys}. Score again with the models.")
    if report.faults:
        lines.append(
            f"Not measured, by the machine's fault, in {len(report.faults)} run(s). Score them again:"
        )
        lines += [
            f"  {name}: {kind}: {text}"
            for name, found in report.faults.items()
            for kind, text in found.items()
        ]
    if len(report.protocols) > 1:
        lines.append(f"The runs were scored under different protocols: {', '.join(report.protocols)}")
    if report.missing:
        lines.append(f"Missing ({len(report.missing)}):")
        lines += [f"  {name}: {reason}" for name, reason in report.missing.items()]
    return [line[: len(line) - len(line.lstrip())] + one_line(line) for line in lines]


def _states(group: Group) -> dict[str, int]:
    total = dict.fromkeys(COUNTED, 0)
    for mean in group.summary.metrics.values():
        for state, count in mean.states.items():
            total[state] += count
    return {state: count for state, count in total.items() if count}


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)


def _ampersands(cells: Sequence[str]) -> str:
    line = " & ".join(cell.strip().translate(_LATEX) for cell in cells) + r" \\"
    # After a line's end, a bracket would open the argument that says how far down the next one stands.
    return f"{{}}{line}" if line.startswith(("[", "*")) else line
