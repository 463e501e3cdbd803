"""What the programs that take work from a queue have in common."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from contract.errors import UserError
from contract.workqueue import MANIFEST


def manifest_of(directory: Path) -> Path:
    """Path of a queue's manifest. Raises ``UserError`` when the directory is no queue."""
    if not (directory / MANIFEST).is_file():
        raise UserError("is no queue", where=directory, expected=f"a directory with {MANIFEST}")
    return directory / MANIFEST


def worker_name() -> str:
    """A name for a worker that was given none."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def worker_facts() -> dict[str, object]:
    """What a worker says of itself."""
    return {"host": socket.gethostname(), "pid": os.getpid()}
