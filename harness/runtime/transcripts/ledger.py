"""From a transcript to an account: tokens as read, dollars as the agent's program or a price table says."""

from __future__ import annotations

import os
from pathlib import Path

from contract.names import AGENT_LOG, LOGS, SESSION
from harness.runtime import prices
from harness.runtime.accounting import Account
from harness.runtime.transcripts import READERS
from harness.runtime.transcripts.base import Reading

AGREES = 0.01
"""Part of a reported cost by which ours may differ before the difference is said."""


class Ledger:
    """Reader of one transcript format; what it has read of a run that goes on is kept until files change."""

    def __init__(self, transcript: str) -> None:
        self._reader = READERS[transcript]
        self._open_model = transcript == "stirrup"
        self._seen: dict[Path, tuple[object, tuple[int, float | None]]] = {}

    def account(self, run: Path, model: str) -> Account:
        """Account of an ended run."""
        reading = self._reader.read(run / SESSION, run / LOGS / AGENT_LOG)
        cost, note = self._cost(reading, model)
        return Account(
            usage=None if reading.usage is None else reading.usage.record(),
            cost_usd=cost,
            cost_note="; ".join(filter(None, [note, *reading.notes])),
            steps=reading.steps,
            tool_calls=reading.tool_calls,
        )

    def live(self, session: Path, log: Path, model: str) -> tuple[int, float | None]:
        """Tokens and dollars so far; read again only when a file has grown."""
        state = _state(session, log)
        known = self._seen.get(session)
        if known is not None and known[0] == state:
            return known[1]
        reading = self._reader.read(session, log)
        tokens = 0 if reading.usage is None else reading.usage.total
        found = tokens, self._cost(reading, model)[0]
        self._seen[session] = state, found
        return found

    def priced(self, model: str) -> bool:
        """Whether a price table knows the model; what a program may report later is no promise."""
        return prices.price(model, openrouter_first=self._open_model) is not None

    def why_unpriced(self, model: str) -> str:
        """One sentence about a model that :meth:`priced` does not know."""
        return prices.why_unpriced(model)

    def _cost(self, reading: Reading, model: str) -> tuple[float | None, str]:
        if reading.usage is None:
            return reading.reported_usd, "" if reading.reported_usd is not None else "no usage was found"
        price = prices.price(model, openrouter_first=self._open_model)
        ours = None if price is None else price.cost(reading.usage, assumed_hits=self._open_model)
        reported = reading.reported_usd
        if reported is not None:
            note = "as the agent's program reports"
            if ours is not None and abs(ours - reported) > AGREES * max(ours, reported):
                note += f"; {ours:g} USD by the prices of {price.source if price else ''}"
            return reported, note
        if price is None:
            return None, prices.why_unpriced(model)
        return ours, f"by the prices of {price.source}"


def _state(session: Path, log: Path) -> object:
    """What changes when a transcript grows."""
    marks = []
    for parent, _, names in os.walk(session):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))  # noqa: PTH118  (thousands of files)
            except OSError:
                continue
            marks.append((parent, name, found.st_size, found.st_mtime_ns))
    try:
        found = log.lstat()
        marks.append(("", "", found.st_size, found.st_mtime_ns))
    except OSError:
        pass
    return sorted(marks)


CLAUDE = Ledger("claude")
CODEX = Ledger("codex")
ANTIGRAVITY = Ledger("antigravity")
STIRRUP = Ledger("stirrup")
