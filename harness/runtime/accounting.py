"""What runs have used and cost: the one place where the launcher asks for it.

Each transcript format has a *reader*, a module with a constant ``READER`` that is imported when the first
run of such an agent asks for it. Built-in agents have the format of their name; an agent of the runtime file
names one with ``transcript``, or none, and then nothing is known about its usage.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from contract.errors import one_line
from contract.names import RUN_RECORD
from contract.record import read_json

LONGEST_NOTE = 200
TOKEN_FIELDS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens")
"""Fields of ``usage`` that add up to all tokens; ``reasoning_output_tokens`` is part of the output."""


@dataclass(frozen=True)
class Account:
    """What one run has used. None: unknown, which is never the same as 0.

    usage : ``TOKEN_FIELDS`` and ``reasoning_output_tokens``. cost_usd : dollars, None when unpriced.
    cost_note : why a cost is unknown or what it rests on. steps, tool_calls : of the agent's loop.
    """

    usage: dict[str, int] | None = None
    cost_usd: float | None = None
    cost_note: str = ""
    steps: int | None = None
    tool_calls: int | None = None

    @property
    def tokens(self) -> int:
        """All tokens, 0 when nothing is known."""
        return tokens_of(self.usage)


class Reader(Protocol):
    """One transcript format. What an agent has written is read; nothing in it is trusted."""

    def account(self, run: Path, model: str) -> Account:
        """Account of an ended run from ``run/session`` and ``run/logs/agent.log``."""

    def live(self, session: Path, log: Path, model: str) -> tuple[int, float | None]:
        """Tokens and dollars so far, of a run that goes on; asked every few seconds, so it must be cheap."""

    def priced(self, model: str) -> bool:
        """Whether the dollars of a run with this model will be known."""


MODULES: dict[str, str] = {
    "usage": "harness.runtime.usagelog",
    "free": "harness.runtime.usagelog:FREE",
    "claude": "harness.runtime.transcripts.ledger:CLAUDE",
    "codex": "harness.runtime.transcripts.ledger:CODEX",
    "antigravity": "harness.runtime.transcripts.ledger:ANTIGRAVITY",
    "stirrup": "harness.runtime.transcripts.ledger:STIRRUP",
}
"""Format → module (``:NAME`` where the reader is not called ``READER``)."""


@cache
def reader(name: str) -> Reader | None:
    """The reader of a format, None when there is none."""
    where = MODULES.get(name)
    if where is None:
        return None
    module, _, attribute = where.partition(":")
    found: Reader = getattr(importlib.import_module(module), attribute or "READER")
    return found


def account(agent: str, run: Path, model: str = "") -> Account:
    """Account of the ended run in directory ``run``; an empty one without a reader for ``agent``'s format.

    model : taken from the run's record when empty. Never raises: a reader that fails is noted, and costs
    nobody a run.
    """
    found = reader(agent)
    if found is None:
        return Account()
    try:
        return found.account(run, model or _model(run))
    except Exception as error:
        return Account(cost_note=one_line(f"{type(error).__name__}: {error}")[:LONGEST_NOTE])


def live(agent: str, session: Path, log: Path, model: str = "") -> tuple[int, float | None]:
    """Tokens and dollars so far of a run that goes on; ``(0, None)`` when nothing is known. Never raises."""
    found = reader(agent)
    if found is None:
        return 0, None
    try:
        return found.live(session, log, model)
    except Exception:
        return 0, None


def counted(agent: str) -> bool:
    """Whether the tokens of such an agent will be known."""
    return reader(agent) is not None


def priced(agent: str, model: str) -> bool:
    """Whether the dollars of a run will be known."""
    found = reader(agent)
    return found is not None and found.priced(model)


def why_unpriced(agent: str, model: str) -> str:
    """One sentence about a model that :func:`priced` does not know; empty where the reader says nothing."""
    say = getattr(reader(agent), "why_unpriced", None)
    return str(say(model)) if say else ""


def tokens_of(usage: Mapping[str, Any] | None) -> int:
    """All tokens of a ``usage`` record, 0 when there is none."""
    return sum(int(usage.get(name) or 0) for name in TOKEN_FIELDS) if usage else 0


def _model(run: Path) -> str:
    try:
        record = read_json(run / RUN_RECORD)
    except (OSError, ValueError):
        return ""
    return str(record.get("model", "")) if isinstance(record, dict) else ""
