"""Opening a file that an agent may replace by anything at any moment."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path) -> BinaryIO:
    """A regular file for reading. Raises ``OSError`` for links, pipes, sockets, devices and directories, and
    waits for nobody.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is no plain file")
    return os.fdopen(handle, "rb")
