"""What is said: results on standard output, everything about the work on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress

from contract.errors import one_line


def out(text: str, end: str = "\n") -> None:
    """A result."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def say(text: str) -> None:
    """A line about the work. A reader that has left costs nothing."""
    with suppress(OSError):
        sys.stderr.write(f"[JUDGE] {one_line(text)}\n")
        sys.stderr.flush()


def warn(text: str) -> None:
    say(f"warning: {text}")
