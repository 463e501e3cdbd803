"""Errors that a user can mend: one line that says what, where, what was expected and what to do next."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

EXIT_OK = 0
EXIT_ITEM_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_INTERRUPTED = "interrupted; run the same command again to continue"


class UserError(Exception):
    """A fault in what the user gave, shown as one line and without a traceback; the exit status is 2.

    Parameters
    ----------
    what : what is wrong, in words of the user's world.
    where : file, key or path that it is wrong in; empty when the message says it already.
    expected : what would have been right; empty when obvious.
    next_step : the command or edit that mends it; empty when obvious.
    """

    def __init__(self, what: str, *, where: object = "", expected: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = str(where)
        self.expected = expected
        self.next_step = next_step
        super().__init__(self.line())

    def line(self) -> str:
        """The message on one line (line breaks inside the parts are folded)."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected:
            text += f"; expected {self.expected}"
        if self.next_step:
            text += f". Next: {self.next_step}"
        return one_line(text)


def one_line(text: str) -> str:
    """Fold white space and control characters, so that hostile names cannot fake further lines."""
    folded = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in folded)


def fail(error: UserError) -> NoReturn:
    """Print the error on standard error and leave with status 2."""
    sys.stderr.write(f"error: {error.line()}\n")
    sys.exit(EXIT_USAGE)


def end_on_interrupt() -> None:
    """Until :func:`run_program` takes over, Ctrl-C ends the process at once: one line, status 130.

    Called by programs before their imports. An exception in the middle of an import could come out as
    anything; and nothing has been done yet that would have to be undone.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: object) -> NoReturn:
    os.write(2, f"{_INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def file_faults(next_step: str = "") -> Iterator[None]:
    """Turn what the file system refuses inside the block into ``UserError``; for a program's first steps."""
    try:
        yield
    except OSError as error:
        raise UserError(
            (error.strerror or str(error) or type(error).__name__).lower(),
            where=error.filename if error.filename is not None else "",
            next_step=next_step,
        ) from error


def run_program(main: Callable[[], int]) -> NoReturn:
    """Run a program's ``main`` with the project's exit rules.

    ``UserError`` → one line, status 2; Ctrl-C → one line, status 130; otherwise what ``main`` returns.
    """
    if signal.getsignal(signal.SIGINT) == _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = main()
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.stderr.write(f"{_INTERRUPTED}\n")
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has left: not an error of ours.
        sys.stderr.close()
        status = EXIT_ITEM_FAILED
    sys.exit(status)
