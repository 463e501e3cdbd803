"""One launch of many items on record: ``<runs_root>/manifests/<time>-<pid>/`` with its queues, logs and
``invocation.json``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.record import read_json, write_json
from harness.runtime import owner
from harness.runtime.provenance import circumstances
from harness.runtime.runrecord import now

MANIFESTS = "manifests"
"""Directory below the runs root with one directory per invocation."""
RECORD = "invocation.json"


def new_directory(runs: Path) -> Path:
    """Where a launch that begins now is put on record; nothing is made."""
    return runs / MANIFESTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"


class Invocation:
    """The record of a launch, saved after every change; from the first save its directory exists.

    program : ``infer`` or ``score``. Further fields: ``stages``, a list of one record per stage.
    """

    def __init__(self, directory: Path, program: str, say: Callable[[str], None], **fields: Any) -> None:
        self.directory, self._say = directory, say
        self.stages: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {
            "program": program, "owner": owner.this_process(), "provenance": circumstances(),
            "started_at": now(), **fields,
        }  # fmt: skip

    def begin(self) -> None:
        """Make the directory. Raises ``OSError``."""
        self.directory.mkdir(parents=True)
        write_json(self.directory / RECORD, self._record())

    def stage(self, **fields: Any) -> dict[str, Any]:
        """The record of a stage that begins; to be filled in and saved."""
        self.stages.append({"started_at": now(), **fields})
        self.save()
        return self.stages[-1]

    def end(self, status: int) -> None:
        """Put the end on record."""
        self.fields |= {"ended_at": now(), "exit": status}
        self.save()

    def save(self) -> None:
        """Write the record; a full disk is only told of, since the results say what is done."""
        try:
            write_json(self.directory / RECORD, self._record())
        except OSError as error:
            self._say(f"warning: {self.directory / RECORD} was not written: {error.strerror}")

    def _record(self) -> dict[str, Any]:
        return {**self.fields, "stages": self.stages}


def invocations(runs: Path, program: str) -> list[tuple[Path, Mapping[str, Any]]]:
    """Launches of a program that are on record below a runs root, the oldest first."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    for path in sorted((runs / MANIFESTS).glob(f"*/{RECORD}")):
        try:
            record = read_json(path)
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and record.get("program", "score") == program:
            found.append((path.parent, record))
    return found


def is_going_on(record: Mapping[str, Any]) -> bool:
    """Whether the launch has not ended and its launcher lives, as far as can be seen from here."""
    holder = record.get("owner")
    return "ended_at" not in record and isinstance(holder, dict) and owner.alive(holder)
