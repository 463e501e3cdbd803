"""``python -m world.packed.worker``: unpacks files of packed worlds on request, in a process of its own.

A hostile or broken file can crash HDF5 or make it ask for any amount of memory; here it takes only this
process with it. One JSON object a line: requests on standard input, replies on standard output. ``inspect``
answers with the files of a world, ``unpack`` writes one of them, reporting progress on the way. The process
ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from contract.errors import one_line

INTERVAL = 0.2
"""Seconds between reports of progress, at least. Also how soon an orphan notices that nobody listens."""
MEMORY = 2 << 30
"""Bytes of memory that the process may ask for."""


def main() -> int:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no reply
    _bound_memory()
    try:
        for line in sys.stdin:
            _answer(json.loads(line), replies)
    except BrokenPipeError:
        os._exit(1)  # the program that asked is gone
    return 0


def _answer(request: dict[str, Any], replies: IO[str]) -> None:
    try:
        _reply(replies, {"done": _perform(request, _Progress(replies))})
    except BrokenPipeError:
        raise
    except OSError as error:
        fault = error.strerror or str(error) or type(error).__name__
        _reply(replies, {"error": one_line(fault), "errno": error.errno})
    except Exception as error:
        _reply(replies, {"error": one_line(str(error)) or type(error).__name__})


def _perform(request: dict[str, Any], progress: _Progress) -> object:
    from world.packed.layout import Unit
    from world.packed.reading import open_packed
    from world.packed.unpack import file_digest, write_unit

    with open_packed(Path(request["packed"])) as world:
        if request["do"] == "inspect":
            return [asdict(unit) for unit in world.units()]
        path = Path(request["path"])
        write_unit(world, Unit(**request["unit"]), path, progress.advance)
    return {"advance": progress.taken(), "sha256": file_digest(path), "size": path.stat().st_size}


class _Progress:
    """Gathers small steps into a line now and then."""

    def __init__(self, replies: IO[str]) -> None:
        self._replies = replies
        self._count = 0
        self._last = time.monotonic()

    def advance(self, count: int) -> None:
        self._count += count
        if time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            _reply(self._replies, {"advance": self.taken()})

    def taken(self) -> int:
        count, self._count = self._count, 0
        return count


def _reply(replies: IO[str], value: object) -> None:
    replies.write(json.dumps(value) + "\n")
    replies.flush()


def _bound_memory() -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


if __name__ == "__main__":
    sys.exit(main())
