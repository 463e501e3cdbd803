"""The worker process: answers calls of the scorer, one at a time, until it is told to stop or is killed.

Started as ``python -m scorer.child <connection> <lifeline> <tasks>`` (file descriptors, and the class whose
methods are called), as leader of its own session, so that killing its process group takes everything that it
started along.
"""

from __future__ import annotations

import errno
import faulthandler
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scorer.messages import READY, Reply

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
TEXT_LIMIT, TRACE_LIMIT = 2000, 4000


def main() -> None:
    connection_fd, lifeline = int(sys.argv[1]), int(sys.argv[2])
    module, _, name = sys.argv[3].rpartition(".")
    os.set_inheritable(connection_fd, False)
    start_guardian(lifeline, connection_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the scorer decides when a worker ends
    faulthandler.enable()
    prefer_to_be_killed()
    tasks = getattr(import_module(module), name)
    serve(Connection(connection_fd), tasks())


def start_guardian(lifeline: int, connection_fd: int) -> None:
    """Fork a process that kills the whole group as soon as the scorer is gone, however it went.

    It waits for the end of a pipe whose other end only the scorer holds. A thread would not do: a library
    that holds the interpreter lock in a long computation would keep the group alive.
    """
    if os.fork():
        os.close(lifeline)
        return
    os.close(connection_fd)  # else the scorer would not see the worker's death
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def prefer_to_be_killed() -> None:
    """When memory runs out, the kernel is to take this worker, not the scorer that keeps the records."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def serve(connection: Connection, tasks: object) -> None:
    """Say ready, then answer each ``(method, arguments)`` with a :class:`Reply`, until the pipe ends."""
    connection.send(READY)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        method, arguments = request
        connection.send(answer(getattr(tasks, method), arguments))


def answer(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Reply:
    """Call and wrap. Only ``Exception`` is caught; anything else ends the worker."""
    try:
        return Reply(call(*arguments))
    except Exception as error:
        reply = Reply(
            failed=True,
            text=f"{type(error).__name__}: {error}"[:TEXT_LIMIT],
            infrastructure=is_infrastructure(error),
            trace=traceback.format_exc()[-TRACE_LIMIT:],
        )
    gc.collect()  # the traceback held the frames, and with them the arrays
    return reply


def is_infrastructure(error: BaseException) -> bool:
    """Whether the machine failed rather than the submission: no memory, no disk space."""
    if getattr(error, "infrastructure", False) or isinstance(error, MemoryError):
        return True
    return isinstance(error, OSError) and error.errno in (*DISK_FULL, errno.ENOMEM)


if __name__ == "__main__":
    main()
