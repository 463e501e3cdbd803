"""Estimates that a process never came back from: a library crashed, memory ran out, the power went.

A mark lies beside an estimate while somebody works on it, and goes however that ends, unless the process
itself ends on the way. Its length says how often that has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = ".begun"


@contextmanager
def at_work(path: Path, notice: Callable[[int], None]) -> Iterator[None]:
    """Mark the estimate at ``path`` as being worked on. Only under its directory's lock.

    ``notice`` is told how often a process has ended on it before, if one has. Where nothing can be written
    there is no mark.
    """
    mark, before = _mark(path), abrupt_ends(path)
    if before:
        notice(before)
    with suppress(OSError), mark.open("ab") as stream:
        stream.write(b".")
    try:
        yield
    finally:
        with suppress(OSError):
            mark.unlink()


def abrupt_ends(path: Path) -> int:
    """How many processes have ended on an estimate; one that is at work on it counts."""
    try:
        return max(1, _mark(path).stat().st_size)  # a full disk holds empty files
    except OSError:
        return 0


def has_abrupt_ends(directory: Path) -> bool:
    """Whether a process has ended on any estimate of a directory, or one is at work there."""
    return any(directory.glob(f".*{MARK}"))


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}{MARK}")
