"""One writer at a time per directory of results or estimates."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_PAUSE = 0.25


@contextmanager
def locked(
    directory: Path, stop: threading.Event, notice: Callable[[str], None], who: str = "scorer"
) -> Iterator[bool]:
    """Hold the directory's lock; waits for another ``who``. Yields False when ``stop`` was set meanwhile.

    The lock ends with the process, however that ends. ``notice`` is told when it waits, and when the file
    system knows no locks (the scoring then goes on without one).
    """
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        told = False
        while not _try(handle, notice, who):
            if not told:
                notice(f"waiting for another {who} that works on it")
                told = True
            if stop.wait(_PAUSE):
                yield False
                return
        yield True
    finally:
        os.close(handle)


def _try(handle: int, notice: Callable[[str], None], who: str) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        notice(f"the file system knows no locks: do not start a second {who} on it")
    return True
