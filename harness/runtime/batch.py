"""Many runs, one launch: workers, Ctrl-C, and what is said about it at the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contract.errors import EXIT_INTERRUPTED, EXIT_ITEM_FAILED, EXIT_OK, one_line
from harness.runtime.backends.base import Backend
from harness.runtime.planning import Plan
from harness.runtime.running import Result, execute
from harness.runtime.runrecord import ENVIRONMENT_ERROR

_FILE_WIDTH = 150
"""Characters of a line where tables go to a file or pipe."""
_STYLES = {"done": "green", "failed": "red", ENVIRONMENT_ERROR: "bold red", "interrupted": "yellow"}


class Speaker:
    """Where the harness's own lines go: standard output, or standard error while that one carries JSON."""

    to_stderr = False

    def __call__(self, text: str) -> None:
        stream = sys.stderr if self.to_stderr else sys.stdout
        # A reader that has left (head, a closed terminal) must not cost a run.
        with suppress(OSError):
            stream.write(f"[RUN] {one_line(text)}\n")
            stream.flush()


say = Speaker()


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set, so that what runs can be ended in order."""
    stop = threading.Event()

    def handler(number: int, _: object) -> None:
        if not stop.is_set():
            say(f"{signal.Signals(number).name}: ending what runs, please wait")
        stop.set()

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


def run_all(
    plans: Sequence[Plan], backend: Backend, stop: threading.Event, *, redo: bool = False, slots: int = 1
) -> list[Result]:
    """Carry out the runs in order, ``slots`` at a time. One that fails never stops the others."""
    results: dict[Plan | int, Result] = {}
    with ThreadPoolExecutor(max_workers=slots, thread_name_prefix="run") as pool:
        futures: dict[Future[Result], int] = {
            pool.submit(execute, plan, backend, stop, say, redo=redo): index
            for index, plan in enumerate(plans)
        }
        open_futures = set(futures)
        while open_futures:
            # The timeout lets signal handlers run: they wait for the main thread to come round.
            ended, open_futures = wait(open_futures, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in ended:
                result = future.result()
                results[futures[future]] = result
                say(_line(result))
    return [results[index] for index in range(len(plans))]


def _line(result: Result) -> str:
    seconds = result.record.get("agent_seconds")
    took = f" after {seconds} s" if seconds is not None and not result.skipped else ""
    note = f": {result.note}" if result.note else ""
    return f"{result.key.label} {result.state}{took}{note}"


def output_console() -> Console:
    """The console for tables: as wide as the terminal; in a file or pipe, wide enough for a row a line."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_WIDTH)


def summary(results: Sequence[Result], console: Console) -> None:
    """The table at the end of a launch."""
    table = Table(
        title=f"{sum(r.succeeded for r in results)} of {len(results)} runs done", title_justify="left"
    )
    for heading in ("run", "state", "seconds", "delivered", "note"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "seconds" else "left")
    for result in results:
        seconds = result.record.get("agent_seconds")
        table.add_row(
            Text(str(result.key.path)),
            Text(result.state, style=_STYLES.get(result.state, "")),
            Text("" if seconds is None else f"{seconds:g}"),
            Text("yes" if result.record.get("delivered") else "no"),
            Text(result.note),
        )
    console.print(table)


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
