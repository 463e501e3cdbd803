"""``run.json``: written at the start of a run, at each change of its state and at its end, atomically."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.names import RUN_RECORD
from contract.record import read_json, write_json

QUEUED = "queued"
"""Not begun, or waiting to be tried again."""
RUNNING, COLLECTING = "running", "collecting"
DONE = "done"
"""The agent ended with status 0 and delivered."""
FAILED = "failed"
"""The agent ended otherwise, ran out of time, or delivered nothing. A result all the same: it counts as the
agent's.
"""
INTERRUPTED = "interrupted"
"""The operator stopped it."""
ENVIRONMENT_ERROR = "environment_error"
"""The engine or the machine failed; says nothing about the agent."""
FINISHED = (DONE, FAILED)
"""States that are results; such runs are skipped by a later launch."""


class RunRecord:
    """The record of one run, saved after every change."""

    def __init__(self, directory: Path, fields: Mapping[str, Any]) -> None:
        self.path = directory / RUN_RECORD
        self.fields: dict[str, Any] = {**fields, "history": []}

    @classmethod
    def load(cls, directory: Path) -> RunRecord:
        """The record that another launcher left in ``directory``, to be continued. Raises ``ValueError``."""
        fields = read_record(directory)
        if fields is None:
            raise ValueError(f"{directory} holds no readable record")
        record = cls(directory, fields)
        record.fields["history"] = list(fields.get("history", []))
        return record

    def enter(self, state: str, **fields: Any) -> None:
        """Go to ``state``, with further fields, and save."""
        self.fields |= fields
        self.passed(state, now())
        self.save()

    def passed(self, state: str, at: str) -> None:
        """Go to ``state`` as of ``at`` without saving."""
        self.fields["state"] = state
        self.fields["history"] = [*self.fields["history"], {"state": state, "at": at}]

    def save(self) -> None:
        write_json(self.path, self.fields)


def now() -> str:
    """The present instant, UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_record(directory: Path) -> dict[str, Any] | None:
    """The record in a run directory; None when there is none that can be read."""
    try:
        record = read_json(directory / RUN_RECORD)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def state_of(record: Mapping[str, Any] | None) -> str | None:
    """State of a record; records of the reference harness have none and were only written at the end of a
    run.
    """
    if record is None:
        return None
    state = record.get("state")
    if isinstance(state, str):
        return state
    if "agent_exit" not in record:
        return None
    return DONE if record["agent_exit"] == 0 and record.get("delivered") is True else FAILED
