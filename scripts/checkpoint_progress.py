"""How far a download is: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from fetching import Arrived

INTERVAL = 15.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Of several files, one after another; a context manager. sizes : bytes, None where not known."""

    def __init__(self, sizes: Sequence[int | None]) -> None:
        self._count = len(sizes)
        self._total = sum(size or 0 for size in sizes)
        self._number = 0
        self._bars: Any = None

    def __enter__(self) -> Progress:
        if self._count:
            print(f"{self._count} file(s) to download, {self._total / 1e9:.1f} GB")
        if self._count and sys.stdout.isatty():
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars
            from rich.progress import TransferSpeedColumn as Speed

            text = TextColumn("{task.description}", markup=False)
            self._bars = Bars(text, BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def of(self, label: str) -> Arrived:
        """The function to tell how much of the next file has arrived."""
        self._number += 1
        title = f"[{self._number}/{self._count}] {label}"
        if self._bars is not None:
            task = self._bars.add_task(title, total=None)
            return lambda have, total: self._bars.update(task, completed=have, total=total)
        print(title, flush=True)
        return _Lines(title)

    def done(self, label: str) -> None:
        """A file is in its place."""
        if self._bars is None:
            print(f"{label}: downloaded and checked", flush=True)


class _Lines:
    """Prints how much has arrived, the rate and the time left, at most every ``INTERVAL`` seconds."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begun: tuple[float, int] | None = None
        self._next = 0.0

    def __call__(self, have: int, total: int | None) -> None:
        now = time.monotonic()
        if self._begun is None:
            self._begun, self._next = (now, have), now + INTERVAL
            if have:
                print(f"{self._title}: {have / 1e6:,.1f} MB are there already", flush=True)
        elif now >= self._next:
            self._next = now + INTERVAL
            rate = (have - self._begun[1]) / (now - self._begun[0])
            left = f", {(total - have) / rate:,.0f} s left" if total and rate > 0 else ""
            of = f" of {total / 1e6:,.0f}" if total else ""
            print(f"{self._title}: {have / 1e6:,.0f}{of} MB, {rate / 1e6:.1f} MB/s{left}", flush=True)
