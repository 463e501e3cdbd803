"""The Stirrup runner: ``<session>/[0-9]*.jsonl``, with counters that add up over a file.

Such endpoints do not say what came from a cache: of each request, what the request before it had sent already
counts as cached.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from harness.runtime.transcripts.base import Notes, Reading, Usage, count, files, objects


def read(session: Path, log: Path) -> Reading:
    """Usage, steps and tool calls of all session files; ``log`` holds none."""
    notes = Notes()
    transcripts = files(session, "[0-9]*.jsonl")
    total, steps, calls = Usage(), 0, 0
    for path in transcripts:
        usage, own_steps, own_calls = _session(path, notes)
        total, steps, calls = total + usage, steps + own_steps, calls + own_calls
    return Reading(
        usage=total if steps else None,
        steps=steps if transcripts else None,
        tool_calls=calls if transcripts else None,
        notes=notes(),
    )


def _session(path: Path, notes: Notes) -> tuple[Usage, int, int]:
    requests: list[int] = []
    read, written, steps, calls = 0, 0, 0, 0
    for line in objects(path, notes):
        if line.get("type") != "step":
            continue
        steps += 1
        calls = max(calls, count(line, "tool_calls"))
        now = count(line, "input_tokens")
        requests.append(max(0, now - read))
        read, written = max(read, now), max(written, count(line, "output_tokens"))
    cached = sum(min(one, two) for one, two in itertools.pairwise(requests))
    return Usage(input=sum(requests) - cached, cached=cached, output=written), steps, calls
