"""What the scorer says while it runs: plain lines, and a progress bar below them on a terminal."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from contract.errors import one_line


class Console:
    """Lines on standard output, failures on standard error, safe to use from several threads."""

    def __init__(self, *, progress: bool | None = None) -> None:
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._wanted = sys.stderr.isatty() if progress is None else progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, worlds: int, what: str = "scoring") -> None:
        """Show a bar of so many worlds, on a terminal, in place of an earlier one."""
        if not self._wanted or not worlds:
            return
        if self._bar is not None:
            self._bar.stop()
        from rich.console import Console as Terminal
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("worlds"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._bar = Progress(*columns, console=Terminal(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=worlds)
        self._bar.start()

    def advance(self) -> None:
        """One world more is dealt with."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def line(self, text: str) -> None:
        """A line of progress."""
        self._write(sys.stdout, text)

    def failure(self, text: str) -> None:
        """A line about something that failed."""
        self._write(sys.stderr, text)

    def _write(self, stream: Any, text: str) -> None:
        # Names come from directories that somebody else made: one line each, no control characters. A reader
        # that has left (head, less) does not stop the scoring.
        with self._lock, suppress(BrokenPipeError):
            if self._bar is not None and stream.isatty():
                self._bar.console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)
            else:
                stream.write(one_line(text) + "\n")
                stream.flush()
