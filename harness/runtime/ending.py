"""What happens when an attempt has ended: collect, mask, count, diagnose. Nothing here starts anything."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from contract.names import AGENT_LOG, LOGS, SESSION, WORKSPACE
from harness.runtime import attempts, failures
from harness.runtime.agentjob import Setting
from harness.runtime.backends.base import Outcome
from harness.runtime.credentials import read_copy, write_back
from harness.runtime.delivery import Bounds, collect, is_delivered
from harness.runtime.runrecord import RunRecord
from harness.runtime.scrub import mask_texts, patterns, scrub_tree
from harness.runtime.sessions import tidy_session

TIMEOUT_EXIT = 124
_FULL_BYTES = 64 << 20
"""Less free space than this is a full disk."""
_OWN_END = ("agent_exit", "no_delivery")
"""Failures after which the delivery is as complete as the agent meant it to be."""


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """How the agent ended, for the record."""
    fields = dataclasses.asdict(outcome)
    return {
        "agent_exit": TIMEOUT_EXIT if outcome.timed_out else outcome.exit_code,
        "agent_seconds": round(outcome.seconds, 1),
        "container_exit": outcome.exit_code,
        **{
            name: fields[name]
            for name in ("timed_out", "interrupted", "oom_killed", "killed_after_sec", "gone")
        },
        "error": outcome.error or None,
        "warnings": list(outcome.warnings),
    }


def finish(setting: Setting, staging: Path, record: RunRecord) -> str:
    """Take the delivery of an ended attempt, clean its files, count what it used and say what went wrong.

    The record's fields are complete afterwards, but not saved: the caller does that with the state that
    follows. Returns the kind of failure, empty for success.
    """
    run = staging / "run"
    forms = patterns(setting.known_secrets())
    if record.fields["gone"]:
        forms = _settle_files(setting, staging, record)
    full = _is_full(staging, str(record.fields.get("error") or ""))
    kind, said = failures.diagnose(record.fields, run / LOGS / AGENT_LOG, disk_is_full=full)
    record.fields["failure"] = kind or None
    if said:
        record.fields["said"] = said
    record.fields["failure_note"] = failures.message(kind, record.fields)
    if kind and kind not in _OWN_END and record.fields.get("artifacts"):
        record.fields["partial"] = True
    attempts.add_account(record, setting.reader, run)
    attempts.close(record)
    record.fields = {name: mask_texts(value, forms) for name, value in record.fields.items()}
    return kind


def _settle_files(setting: Setting, staging: Path, record: RunRecord) -> list[bytes]:
    """Bring login, delivery, session and logs into order. Returns the masked forms.

    The delivery is never lost to a fault in what comes after it.
    """
    run = staging / "run"
    values, said = take_login(setting, staging)
    if said:
        record.fields["login"] = said
    delivery = collect(staging / "workspace", run / WORKSPACE, setting.bounds)
    record.fields |= delivery.record() | {"delivered": is_delivered(run / WORKSPACE)}
    warnings = [f"the delivery was cut: {delivery.cut}"] if delivery.cut else []
    warnings += clean(run, values, record, setting.bounds)
    record.fields["warnings"] = [*record.fields.get("warnings", []), *warnings]
    return patterns(values)


def take_login(setting: Setting, staging: Path) -> tuple[list[str], str]:
    """Write a refreshed login back. Returns every value to be masked, and what was done, if anything."""
    if setting.credential is None:
        return setting.known_secrets(), ""
    copy = read_copy(setting.credential.copy(staging))
    values = setting.known_secrets(copy)
    if not setting.credential.write_back:
        return values, ""
    return values, write_back(setting.credential.source, copy)


def clean(run: Path, values: list[str], record: RunRecord, bounds: Bounds) -> list[str]:
    """Remove links and special files from the session, mask secrets in every text file. Returns warnings."""
    warnings = []
    try:
        dropped, cut = tidy_session(run / SESSION, bounds)
        if dropped:
            record.fields["session_dropped"] = dropped
        warnings += [cut] if cut else []
        scrubbed = scrub_tree(run, values)
        if scrubbed:
            record.fields["scrubbed"] = scrubbed
            warnings.append(f"secret values were masked in {len(scrubbed)} file(s)")
    except OSError as error:
        warnings.append(f"session and logs were not cleaned: {error}")
    return warnings


def end_killed(setting: Setting, staging: Path, record: RunRecord) -> None:
    """Close an attempt whose launcher was killed while the agent ran: its files are cleaned and counted."""
    run = staging / "run"
    values, said = take_login(setting, staging)
    if said:
        record.fields["login"] = said
    (run / SESSION).mkdir(exist_ok=True)
    clean(run, values, record, setting.bounds)
    record.fields |= {"failure": "launcher_killed"}
    record.fields["failure_note"] = failures.message("launcher_killed", record.fields)
    attempts.add_account(record, setting.reader, run)
    attempts.close(record)


def _is_full(staging: Path, error: str) -> bool:
    if "No space left on device" in error:
        return True
    try:
        return shutil.disk_usage(staging).free < _FULL_BYTES
    except OSError:
        return False
