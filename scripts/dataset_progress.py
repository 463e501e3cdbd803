"""How far the download of many cases is: a bar on a terminal, a line for each case elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from fetching import Arrived

INTERVAL = 15.0
"""Seconds between lines about a long step where there is no terminal."""


class DataProgress:
    """Of the whole work, in bytes as they are published: each is brought, and of a world unpacked too.

    A context manager; its methods may be called from several threads.
    """

    def __init__(self, cases: int, work: int) -> None:
        self._cases, self._work = cases, max(work, 1)
        self._finished, self._done = 0, 0.0
        self._lock = threading.Lock()
        self._begun = self._said = time.monotonic()
        self._bars: Any = None

    def __enter__(self) -> DataProgress:
        if self._cases and sys.stdout.isatty():
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            text = TextColumn("{task.description}", markup=False)
            self._bars = Bars(text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bars.start()
            self._task = self._bars.add_task(self._title(), total=self._work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """A line for people, above the bar."""
        with self._lock:
            self._print(text)

    def arriving(self) -> Arrived:
        """The function to tell how much of one file has arrived."""
        last = 0

        def arrived(have: int, total: int | None) -> None:
            nonlocal last
            self.advance(have - last)
            last = have

        return arrived

    def advance(self, count: float) -> None:
        """That much more of the work is done; less, where something starts again."""
        with self._lock:
            self._done += count
            if self._bars is not None:
                self._bars.update(self._task, completed=self._done)
            elif time.monotonic() - self._said >= INTERVAL:
                self._print(f"{self._title()}: {self._share()}")

    def finished(self, text: str) -> None:
        """One more case has ended; ``text`` says how."""
        with self._lock:
            self._finished += 1
            if self._bars is not None:
                self._bars.update(self._task, description=self._title())
            self._print(f"[{self._finished}/{self._cases}] {text} ({self._share()})")

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def _title(self) -> str:
        return f"{self._finished}/{self._cases} cases"

    def _share(self) -> str:
        share = min(max(self._done / self._work, 0.0), 1.0)
        seconds = time.monotonic() - self._begun
        left = f", {_span(seconds / share * (1 - share))} left" if 0.01 < share < 1 else ""
        return f"{100 * share:.0f} %{left}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
