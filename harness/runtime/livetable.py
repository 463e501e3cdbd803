"""What goes on, while it goes on: a table on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.runtime.attempts import Spent
from harness.runtime.going import Going
from harness.runtime.scheduler import Batch

LINES_EVERY_S = 300.0
"""Where there is no terminal, each run that goes on is told so often."""


@contextmanager
def shown(batch: Batch, console: Console, say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, show what ``batch`` has going on."""
    if console.is_terminal and not console.is_dumb_terminal:
        view = lambda: table(batch)  # noqa: E731
        with Live(get_renderable=view, console=console, refresh_per_second=2, transient=True):
            yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_tell, args=(batch, say, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(batch: Batch, say: Callable[[str], None], ended: threading.Event) -> None:
    while not ended.wait(LINES_EVERY_S):
        for run in list(batch.going.values()):
            say(status(run))


def status(run: Going) -> str:
    """One line about a run that goes on."""
    parts = [f"{run.key.label} {run.phase} for {clock(run.elapsed)}"]
    if run.tokens:
        parts.append(f"{run.tokens} tokens")
    if run.usd is not None:
        parts.append(f"${run.usd:.2f}")
    return ", ".join(parts) + (f": {run.line}" if run.line else "")


def table(batch: Batch) -> RenderableType:
    """What goes on, one run a row, and a line about the whole batch."""
    rows = Table(box=None, pad_edge=False, expand=True)
    rows.add_column("run", overflow="fold", ratio=3)
    for heading in ("gpu", "elapsed", "tokens", "cost"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("last output", no_wrap=True, overflow="ellipsis", ratio=4)
    for run in list(batch.going.values()):
        name = str(run.key.path) + (f" (attempt {run.attempt})" if run.attempt > 1 else "")
        rows.add_row(
            Text(name),
            Text("all" if run.gpus is None else ",".join(run.gpus) or "-"),
            Text(clock(run.elapsed)),
            Text(short(run.tokens) if run.tokens else "-"),
            Text("-" if run.usd is None else f"${run.usd:.2f}"),
            Text(run.line if run.phase == "running" else run.phase, style="dim"),
        )
    return Group(rows, Text(totals(batch)))


def totals(batch: Batch) -> str:
    """The whole batch in one line."""
    spent = batch.ledger.total(list(batch.going.items()))
    return f"{len(batch.results)} ended, {len(batch.going)} running, {batch.waiting} waiting; {money(spent)}"


def money(spent: Spent) -> str:
    """Tokens and dollars; says so where a part has no price."""
    if not spent.counted:
        return "no usage known"
    priced = spent.counted - spent.unpriced
    of = f" ({priced} of {spent.counted} priced)" if spent.unpriced else ""
    return f"{short(spent.tokens)} tokens, ${spent.usd:.2f}{of}"


def clock(seconds: float) -> str:
    """``m:ss`` or ``h:mm:ss``."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def short(count: int) -> str:
    """A count of tokens in three or four characters."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)
