"""The transcript format for agents of one's own: JSON lines that say what was used.

Any ``*.jsonl`` below the agent's ``session_dir`` may hold lines like ::

    {"usage": {"input_tokens": 1200, "output_tokens": 80, "cached_input_tokens": 0}, "cost_usd": 0.004,
     "steps": 1, "tool_calls": 2}

Each line adds to what the lines before it said; every field but ``usage`` may be left out. Other lines are
skipped, a last line that was cut too.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.names import AGENT_LOG, LOGS, SESSION
from harness.runtime.accounting import TOKEN_FIELDS, Account, tokens_of
from harness.runtime.plainfile import open_plain
from harness.runtime.transcripts.base import dollars

FIELDS = (*TOKEN_FIELDS, "reasoning_output_tokens")
LONGEST_LINE = 1 << 20


@dataclass
class _Total:
    """Sums over the lines read so far; ``unpriced`` lines said nothing of dollars."""

    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FIELDS, 0))
    lines: int = 0
    unpriced: int = 0
    cost: float = 0.0
    steps: int = 0
    tool_calls: int = 0

    def add(self, line: dict[str, Any]) -> None:
        usage = line["usage"]
        self.lines += 1
        for name in FIELDS:
            self.usage[name] += _count(usage.get(name))
        cost = dollars(line.get("cost_usd"))
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost
        self.steps += _count(line.get("steps", 1))
        self.tool_calls += _count(line.get("tool_calls"))

    @property
    def dollars(self) -> float | None:
        return round(self.cost, 6) if self.lines and not self.unpriced else None


class UsageLog:
    """Reader of the format above."""

    def account(self, run: Path, model: str) -> Account:
        total = _read(run / SESSION)
        if not total.lines:
            return Account(cost_note="no usage lines in the session")
        note = f"{total.unpriced} of {total.lines} usage lines name no cost_usd" if total.unpriced else ""
        return Account(dict(total.usage), total.dollars, note, total.steps, total.tool_calls)

    def live(self, session: Path, log: Path, model: str) -> tuple[int, float | None]:
        total = _read(session)
        return tokens_of(total.usage), total.dollars

    def priced(self, model: str) -> bool:
        return True


class Free:
    """Agents that ask no paid model: they use no tokens and cost nothing, and that is known."""

    def account(self, run: Path, model: str) -> Account:
        known = (run / LOGS / AGENT_LOG).exists()
        return Account(dict.fromkeys(FIELDS, 0), 0.0) if known else Account()

    def live(self, session: Path, log: Path, model: str) -> tuple[int, float | None]:
        return 0, 0.0

    def priced(self, model: str) -> bool:
        return True


READER = UsageLog()
FREE = Free()


def _read(session: Path) -> _Total:
    total = _Total()
    for path in sorted(session.rglob("*.jsonl")):
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                for line in _lines(path):
                    total.add(line)
        except OSError:
            continue  # gone meanwhile
    return total


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    # An agent that goes on may put a pipe there at any moment; nobody waits for its writer.
    with open_plain(path) as stream:
        while text := stream.readline(LONGEST_LINE):
            if not text.endswith(b"\n"):
                return  # cut, or longer than any line of this format: the rest is something else
            if not text.lstrip().startswith(b"{"):
                continue
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and isinstance(line.get("usage"), dict):
                yield line


def _count(value: object) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if good and isinstance(value, int) else 0
