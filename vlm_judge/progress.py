"""How far it is: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from vlm_judge.budget import Budget
from vlm_judge.console import say

_EVERY_S = 10.0


class Progress:
    """what : plural of what is counted."""

    def __init__(self, total: int, what: str, budget: Budget) -> None:
        self._total, self._what, self._budget = total, what, budget
        self._begun = self._told = time.monotonic()
        self.done = self.cached = 0

    def step(self, count: int, *, cached: bool = False) -> None:
        self.done += count
        self.cached += count * cached
        if sys.stderr.isatty():
            with suppress(OSError):
                sys.stderr.write(f"\r\033[K{self._text()}")
                sys.stderr.flush()
        elif time.monotonic() - self._told >= _EVERY_S:
            self._told = time.monotonic()
            say(self._text())

    def end(self) -> None:
        if sys.stderr.isatty():
            with suppress(OSError):
                sys.stderr.write("\r\033[K")
        say(self._text())

    def _text(self) -> str:
        seconds = time.monotonic() - self._begun
        line = f"{self.done}/{self._total} {self._what}, {seconds:.0f} s, {self._budget.sent} requests, "
        line += self._budget.text()
        if self.cached:
            line += f", {self.cached} from cached replies"
        if 0 < self.done < self._total:
            line += f", about {seconds / self.done * (self._total - self.done):.0f} s left"
        return line
