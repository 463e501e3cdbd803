"""One run over a workspace, and how its outcome is shown."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checker.solution import check_solution
from contract.names import SOLUTION, WORLD
from world.validation import Violation, check_links, examine


@dataclass(frozen=True)
class Report:
    """Violations in the published order, advice, and how long it took.

    strict : advice counts as well.
    """

    workspace: Path
    violations: list[Violation] = field(default_factory=list)
    advice: list[Violation] = field(default_factory=list)
    video: Path | None = None
    seconds: float = 0.0
    strict: bool = False

    @property
    def clean(self) -> bool:
        return not self.violations and not (self.strict and self.advice)

    def lines(self) -> list[str]:
        """What goes to standard output: one violation a line (with ``strict``, the advice too)."""
        return [str(item) for item in self.violations + (self.advice if self.strict else [])]

    def notes(self) -> list[str]:
        """What goes to standard error: advice, and one line of summary."""
        advice = [] if self.strict else [f"advice: {item}" for item in self.advice]
        verdict = "no violation" if not self.violations else _count(len(self.violations), "violation")
        if self.advice:
            verdict += f", {_count(len(self.advice), 'piece')} of advice"
        compared = f"compared with {self.video}" if self.video else "not compared with an input video"
        return [*advice, f"checker: {verdict} in {self.workspace} ({compared}; {self.seconds:.1f} s)"]

    def record(self) -> dict[str, Any]:
        """The same as one JSON object."""
        return {
            "workspace": _text(self.workspace),
            "video": None if self.video is None else _text(self.video),
            "clean": self.clean,
            "strict": self.strict,
            "violations": [_item(item) for item in self.violations],
            "advice": [_item(item) for item in self.advice],
            "seconds": round(self.seconds, 3),
        }


def check_workspace(workspace: Path, video: Path | None = None, *, strict: bool = False) -> Report:
    """Check links in both trees, the world and the solution, always all four, in this order.

    Raises ``UserError`` when ``video`` cannot be read.
    """
    start = time.monotonic()
    links = check_links(workspace / WORLD) + check_links(workspace / SOLUTION)
    world = examine(workspace / WORLD, video=video, links=False)
    violations = links + world.violations + check_solution(workspace)
    return Report(workspace, violations, world.advice, video, time.monotonic() - start, strict)


def _item(violation: Violation) -> dict[str, str]:
    return {
        "name": _text(violation.name),
        "field": _text(violation.field),
        "text": _text(violation.text),
        "line": str(violation),
    }


def _text(value: object) -> str:
    """Text that every encoder accepts: bytes of names that are not UTF-8 are escaped."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
