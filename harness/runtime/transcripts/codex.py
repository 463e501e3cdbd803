"""Codex CLI: ``.codex/sessions/**/rollout-*.jsonl`` and the events that ``codex exec --json`` prints.

``token_count`` events are cumulative within a rollout: its usage is its last total, minus what the total was
before its first event (a resumed or forked session starts with the history of another). Cached input is part
of the input there. Where no rollout was kept, the last ``turn.completed`` event of the log serves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.runtime.transcripts.base import Notes, Reading, Usage, count, files, mapping, objects

_CALLS = ("custom_tool_call", "function_call", "local_shell_call")


def read(session: Path, log: Path) -> Reading:
    """Usage, steps (distinct ``token_count`` events) and tool calls of all rollouts."""
    notes = Notes()
    rollouts = files(session, "rollout-*.jsonl")
    total, steps, calls = Usage(), 0, 0
    counted = False
    for path in rollouts:
        usage, own_steps, own_calls = _rollout(path, notes)
        steps, calls = steps + own_steps, calls + own_calls
        if usage is not None:
            total, counted = total + usage, True
    found = total if counted else _from_log(log, notes)
    return Reading(found, steps if rollouts else None, calls if rollouts else None, notes=notes())


def _rollout(path: Path, notes: Notes) -> tuple[Usage | None, int, int]:
    baseline: Usage | None = None
    last: Usage | None = None
    steps, calls = 0, 0
    seen: set[str] = set()
    for line in objects(path, notes):
        payload = mapping(line, "payload")
        if line.get("type") == "response_item" and payload.get("type") in _CALLS:
            name = str(payload.get("call_id") or payload.get("id") or f"#{calls}")
            calls += name not in seen
            seen.add(name)
        if line.get("type") != "event_msg" or payload.get("type") != "token_count":
            continue
        info = mapping(payload, "info")
        if not isinstance(info.get("total_token_usage"), dict):
            steps += 1 if isinstance(info.get("last_token_usage"), dict) else 0
            last = (last or Usage()) + _usage(mapping(info, "last_token_usage"))
            baseline = baseline or Usage()
            continue
        now = _usage(info["total_token_usage"])
        if baseline is None:
            own = mapping(info, "last_token_usage")
            baseline = now - _usage(own) if own else Usage()
        if now != last:
            steps += 1
            last = now
    if last is None or baseline is None:
        return None, steps, calls
    return last - baseline, steps, calls


def _from_log(log: Path, notes: Notes) -> Usage | None:
    """The last finished turn: its counts are those of the whole thread."""
    found = None
    for line in objects(log, notes):
        if line.get("type") == "turn.completed" and isinstance(line.get("usage"), dict):
            found = _usage(line["usage"])
    return found


def _usage(record: dict[str, Any]) -> Usage:
    cached = count(record, "cached_input_tokens")
    return Usage(
        input=max(0, count(record, "input_tokens") - cached),
        cached=cached,
        output=count(record, "output_tokens"),
        reasoning=count(record, "reasoning_output_tokens"),
    )
