"""What every transcript reader returns, and how it reads files that an agent has written.

Nothing here is trusted: lines may be cut, huge or no JSON at all, numbers may be anything. What cannot be
used is left out and said in ``notes``; a transcript is never a reason for a run to fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

LONGEST_LINE = 64 << 20
"""Bytes of one line that are read; longer ones (a file that never ends its line) are skipped."""


@dataclass(frozen=True)
class Usage:
    """Tokens of a run. ``input``: read afresh; ``cached``: read from a cache; ``written``: put into one;
    ``output``: produced, ``reasoning`` among them.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __sub__(self, other: Usage) -> Usage:
        """Difference of two cumulative counts; a counter that went back counts as unchanged."""
        return Usage(*(max(0, getattr(self, one.name) - getattr(other, one.name)) for one in fields(self)))

    @property
    def total(self) -> int:
        """Every token that passed the wire; reasoning is part of the output."""
        return self.input + self.cached + self.written + self.output

    def record(self) -> dict[str, int]:
        """The names of ``run.json``."""
        return {
            "input_tokens": self.input,
            "cached_input_tokens": self.cached,
            "cache_write_tokens": self.written,
            "output_tokens": self.output,
            "reasoning_output_tokens": self.reasoning,
        }

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> Usage:
        """The inverse of :meth:`record`; what is missing counts 0."""
        return cls(*(count(record, name) for name in cls().record()))


@dataclass(frozen=True)
class Reading:
    """What a transcript says. None: it does not say.

    reported_usd : cost that the agent's own program reports. notes : what was left out, one sentence each.
    """

    usage: Usage | None = None
    steps: int | None = None
    tool_calls: int | None = None
    reported_usd: float | None = None
    notes: tuple[str, ...] = field(default=())


class Reader(Protocol):
    """A module of this package."""

    def read(self, session: Path, log: Path) -> Reading:
        """Read the session directory of a run and its ``agent.log``; either may be missing."""


class Notes:
    """Sentences about what was skipped, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        self._texts[text] = None

    def __call__(self) -> tuple[str, ...]:
        return tuple(self._texts)


def files(root: Path, pattern: str) -> list[Path]:
    """Regular files below ``root`` that match, sorted by name; links are not followed."""
    if not root.is_dir() or root.is_symlink():
        return []
    return sorted(path for path in root.rglob(pattern) if path.is_file() and not path.is_symlink())


def objects(path: Path, notes: Notes) -> Iterator[dict[str, Any]]:
    """JSON objects of a file, one a line; other lines are skipped, a cut last one with a note."""
    try:
        stream = path.open("rb")
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            notes.add(f"{path.name} cannot be read: {error.strerror}")
        return
    with stream:
        while line := stream.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                notes.add(f"{path.name} has a line of more than {LONGEST_LINE >> 20} MiB, skipped")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST_LINE)
                continue
            text = line.strip()
            if not text.startswith(b"{"):
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                if not line.endswith(b"\n"):
                    notes.add(f"{path.name} ends in a cut line, skipped")
                continue
            if isinstance(value, dict):
                yield value


def mapping(value: Any, *path: str) -> dict[str, Any]:
    """The object at ``path`` inside ``value``; empty when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def count(record: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 for what is no count."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 1e15 else 0


def dollars(value: Any) -> float | None:
    """A reported cost, or None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        return None
    return float(value)


def last_with_usage(lines: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The last object that has a ``usage`` object."""
    found = None
    for line in lines:
        if isinstance(line.get("usage"), dict):
            found = line
    return found
