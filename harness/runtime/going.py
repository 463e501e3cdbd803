"""A run while it goes on: what others may look at, and the way to stop it."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from contract.errors import one_line
from contract.names import AGENT_LOG, LOGS, SESSION
from contract.runs import RunKey
from harness.runtime import accounting
from harness.runtime.attempts import Spent
from harness.runtime.plainfile import open_plain
from harness.runtime.scrub import mask_text

_TAIL = 4096
_LONGEST_LINE = 200
_PATIENCE = 20.0
"""A transcript is not read again for so many times as long as reading it took."""


@dataclass
class Going:
    """One run in progress. Its worker fills it in, the monitor updates it, the display reads it.

    earlier : what its attempts before the present one have used. tokens, usd : of the present one so far.
    reason, detail : why the launcher (not the operator) stopped it: a kind of ``failures`` and a clause.
    """

    key: RunKey
    reader: str = "none"
    gpus: tuple[str, ...] | None = ()
    stop: threading.Event = field(default_factory=threading.Event)
    staging: Path | None = None
    attempt: int = 1
    since: float = field(default_factory=time.monotonic)
    earlier: Spent = field(default_factory=Spent)
    forms: list[bytes] = field(default_factory=list)
    phase: str = "starting"
    tokens: int = 0
    usd: float | None = None
    line: str = ""
    reason: str = ""
    detail: str = ""
    _not_before: float = 0.0

    def end(self, reason: str, detail: str) -> None:
        """Stop the agent for a reason that goes into the record; the first reason counts."""
        if not self.stop.is_set():
            self.reason, self.detail = reason, detail
            self.stop.set()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.since

    def look(self) -> None:
        """Read the last line of the log, and what has been used so far. Never raises."""
        staging = self.staging
        if staging is None or self.phase != "running":
            return
        run = staging / "run"
        log = run / LOGS / AGENT_LOG
        self.line = one_line(mask_text(last_line(log), self.forms))[:_LONGEST_LINE]
        started = time.monotonic()
        if started < self._not_before:
            return
        self.tokens, self.usd = accounting.live(self.reader, run / SESSION, log, self.key.model)
        # What costs much to read is read less often: looking on takes a twentieth of one processor at most.
        self._not_before = time.monotonic() + _PATIENCE * (time.monotonic() - started)

    def spent(self) -> Spent:
        """Everything that the run has used, earlier attempts included."""
        known = self.tokens > 0 or self.usd is not None
        unpriced = int(self.usd is None and self.tokens > 0)
        return self.earlier + Spent(self.tokens, self.usd or 0.0, int(known), unpriced)


def last_line(log: Path) -> str:
    """The last finished line of a growing log, empty when there is none.

    Lines that are half written, or that began before the part that is read, are not shown: a secret cut in
    two could not be masked.
    """
    try:
        stream = open_plain(log)
    except OSError:
        return ""
    with stream:
        start = max(0, os.fstat(stream.fileno()).st_size - _TAIL)
        stream.seek(start)
        lines = stream.read(_TAIL).split(b"\n")[1 if start else 0 : -1]
    return next((line.decode("utf-8", "replace") for line in reversed(lines) if line.strip()), "")
