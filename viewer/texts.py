"""Text files of a run in pages, whatever they hold: never more than a page in memory."""

from __future__ import annotations

import os
from typing import Any

from contract.names import LOGS, SESSION, SOLUTION, WORKSPACE
from viewer.trees import Absent, Trees, open_file

PAGE = 256 << 10
_SHOWN = ((LOGS,), (SESSION,), (WORKSPACE, SOLUTION))


def text_parts(path: str) -> tuple[str, ...]:
    """Levels of a text below its run. Raises ``Absent`` when it is none that is shown."""
    parts = tuple(path.split("/"))
    if not any(parts[: len(top)] == top and len(parts) > len(top) for top in _SHOWN):
        raise Absent("not a text of this run")
    return parts


def read_page(trees: Trees, run: tuple[str, ...], path: str, start: int) -> dict[str, Any]:
    """A page of the file from byte ``start``; negative counts from the end. Raises ``Absent``."""
    handle = open_file(trees.runs, (*run, *text_parts(path)))
    try:
        size = os.fstat(handle).st_size
        first = max(0, size + start) if start < 0 else min(start, size)
        data = os.pread(handle, PAGE, first)
    finally:
        os.close(handle)
    binary = b"\0" in data
    return {
        "path": path,
        "size": size,
        "start": first,
        "stop": first + len(data),
        "binary": binary,
        "text": "" if binary else data.decode("utf-8", "replace"),
    }
