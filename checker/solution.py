"""solution/: the program that recreates the world."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from contract.names import BUILD_SCRIPT, SOLUTION
from world.validation import Violation
from world.validation.files import describe, mode_of
from world.validation.violation import reason

_SUFFIXES = (".py", ".sh")
_CACHES = ("__pycache__",)


def check_solution(workspace: Path) -> list[Violation]:
    """Check ``solution/`` (L1–L6): an executable ``build.sh``, only ``.py`` and ``.sh`` files beside it."""
    solution = workspace / SOLUTION
    mode = mode_of(solution)
    if mode is None:
        return [Violation(SOLUTION, "path", "is required: a directory with build.sh")]
    if not stat.S_ISDIR(mode):
        return [Violation(SOLUTION, "", f"must be a directory, is {describe(mode)}")]
    name = f"{SOLUTION}/{BUILD_SCRIPT}"
    mode = mode_of(solution / BUILD_SCRIPT)
    if mode is None:
        return [Violation(name, "", "required: running it must recreate the whole world")]
    if not stat.S_ISREG(mode):
        return [Violation(name, "", f"must be a file, is {describe(mode)}")]
    found = []
    if not mode & 0o111:
        found.append(Violation(name, "", f"must be executable; run chmod +x {name}"))
    return found + _foreign_files(solution)


def _foreign_files(solution: Path) -> list[Violation]:
    """L6: regular files that are neither Python nor shell, sorted by path; links are reported elsewhere."""
    found: list[tuple[tuple[str, ...], Violation]] = []
    pending: list[tuple[str, ...]] = [()]
    while pending:
        parts = pending.pop()
        try:
            with os.scandir(solution.joinpath(*parts)) as entries:
                listed = list(entries)
        except OSError as error:
            name = "/".join((SOLUTION, *parts))
            found.append((parts, Violation(name, "", f"cannot be listed ({reason(error)})")))
            continue
        for entry in listed:
            below = (*parts, entry.name)
            if entry.is_dir(follow_symlinks=False):
                pending.append(below)
            elif _is_regular(entry) and Path(entry.name).suffix not in _SUFFIXES:
                found.append((below, Violation("/".join((SOLUTION, *below)), "", _remedy(below))))
    return [violation for _, violation in sorted(found, key=lambda item: item[0])]


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        # A link that leads in circles.
        return False


def _remedy(parts: tuple[str, ...]) -> str:
    text = "only .py and .sh files are allowed here"
    if any(part in _CACHES for part in parts):
        return f"{text}; delete __pycache__ (python -B, or PYTHONDONTWRITEBYTECODE=1, writes none)"
    if Path(parts[-1]).suffix.lower() in _SUFFIXES:
        return f"{text}; write the suffix in lower case"
    return f"{text}; data must be made by the program"
