"""The documents that an agent is given, with the placeholders of ``TASK.md`` filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from contract.names import TASK_FILES, AgentPaths
from harness.runtime.config import REPOSITORY

CONTEXT = REPOSITORY / "harness" / "agent_context"
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+(?:\.[a-z_]+)*)\}\}")


def placeholders(paths: AgentPaths, checker: str, preview: str, timeout: int) -> dict[str, str]:
    """Values for ``TASK.md``.

    ``checker``, ``preview`` : the command lines of the two tools, ``python -m checker`` in containers.
    ``timeout`` : wall clock in seconds.
    """
    return {
        "paths.task": str(paths.task),
        "paths.video": str(paths.video),
        "paths.workspace": str(paths.workspace),
        "paths.world": str(paths.world),
        "paths.solution": str(paths.solution),
        "commands.checker": checker,
        "commands.preview": preview,
        "limits.time": duration(timeout),
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{{name}}`` in ``text``. Raises ``KeyError`` for an unknown name, ``ValueError`` for a stray
    brace pair.
    """
    filled = _PLACEHOLDER.sub(lambda found: values[found[1]], text)
    if _stray(text):
        raise ValueError("TASK.md holds a double brace that is no placeholder")
    return filled


def _stray(text: str) -> bool:
    rest = _PLACEHOLDER.sub("", text)
    return "{{" in rest or "}}" in rest


def task_text(values: Mapping[str, str]) -> str:
    """The filled ``TASK.md``."""
    return fill((CONTEXT / TASK_FILES[0]).read_text(encoding="utf-8"), values)


def write_task(directory: Path, text: str) -> None:
    """Write the three documents into ``directory`` (created)."""
    directory.mkdir(parents=True)
    (directory / TASK_FILES[0]).write_text(text, encoding="utf-8")
    for name in TASK_FILES[1:]:
        (directory / name).write_bytes((CONTEXT / name).read_bytes())


def duration(seconds: int) -> str:
    """Seconds as people say them: ``6 hours``, ``90 minutes``, ``45 seconds``."""
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}{'s' if count != 1 else ''}"
    if seconds > 600:
        return duration(seconds // 60 * 60)
    return f"{seconds} second{'s' if seconds != 1 else ''}"
