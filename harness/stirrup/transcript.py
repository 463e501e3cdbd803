"""The transcript: one JSON line an event, flushed at once, so that nothing is lost however the run ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel
from stirrup.utils.logging import AgentLoggerBase

SUMMARY, BRIDGE = 4000, 2000
"""Characters that are kept of a summary and of the prompt that follows it."""


class Transcript(AgentLoggerBase):
    """Writes ``<directory>/<time>.jsonl``; ``say`` prints a line for people."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        self.path = directory / f"{now:%Y%m%d-%H%M%S}.jsonl"
        self._stream = self.path.open("a", encoding="utf-8")
        self._say = say
        self.turns = 0
        self.name, self.model, self.max_turns, self.depth = "4dcb", None, None, 0
        self.finish_params, self.run_metadata, self.output_dir = None, None, None

    def write(self, event: str, **members: Any) -> None:
        """Append one event."""
        line = {"type": event, "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **members}
        self._stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def on_step(self, step: int, tool_calls: int = 0, input_tokens: int = 0, output_tokens: int = 0) -> None:
        self.turns = step
        counts = {"tool_calls": tool_calls, "input_tokens": input_tokens, "output_tokens": output_tokens}
        self.write("step", step=step, **counts)
        self._say(
            f"turn {step}: {tool_calls} tool calls, {input_tokens} tokens read, {output_tokens} written"
        )

    def assistant_message(self, turn: int, max_turns: int, assistant_message: Any) -> None:
        self.write("assistant", turn=turn, message=plain(assistant_message))

    def user_message(self, user_message: Any) -> None:
        self.write("user", message=plain(user_message))

    def task_message(self, task: str | list[Any]) -> None:
        self.write("task", task=plain(task))

    def tool_result(self, tool_message: Any) -> None:
        self.write("tool", message=plain(tool_message))

    def context_summarization_start(self, pct_used: float, cutoff: float) -> None:
        self.write("summarization_start", pct_used=pct_used, cutoff=cutoff)
        self._say(f"{pct_used:.0%} of the context window is used: summarising")

    def context_summarization_complete(self, summary: str, bridge: str) -> None:
        self.write("summarization_complete", summary=summary[:SUMMARY], bridge=bridge[:BRIDGE])

    def debug(self, message: str, *args: object) -> None:
        pass

    def info(self, message: str, *args: object) -> None:
        self._text("info", message, args)

    def warning(self, message: str, *args: object) -> None:
        self._text("warning", message, args)

    def error(self, message: str, *args: object) -> None:
        self._text("error", message, args)

    def _text(self, event: str, message: str, args: tuple[object, ...]) -> None:
        try:
            text = message % args if args else message
        except (TypeError, ValueError):
            text = f"{message} {args}"
        self.write(event, text=text)


def plain(value: Any) -> Any:
    """``value`` as JSON types; what is binary is replaced by its kind and size."""
    data = getattr(value, "data", None)
    if isinstance(data, bytes):
        kind = str(getattr(value, "kind", "binary"))
        if "image" in kind:
            return {"kind": "image", "bytes": len(data), "mime": getattr(value, "mime_type", None)}
        return {"kind": kind, "note": f"{len(data)} bytes"}
    if isinstance(value, bytes):
        return {"kind": "binary", "note": f"{len(value)} bytes"}
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
