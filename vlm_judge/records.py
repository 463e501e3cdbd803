"""Records: one JSON object a line, appended and flushed to the disk, never rewritten.

A process that is killed leaves at most one cut line behind. Readers skip it with a warning; the next writer
ends it, so that what follows stands on lines of its own.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from contract.errors import UserError
from contract.record import finite

Row = dict[str, Any]

_SHOWN = 5
"""Line numbers of unreadable lines that a warning names."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass
class Read:
    """What a file of records holds. ``warnings``: one sentence for each thing that was skipped."""

    rows: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def now() -> str:
    """The present as ISO 8601 with microseconds, UTC: it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_rows(path: Path) -> Read:
    """The objects of a JSONL file in file order. Blank lines are nothing; a line that is no JSON object is
    skipped with a warning. Raises ``UserError`` when the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError((error.strerror or "cannot be read").lower(), where=path) from error
    found = Read()
    bad: list[int] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            found.rows.append(row)
        elif number == len(lines):
            found.warnings.append(f"{path}: the last line is cut short and was skipped")
        else:
            bad.append(number)
    if bad:
        shown = ", ".join(map(str, bad[:_SHOWN])) + (", …" if len(bad) > _SHOWN else "")
        found.warnings.append(f"{path}: {len(bad)} lines that are no JSON objects were skipped ({shown})")
    return found


class Appender:
    """Writes records to the end of an open file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Append the rows in one write, and return when they are on the disk."""
        if not rows:
            return
        text = "".join(
            json.dumps(finite(dict(row)), ensure_ascii=False, allow_nan=False) + "\n" for row in rows
        )
        self._stream.write(text.encode("utf-8", "surrogatepass"))
        self._stream.flush()
        os.fsync(self._stream.fileno())


@contextmanager
def appending(path: Path) -> Iterator[Appender]:
    """The file open for appending, for this process alone; missing directories are made.

    Raises ``UserError`` where another process writes to it, or it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+b")
    except OSError as error:
        raise UserError((error.strerror or "cannot be written").lower(), where=path) from error
    with stream:
        _lock(stream, path)
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
                stream.flush()
        yield Appender(stream)


def _lock(stream: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            "another judge.py writes to this file", where=path, next_step="wait for it, or give another --out"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def text_of(row: Mapping[str, Any], key: str) -> str:
    """A text field, or "" where it is absent or something else."""
    value = row.get(key)
    return value if isinstance(value, str) else ""
