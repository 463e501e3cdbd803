"""One launch: its own lines, Ctrl-C, and what is said about it at the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contract.errors import EXIT_INTERRUPTED, EXIT_ITEM_FAILED, EXIT_OK, one_line
from harness.runtime.attempts import Spent, spent
from harness.runtime.backends.base import Backend
from harness.runtime.livetable import money, short
from harness.runtime.running import Result
from harness.runtime.runrecord import ENVIRONMENT_ERROR

_FILE_WIDTH = 150
"""Characters of a line where tables go to a file or pipe."""
SAME_STOP_S = 0.5
"""Signals that follow the first one this quickly are the same wish: terminals and wrappers both send them."""
_STYLES = {"done": "green", "failed": "red", ENVIRONMENT_ERROR: "bold red", "interrupted": "yellow"}


class Speaker:
    """Where the harness's own lines go: standard output, or standard error while that one carries JSON."""

    to_stderr = False

    def __init__(self) -> None:
        self._one_at_a_time = threading.RLock()  # a signal handler may speak while its thread does

    def __call__(self, text: str) -> None:
        stream = sys.stderr if self.to_stderr else sys.stdout
        # A reader that has left (head, a closed terminal) must not cost a run.
        with suppress(OSError), self._one_at_a_time:
            stream.write(f"[RUN] {one_line(text)}\n")
            stream.flush()


say = Speaker()


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set, so that what runs can be ended in order.

    The same again, a moment later, ends this process at once: whatever it has running notices its death and
    is killed without a grace period, and the next launch takes up what was cut off.
    """
    stop = threading.Event()
    first = 0.0

    def handler(number: int, _: object) -> None:
        nonlocal first
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
            say(f"{signal.Signals(number).name}: ending what runs, please wait; once more ends it at once")
        elif time.monotonic() - first > SAME_STOP_S:
            os.write(
                2, b"\033[?25h" * sys.stderr.isatty() + b"[RUN] ended at once; the same command continues\n"
            )
            os._exit(EXIT_INTERRUPTED)

    # One that is ignored stays ignored: nohup, and background jobs of a shell, ask for that.
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield stop
    finally:
        for number, old in before:
            signal.signal(number, old)


def output_console() -> Console:
    """The console for tables: as wide as the terminal; in a file or pipe, wide enough for a row a line."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_WIDTH)


def summary(results: Sequence[Result], console: Console) -> None:
    """The table at the end of a launch."""
    table = Table(
        title=f"{sum(r.succeeded for r in results)} of {len(results)} runs done", title_justify="left"
    )
    numbers = ("seconds", "tokens", "cost")
    for heading in ("run", "state", *numbers, "delivered", "note"):
        table.add_column(heading, overflow="fold", justify="right" if heading in numbers else "left")
    total = Spent()
    for result in results:
        seconds = result.record.get("agent_seconds")
        used = spent(result.record)
        total += used
        table.add_row(
            Text(str(result.key.path)),
            Text(result.state, style=_STYLES.get(result.state, "")),
            Text("" if seconds is None else f"{seconds:g}"),
            Text(short(used.tokens) if used.counted else ""),
            Text("" if used.cost is None else f"${used.cost:.2f}"),
            Text("yes" if result.record.get("delivered") else "no"),
            Text(result.note),
        )
    console.print(table)
    if total.counted:
        console.print(f"in all {money(total)}", markup=False, highlight=False)


def reduced(results: Sequence[Result]) -> list[dict[str, object]]:
    """Results as plain records for machines."""
    return [
        {
            "case": result.key.case,
            "agent": result.key.agent,
            "model": result.key.model,
            "effort": result.key.effort,
            "trial": result.key.trial,
            "backend": result.record.get("backend"),
            "state": result.state,
            "delivered": bool(result.record.get("delivered")),
            "note": result.note,
            "failure": result.record.get("failure"),
            "attempts": len(result.record.get("attempts") or []),
            "tokens": spent(result.record).tokens if spent(result.record).counted else None,
            "cost_usd": spent(result.record).cost,
        }
        for result in results
    ]


def exit_status(results: Sequence[Result], stop: threading.Event) -> int:
    """130 after a stop, 0 when every run is done, 1 otherwise."""
    if stop.is_set():
        return EXIT_INTERRUPTED
    return EXIT_OK if all(result.succeeded for result in results) else EXIT_ITEM_FAILED


def remove_orphans(backend: Backend) -> bool:
    """Remove what dead launchers of ours left running; False when something would not go."""
    good = True
    for orphan in backend.orphans():
        if orphan.dead_owner:
            try:
                backend.remove(orphan)
                say(f"removed {orphan.name}, left by a launcher that is gone")
            except RuntimeError as error:
                good = False
                say(f"warning: {error}")
    return good
