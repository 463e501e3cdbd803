"""Claude Code: ``.claude/projects/**/*.jsonl``, one line a content block, sub-agents in files of their own.

A message's usage stands on each of its lines and grows while it streams: messages are told apart by
``(message.id, requestId)``, or by ``message.id`` where there is no request id, and the last line of a message
counts. Copies of a message in other files (a resumed session) count once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.runtime.transcripts.base import (
    Notes,
    Reading,
    Usage,
    count,
    dollars,
    files,
    last_with_usage,
    mapping,
    objects,
)

Key = tuple[str, str]


def read(session: Path, log: Path) -> Reading:
    """Usage, steps (assistant messages) and tool calls; the program's own total cost where its result has
    one.
    """
    notes = Notes()
    usage: dict[Key, Usage] = {}
    messages: set[str] = set()
    tools: set[str] = set()
    transcripts = files(session, "*.jsonl")
    for path in transcripts:
        for line in objects(path, notes):
            message = mapping(line, "message")
            if isinstance(message.get("usage"), dict):
                key, found = _key(line, message), _usage(message["usage"])
                # Within a file the last line wins; a copy elsewhere may have been cut while it streamed.
                if key not in usage or found.output >= usage[key].output:
                    usage[key] = found
            if line.get("type") == "assistant":
                name = message.get("id") or line.get("uuid")
                if isinstance(name, str):
                    messages.add(name)
                tools.update(_tool_calls(line, message))
    result = last_with_usage(objects(log, notes))
    total = None
    if usage:
        total = sum(usage.values(), Usage())
    elif result is not None:
        total = _usage(result["usage"])
    return Reading(
        usage=total,
        steps=len(messages) if transcripts else None,
        tool_calls=len(tools) if transcripts else None,
        reported_usd=None if result is None else dollars(result.get("total_cost_usd")),
        notes=notes(),
    )


def _key(line: dict[str, Any], message: dict[str, Any]) -> Key:
    name = message.get("id") or line.get("uuid")
    return str(name), str(line.get("requestId") or "")


def _usage(record: dict[str, Any]) -> Usage:
    return Usage(
        input=count(record, "input_tokens"),
        cached=count(record, "cache_read_input_tokens"),
        written=count(record, "cache_creation_input_tokens"),
        output=count(record, "output_tokens"),
        reasoning=count(mapping(record, "output_tokens_details"), "thinking_tokens"),
    )


def _tool_calls(line: dict[str, Any], message: dict[str, Any]) -> list[str]:
    """Identifiers of the tool calls of a line; a call is repeated where its line is copied."""
    content = message.get("content")
    calls = []
    for index, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and block.get("type") == "tool_use":
            calls.append(str(block.get("id") or f"{line.get('uuid')}:{index}"))
    return calls
