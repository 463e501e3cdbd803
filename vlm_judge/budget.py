"""Money and requests: reserved before a request is sent, settled when it has ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass


class Exhausted(Exception):
    """A limit leaves no room for another request."""


@dataclass(frozen=True)
class Limits:
    """None: no limit."""

    usd: float | None = None
    calls: int | None = None


class Budget:
    """Shared by all workers of one command.

    spent : dollars that are known. assumed : dollars of requests that may have been charged but never told.
    unpriced : replies whose cost nothing tells.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._reserved = 0.0
        self._estimated = 0.0
        self._known = 0.0
        self.spent = self.assumed = 0.0
        self.sent = self.replies = self.unpriced = 0

    def reserve(self, estimate: float | None) -> float:
        """Make room for one request; returns what is held for it. Raises ``Exhausted``.

        Where replies turned out dearer than estimated, the rest is taken to be so too.
        """
        with self._lock:
            if self._limits.calls is not None and self.sent >= self._limits.calls:
                raise Exhausted(f"--max-calls {self._limits.calls} is used up")
            dearer = max(1.0, self._known / self._estimated) if self._estimated else 1.0
            held = (estimate or 0.0) * dearer
            total = self.spent + self.assumed + self._reserved + held
            if self._limits.usd is not None and total > self._limits.usd:
                raise Exhausted(f"--max-usd {self._limits.usd:g} leaves no room for another request")
            self._reserved += held
            self.sent += 1
            return held

    def settle(self, held: float, estimate: float | None, cost: float | None) -> None:
        """A reply has come. ``cost`` None: nothing tells it, and what was held counts."""
        with self._lock:
            self._reserved -= held
            self.replies += 1
            if cost is None:
                self.assumed += held
                self.unpriced += 1
                return
            self.spent += cost
            self._known += cost
            self._estimated += estimate or 0.0

    def failed(self, held: float, *, maybe_charged: bool) -> None:
        """No reply has come."""
        with self._lock:
            self._reserved -= held
            if maybe_charged:
                self.assumed += held

    def text(self) -> str:
        """For a progress line."""
        parts = [f"${self.spent:.4f}"]
        if self.assumed:
            parts.append(f"up to ${self.assumed:.4f} more")
        if self.unpriced:
            parts.append(f"{self.unpriced} replies without a price")
        return ", ".join(parts)
