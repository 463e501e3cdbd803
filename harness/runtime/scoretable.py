"""The table of scores at the end of ``score.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contract.errors import one_line
from contract.metrics import METRICS, Metric
from contract.names import RESULTS, REWARD
from contract.record import read_json
from contract.states import ERROR, EXCLUDED, NOT_APPLICABLE, UNCOMPUTABLE

_SHORT = {
    NOT_APPLICABLE: ("–", "dim"),
    EXCLUDED: ("excl.", "dim"),
    UNCOMPUTABLE: ("uncomp.", "yellow"),
    ERROR: ("error", "red"),
}
_COLUMN = 13
"""Characters that a metric's column needs, borders included."""
_NAME = 44
"""Characters of a world's name before it is folded."""
_FEW = 3


def read_reward(directory: Path) -> Mapping[str, Any] | None:
    """``reward.json`` of a scored entry; None when it was not scored."""
    try:
        reward = read_json(directory / RESULTS / REWARD)
    except (OSError, ValueError):
        return None
    return reward if isinstance(reward, dict) else None


def score_tables(rewards: Sequence[tuple[str, Mapping[str, Any] | None]], width: int = 120) -> list[Table]:
    """Every metric that any entry has: one row per metric for few entries, one row per entry for many.

    width : characters of a line; metrics that do not fit side by side go to a further table.
    """
    metrics = [
        metric
        for metric in METRICS
        if any(reward and reward.get(metric.key) not in (None, NOT_APPLICABLE) for _, reward in rewards)
    ]
    if not metrics:
        return []
    if len(rewards) <= _FEW:
        return [_by_metric(rewards, metrics)]
    tables = []
    name_width = min(_NAME, max(len(name) for name, _ in rewards))
    most = max(2, (width - name_width - 4) // _COLUMN)
    for start in range(0, len(metrics), most):
        shown = metrics[start : start + most]
        table = Table(title="scores" if start == 0 else "scores, continued", title_justify="left")
        table.add_column("world", overflow="fold", min_width=name_width)
        for metric in shown:
            table.add_column(_heading(metric), justify="right")
        for name, reward in rewards:
            cells = [_cell(None if reward is None else reward.get(metric.key)) for metric in shown]
            table.add_row(Text(name), *cells)
        tables.append(table)
    return tables


def _by_metric(rewards: Sequence[tuple[str, Mapping[str, Any] | None]], metrics: Sequence[Metric]) -> Table:
    table = Table(title="scores", title_justify="left")
    table.add_column("metric", no_wrap=True)
    for name, _ in rewards:
        table.add_column(Text(name), justify="right", overflow="fold")
    for metric in metrics:
        cells = [_cell(None if reward is None else reward.get(metric.key)) for _, reward in rewards]
        table.add_row(_heading(metric), *cells)
    return table


def _heading(metric: Metric) -> str:
    return f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"


def _cell(value: object) -> Text:
    if value is None:
        return Text("not scored", style="dim")
    if isinstance(value, str):
        text, style = _SHORT.get(value, (value, ""))
        return Text(text, style=style)
    return Text(f"{value:.4f}" if isinstance(value, int | float) else "?")


def print_scores(rewards: Sequence[tuple[str, Mapping[str, Any] | None]], console: Console) -> None:
    """Print the tables, or say that there is nothing to show."""
    tables = score_tables(rewards, console.width)
    for table in tables:
        console.print(table)
    if not tables:
        console.print("no scores")


def print_not_done(reasons: Mapping[str, str], console: Console) -> None:
    """Print what has no score, world by world with the reason; nothing when that is none."""
    if not reasons:
        return
    table = Table(title="not scored", title_justify="left")
    table.add_column("world", overflow="fold")
    table.add_column("reason", overflow="fold")
    for name, why in reasons.items():
        table.add_row(Text(one_line(name)), Text(one_line(why)))
    console.print(table)
