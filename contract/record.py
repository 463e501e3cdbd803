"""How records are written: strict JSON, sorted, whole or not at all.

Readers of this benchmark (viewer, reports, other people's scripts) parse these files while runs are going on,
so a file is never seen half written: it is written beside its destination, flushed to the disk and renamed
over it.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def dumps(value: object) -> str:
    """JSON text: indent 2, keys sorted at every level, one trailing newline, never a NaN or Infinity token.

    Raises ``ValueError`` on a non-finite number; see :func:`finite` for turning those into null first.
    """
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def finite(value: Any) -> Any:
    """A copy of nested lists, tuples and dictionaries with every non-finite float replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


@contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends well, and vanishes when it does not.

    The temporary file is dot-prefixed, carries a unique name and lies in the same directory, so that the
    final rename is atomic; the parent directory must exist. A process killed in between leaves the old
    ``path`` untouched, and a temporary file for :func:`clear_unfinished`.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


_UNFINISHED = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tmp", re.DOTALL)


def clear_unfinished(directory: Path) -> int:
    """Remove what killed writers (:func:`replacing`) left anywhere below ``directory``, and count it.

    Only for a tree that nobody writes to. Only regular files are touched, and only beside the file that they
    were to replace: another program's temporary files stay.
    """
    count = 0
    for parent, _, names in os.walk(directory):
        present = set(names)
        for name in names:
            match = _UNFINISHED.fullmatch(name)
            path = Path(parent, name)
            if match and match[1] in present and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
                count += 1
    return count


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as strict JSON to ``path``, atomically."""
    data = dumps(value).encode("utf-8")
    with replacing(path) as stream:
        stream.write(data)


def read_json(path: Path) -> Any:
    """Parse a JSON file. Raises ``OSError`` when unreadable and ``ValueError`` when not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def sync_directory(path: Path) -> None:
    """Flush a directory's entries, so that a rename survives a power cut. Ignored where unsupported."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
