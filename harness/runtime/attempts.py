"""The attempts of one run: each stays on record with what it used, whatever ended it and whoever was killed.

``run.json`` lists them under ``attempts``; the top level of the record describes the last one. Log,
transcript and delivery of an attempt that was followed by another lie in ``attempts/<number>/``. Once a run
has finished, its own delivery counts and those of earlier attempts are removed; logs and transcripts stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import one_line
from contract.names import LOGS, SESSION, WORKSPACE
from harness.runtime import accounting
from harness.runtime.runrecord import RunRecord, now
from harness.runtime.trees import remove_tree

ATTEMPTS = "attempts"
_OUTCOME = (
    "agent_exit", "agent_seconds", "container_exit", "timed_out", "interrupted", "oom_killed",
    "killed_after_sec", "gone", "error", "warnings", "artifacts", "delivery", "symlinks_dropped",
    "session_dropped", "scrubbed", "ended_at", "usage", "cost_usd", "cost_note", "steps", "tool_calls",
    "failure", "failure_note", "said", "stopped_by", "stopped_for", "partial", "retry_at",
)  # fmt: skip
"""Fields that describe how an attempt ended; a new attempt starts without them."""
_KEPT = (
    "started_at", "ended_at", "agent_exit", "agent_seconds", "failure", "failure_note", "usage", "cost_usd",
    "cost_note", "steps", "tool_calls",
)  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """What attempts have used. ``unpriced`` of ``counted`` attempts with usage have no price."""

    tokens: int = 0
    usd: float = 0.0
    counted: int = 0
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tokens + other.tokens,
            self.usd + other.usd,
            self.counted + other.counted,
            self.unpriced + other.unpriced,
        )

    @property
    def cost(self) -> float | None:
        """Dollars, None when nothing is known or part of it is not."""
        return round(self.usd, 6) if self.counted and not self.unpriced else None

    def record(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "cost_usd": self.cost}


def spent(record: Mapping[str, Any]) -> Spent:
    """What all ended attempts of a record have used; of older records, the one that they describe."""
    entries = record.get("attempts")
    total = Spent()
    for entry in entries if isinstance(entries, list) else [record]:
        usage = entry.get("usage") if isinstance(entry, dict) else None
        if isinstance(usage, dict):
            cost = entry.get("cost_usd")
            priced = isinstance(cost, int | float)
            tokens = accounting.tokens_of(usage)
            total += Spent(tokens, float(cost or 0) if priced else 0.0, 1, int(not priced and tokens > 0))
    return total


def number(record: Mapping[str, Any]) -> int:
    """The attempt that a record describes, counted from 1."""
    value = record.get("attempt")
    return value if isinstance(value, int) else 1


def has_ended(record: Mapping[str, Any]) -> bool:
    """Whether the attempt that a record describes is among its ``attempts``."""
    entries = record.get("attempts")
    return isinstance(entries, list) and any(
        isinstance(entry, dict) and entry.get("number") == number(record) for entry in entries
    )


def recounted(record: Mapping[str, Any], run: Path, reader: str) -> dict[str, Any]:
    """A copy of a record whose ``attempts`` and ``spent`` are counted anew from the transcripts that are
    there; an attempt about which they say nothing keeps what it had. Of older records nothing changes.
    """
    entries = record.get("attempts")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return dict(record)
    fresh = []
    for entry in entries:
        aside = run / ATTEMPTS / str(entry.get("number"))
        last = entry.get("number") == number(record)
        account = accounting.account(reader, run if last else aside, str(record.get("model", "")))
        found = {} if account.usage is None else {"usage": account.usage, "cost_usd": account.cost_usd}
        fresh.append({**entry, **found})
    return {**record, "attempts": fresh, "spent": spent({"attempts": fresh}).record()}


def add_account(record: RunRecord, reader: str, run: Path) -> None:
    """Put what the attempt has used into the record's fields."""
    account = accounting.account(reader, run, str(record.fields.get("model", "")))
    known: dict[str, Any] = {"steps": account.steps, "tool_calls": account.tool_calls}
    if account.usage is not None:
        known |= {"usage": account.usage}
        record.fields["cost_usd"] = account.cost_usd
    if account.cost_note:
        known |= {"cost_note": one_line(account.cost_note)[: accounting.LONGEST_NOTE]}
    record.fields |= {name: value for name, value in known.items() if value is not None}


def close(record: RunRecord) -> None:
    """List the present attempt among those that have ended; to be saved with the state that follows."""
    record.fields.setdefault("ended_at", now())
    # An unknown cost of known tokens is said; everything else that is not known is left out.
    said = ("cost_usd",) if "usage" in record.fields else ()
    fields = record.fields
    entry = {name: fields.get(name) for name in _KEPT if name in said or fields.get(name) is not None}
    if not has_ended(record.fields):
        entries = record.fields.get("attempts")
        listed = entries if isinstance(entries, list) else []
        record.fields["attempts"] = [*listed, {"number": number(record.fields), **entry}]
    record.fields["spent"] = spent(record.fields).record()


def set_aside(staging: Path, record: RunRecord) -> None:
    """Make room for the next attempt after one that has ended: its files go to ``attempts/<number>/``, its
    fields leave the top level, and the agent's scratch is removed.

    Every step may be repeated after a kill: what was moved is not moved again.
    """
    run = staging / "run"
    if has_ended(record.fields):
        aside = run / ATTEMPTS / str(number(record.fields))
        for name in (LOGS, SESSION, WORKSPACE):
            if (run / name).exists() and not (aside / name).exists():
                aside.mkdir(parents=True, exist_ok=True)
                (run / name).rename(aside / name)
        record.fields["attempt"] = number(record.fields) + 1
    for name in _OUTCOME:
        record.fields.pop(name, None)
    clear_scratch(staging)


def clear_scratch(staging: Path) -> list[str]:
    """Remove everything in a staging directory but the run: the agent's workspace, home and login."""
    left = [remove_tree(path) for path in sorted(staging.iterdir()) if path.name != "run"]
    return [warning for warning in left if warning]


def drop_old_deliveries(run: Path) -> None:
    """Remove deliveries of earlier attempts from a run that has finished."""
    for workspace in (run / ATTEMPTS).glob(f"*/{WORKSPACE}"):
        remove_tree(workspace)
