"""What is known of the cases' own worlds: each is held to the rules once, however many submissions it meets.

A reference that breaks them would still give numbers, only wrong ones, and no submission is to blame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scorer.messages import Checked, VideoFacts
from scorer.worker import CallFailed, CallTimedOut

SHOWN = 3
"""Faults that a message spells out."""


@dataclass
class References:
    """Outcomes by path of the world. Threads that want the same one wait for the first to find it out."""

    known: dict[Path, Checked] = field(default_factory=dict)
    _locks: dict[Path, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sound(self, path: Path, look: Callable[[], Checked]) -> VideoFacts | None:
        """Facts of the render of a sound reference world at ``path``, which ``look`` examines the first time.

        Raises ``CallFailed``, as an infrastructure failure, when the world breaks a rule or ``look`` ran out
        of time; what else ``look`` raises is passed on. Only a world that was examined is remembered.
        """
        with self._lock:
            lock = self._locks.setdefault(path, threading.Lock())
        with lock:
            found = self.known.get(path)
            if found is None:
                try:
                    found = self.known[path] = look()
                except CallTimedOut as error:
                    text = f"reference world {path} was not examined in time: {error}"
                    raise CallFailed(text, infrastructure=True) from error
        if found.faults:
            raise CallFailed(
                f"ReferenceFault: reference world {path}: {_few(found.faults)}", infrastructure=True
            )
        return found.render


def _few(faults: tuple[str, ...]) -> str:
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
