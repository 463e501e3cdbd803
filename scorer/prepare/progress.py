"""What the stage says while it runs: a bar with the time left on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from scorer.console import Console

EVERY = 60.0
"""Seconds between lines about a long estimate, where there is no bar."""


class Progress(Console):
    """Counts the cases that a model is run on, and within the current one frames.

    The time left is that of this model: what the next ones will take, nobody knows before they run.
    """

    def __init__(self, *, progress: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(progress=progress)
        self._clock = clock
        self._total = 0
        self._done = 0
        self._what = self._label = ""
        self._frames = self._seen = 0
        self._begun = self._started = self._spoken = 0.0

    def start(self, total: int, what: str = "") -> None:
        """So many estimates ``what`` are to be made; in place of earlier ones."""
        self._total, self._done, self._what, self._begun = total, 0, what, self._clock()
        if self._bar is not None:
            self._bar.stop()
        if not self._wanted or not total:
            return
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
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn(what, markup=False), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
        )  # fmt: skip
        self._bar = Progress(*columns, console=Terminal(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def begin(self, label: str, frames: int) -> None:
        """An estimate of so many frames begins."""
        self._label, self._frames, self._seen = label, max(1, frames), 0
        self._started = self._spoken = self._clock()
        self._show()

    def frame(self) -> None:
        """One frame more of the current estimate."""
        self._seen = min(self._seen + 1, self._frames)
        self._show()
        now = self._clock()
        if self._bar is None and now - self._spoken >= EVERY:
            self._spoken = now
            self.line(f"{self._label}: {self._seen} of {self._frames} frames{self._left(now)}")

    def end(self) -> None:
        """The current estimate has failed, or is there already: one less."""
        self._done += 1
        self._frames = self._seen = 0
        self._show()

    def made(self, label: str) -> None:
        """The current estimate is made."""
        now = self._clock()
        took, seen = now - self._started, self._seen
        rate = f", {seen / took:.1f} frames/s" if took > 0 and seen > 1 else ""
        self.end()
        self.line(f"{label}: done in {duration(took)}{rate}{self._left(now)}")

    def _left(self, now: float) -> str:
        done = self._share()
        if self._bar is not None or not 0 < done < self._total:
            return ""
        left = (now - self._begun) / done * (self._total - done)
        return f"; {self._done} of {self._total} {self._what}, about {duration(left)} left"

    def _share(self) -> float:
        return self._done + (self._seen / self._frames if self._frames else 0.0)

    def _show(self) -> None:
        if self._bar is not None:
            where = f"{self._label} {self._seen}/{self._frames}" if self._frames else ""
            self._bar.update(self._task, completed=self._share(), description=where)


def duration(seconds: float) -> str:
    """``4.2 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
