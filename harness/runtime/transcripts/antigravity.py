"""Antigravity CLI: usage from the result that it prints, steps from ``transcript_full.jsonl``."""

from __future__ import annotations

from pathlib import Path

from harness.runtime.transcripts.base import (
    Notes,
    Reading,
    Usage,
    count,
    files,
    last_with_usage,
    objects,
)

_TRANSCRIPT = "transcript_full.jsonl"
_FOLDER = (".system_generated", "logs")


def read(session: Path, log: Path) -> Reading:
    """Usage of the last result; steps are the planner's responses, tool calls those that they list."""
    notes = Notes()
    transcripts = [path for path in files(session, _TRANSCRIPT) if path.parts[-3:-1] == _FOLDER]
    steps, calls = 0, 0
    for path in transcripts:
        for line in objects(path, notes):
            if line.get("type") == "PLANNER_RESPONSE":
                steps += 1
                listed = line.get("tool_calls")
                calls += len(listed) if isinstance(listed, list) else 0
    result = last_with_usage(objects(log, notes))
    usage = None
    if result is not None:
        record = result["usage"]
        usage = Usage(
            input=count(record, "input_tokens"),
            cached=count(record, "cache_read_tokens"),
            output=count(record, "output_tokens"),
            reasoning=count(record, "thinking_tokens"),
        )
    return Reading(usage, steps if transcripts else None, calls if transcripts else None, notes=notes())
