"""What the checker's programs share: one-line faults of arguments, crashes that do not look like verdicts."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from contract.errors import EXIT_USAGE, UserError, one_line, run_program
from contract.names import CONTAINER

EXIT_CRASH = 3


class Parser(argparse.ArgumentParser):
    """Arguments whose faults are one line and status 2."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {one_line(message)}. Next: python -m {self.prog} --help\n")
        sys.exit(EXIT_USAGE)


def parser(prog: str, description: str) -> Parser:
    """A parser with ``--workspace``, abbreviations off."""
    made = Parser(prog=prog, description=description, allow_abbrev=False)
    made.add_argument(
        "--workspace",
        type=Path,
        default=Path(CONTAINER.workspace),
        metavar="DIR",
        help="directory that holds world/ and solution/ (default: %(default)s)",
    )
    return made


def existing_workspace(path: Path) -> Path:
    """``path``, or ``UserError`` when it is no directory."""
    if not path.is_dir():
        raise UserError("is no directory", where=path, next_step="name the workspace with --workspace DIR")
    return path


def run(main: Callable[[], int], what: str) -> NoReturn:
    """Run a program; a crash of its own becomes one line and status 3, with the trace in a file."""

    def guarded() -> int:
        try:
            return main()
        except (UserError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:
            where = _keep_trace()
            text = f"internal error in {what}: {type(error).__name__}: {error}"
            sys.stderr.write(
                f"{one_line(text)[:500]}; this is a fault of {what}, please report it with {where}\n"
            )
            return EXIT_CRASH

    run_program(guarded)


def _keep_trace() -> str:
    handle, name = tempfile.mkstemp(prefix="checker-crash-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(" ".join(map(repr, sys.argv)) + "\n" + traceback.format_exc())
    return name
