"""What can go wrong with a run, and what follows from it: one table, and how a record is told into it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.runtime.plainfile import open_plain
from harness.runtime.runrecord import DONE, ENVIRONMENT_ERROR, FAILED, INTERRUPTED


@dataclass(frozen=True)
class Failure:
    """One kind of failure.

    retry : tried again in the same launch, as ``[agent] retries`` allows.
    agents : counts as the agent's; such a run is a result, is scored, and is not run again unasked.
    keep : what was delivered by then is kept, marked ``partial``.
    stops : no further run with the same login is started.
    message : one clause for people; ``{...}`` are fields of the record.
    """

    kind: str
    retry: bool
    agents: bool
    keep: bool
    message: str
    stops: bool = False
    state: str = ""

    @property
    def final_state(self) -> str:
        """State of a run that ends with this failure."""
        return self.state or (FAILED if self.agents else ENVIRONMENT_ERROR)


_T, _F = True, False
TABLE: dict[str, Failure] = {
    failure.kind: failure
    for failure in (
        #       kind              retry agents keep
        Failure("agent_exit",      _F, _T, _T, "the agent ended with status {agent_exit}"),
        Failure("no_delivery",     _F, _T, _T, "no world/ and solution/build.sh delivered"),
        Failure("timeout",         _F, _T, _T, "timed out after {timeout_sec} s"),
        Failure("run_budget",      _F, _T, _T, "stopped at the budget of a run: {stopped_for}"),
        Failure("launch_error",    _T, _F, _F, "{error}"),
        Failure("engine_lost",     _T, _F, _T, "{error}"),
        Failure("launcher_killed", _T, _F, _F, "its launcher was killed"),
        Failure("not_gone",        _F, _F, _F, "processes of the agent would not end"),
        Failure("out_of_memory",   _F, _F, _T, "out of memory; raise [agent.limits] memory_mb"),
        Failure("disk_full",       _T, _F, _T, "the disk is full"),
        Failure("auth_error",      _F, _F, _T, "the provider refused the login: {said}", stops=True),
        Failure("quota_exhausted", _F, _F, _T, "the account's quota is used up: {said}", stops=True),
        Failure("overloaded",      _T, _F, _T, "the provider was overloaded or limited the rate: {said}"),
        Failure("batch_budget",    _F, _F, _T, "stopped at the budget of the batch: {stopped_for}",
                state=INTERRUPTED),
        Failure("interrupted",     _F, _F, _T, "stopped by the operator", state=INTERRUPTED),
    )
}  # fmt: skip
"""Every kind of failure. A retry is not counted as the agent's and costs it nothing."""

_FLAGS = re.IGNORECASE
PROVIDER: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "quota_exhausted",
        re.compile(
            r"insufficient_quota|credit balance is too low|billing_hard_limit|exceeded your current quota"
            r"|you(?:'|\u2019)ve hit your (?:usage|session|weekly) limit|usage limit (?:has been )?reached",
            _FLAGS,
        ),
    ),
    (
        "auth_error",
        re.compile(
            r"\bauthentication_error\b|\binvalid_api_key\b|\binvalid_grant\b|\btoken_expired\b"
            r"|invalid (?:x-)?api[- ]key|incorrect api key|please run /login|not logged in"
            r"|oauth (?:access |refresh )?token (?:has )?(?:been )?(?:expired|revoked)"
            r"|refresh token (?:has |was )?(?:already )?(?:been )?(?:expired|revoked|used)"
            r"|(?:\bHTTP|status|error|code)\W{1,4}401\b|\b401\W{1,3}unauthorized",
            _FLAGS,
        ),
    ),
    (
        "overloaded",
        re.compile(
            r"\boverloaded_error\b|\brate_limit_error\b|\brate_limit_exceeded\b|\bRESOURCE_EXHAUSTED\b"
            r"|\b429\W{1,3}too many requests|\b529\b.{0,40}overloaded|\b503\W{1,3}service unavailable"
            r"|(?:\bHTTP|status|code)\W{1,4}(?:429|502|503|504|529)\b",
            _FLAGS,
        ),
    ),
)
"""How providers' refusals look in the last lines of an agent's log, the weightiest first."""
_DISK = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded")
_TAIL_BYTES, _TAIL_LINES, _LONGEST_SAID = 32_768, 20, 160


def diagnose(fields: Mapping[str, Any], log: Path, *, disk_is_full: bool = False) -> tuple[str, str]:
    """The kind of failure of an ended attempt, empty for none, and what the log says of it.

    ``fields`` : of its record. The log counts only where the agent did not succeed, and only its last lines:
    an agent may well write about status 401 while it works.
    """
    for field, kind in (("stopped_by", str(fields.get("stopped_by") or "")), ("interrupted", "interrupted")):
        if fields.get(field):
            return kind, ""
    if not fields.get("gone", True):
        return "not_gone", ""
    if fields.get("oom_killed"):
        return "out_of_memory", ""
    if fields.get("error") or fields.get("agent_exit") is None:
        started = fields.get("agent_exit") is not None or (fields.get("agent_seconds") or 0) >= _STARTED_S
        return ("disk_full" if disk_is_full else "engine_lost" if started else "launch_error"), ""
    if fields["agent_exit"] == 0 and fields.get("delivered"):
        return "", ""
    if fields.get("timed_out"):
        return "timeout", ""
    kind, said = provider_error(log)
    if kind:
        return kind, said
    if disk_is_full and _DISK.search(tail(log)):
        return "disk_full", ""
    return ("agent_exit" if fields["agent_exit"] != 0 else "no_delivery"), ""


_STARTED_S = 1.0
"""An attempt that the engine gave up within this many seconds never got going."""


def provider_error(log: Path) -> tuple[str, str]:
    """A refusal by the model's provider in the last lines of the log: its kind and the words found."""
    text = tail(log)
    for kind, pattern in PROVIDER:
        found = pattern.search(text)
        if found:
            start = text.rfind("\n", 0, found.start()) + 1
            line = text[max(start, found.start() - _LONGEST_SAID // 2) :].split("\n", 1)[0]
            return kind, line.strip()[:_LONGEST_SAID]
    return "", ""


def tail(log: Path) -> str:
    """The last lines of a log that an agent may have written to; empty when there is none."""
    try:
        stream = open_plain(log)
    except OSError:
        return ""
    with stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
        lines = [line for line in stream.read(_TAIL_BYTES).split(b"\n") if line.strip()]
    return b"\n".join(lines[-_TAIL_LINES:]).decode("utf-8", "replace")


def final_state(kind: str) -> str:
    """State of a run that ends so; an empty kind is success."""
    return TABLE[kind].final_state if kind else DONE


def message(kind: str, fields: Mapping[str, Any]) -> str:
    """One clause for the summary, empty for success."""
    if not kind:
        return ""
    known = {name: fields.get(name) for name in ("agent_exit", "timeout_sec", "stopped_for", "error", "said")}
    return TABLE[kind].message.format(
        **{name: "" if value is None else value for name, value in known.items()}
    )
