"""Worker processes that unpack worlds side by side, all together within a bound of memory."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from case_tree import REPOSITORY

from contract.errors import one_line

if TYPE_CHECKING:
    from types import TracebackType

MEMORY = 2 << 30
"""Bytes that the program and its workers hold at most."""
_OWN = 256 << 20
"""Of these, what the program itself takes."""
_WORKER = 96 << 20
"""And what a worker takes before it reads anything."""
_USUAL = 160 << 20
"""What a worker takes for a file of usual size."""

Advance = Callable[[int], None]


class UnpackFault(Exception):
    """Why a file could not be unpacked, in one line. errno : the system's number, where it was the system."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass
class _Request:
    question: dict[str, Any]
    memory: int
    advance: Advance
    answer: Future[Any] = field(default_factory=Future)


class Slots:
    """Processes of ``world.packed.worker``, started when they are needed; a context manager.

    A process that dies costs the request that it was given; the next request gets a new one.
    """

    def __init__(self, count: int | None = None) -> None:
        most = (MEMORY - _OWN) // (_WORKER + _USUAL)
        self.count = max(1, min(count or len(os.sched_getaffinity(0)), most))
        self._free = MEMORY - _OWN - self.count * _WORKER
        self._room = self._free
        self._changed = threading.Condition()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._workers: dict[int, subprocess.Popen[str]] = {}
        self._closed = False

    def __enter__(self) -> Slots:
        for number in range(self.count):
            threading.Thread(target=self._serve, args=(number,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for _ in range(self.count):
            self._requests.put(None)

    def stop(self) -> None:
        """End the processes; whoever waits for an answer gets ``UnpackFault``."""
        self._closed = True
        for worker in list(self._workers.values()):
            worker.kill()
            worker.wait()

    def ask(self, question: dict[str, Any], *, memory: int = 0, advance: Advance = lambda count: None) -> Any:
        """A future answer. memory : bytes that answering takes at most. advance : told of progress.

        The answer raises ``UnpackFault``.
        """
        request = _Request(question, memory, advance)
        self._requests.put(request)
        return request.answer

    def pids(self) -> list[int]:
        """Of the processes that run now."""
        return [worker.pid for worker in list(self._workers.values())]

    def _serve(self, number: int) -> None:
        while (request := self._requests.get()) is not None:
            with self._changed:
                self._changed.wait_for(lambda: request.memory <= self._free or self._free == self._room)
                self._free -= request.memory
            try:
                request.answer.set_result(self._answer(number, request))
            except Exception as error:
                request.answer.set_exception(error)
            finally:
                with self._changed:
                    self._free += request.memory
                    self._changed.notify_all()

    def _answer(self, number: int, request: _Request) -> Any:
        if self._closed:
            raise UnpackFault("stopped")
        worker = self._workers.get(number)
        if worker is None:
            worker = self._workers[number] = _start()
            if self._closed:
                worker.kill()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(request.question) + "\n")
            worker.stdin.flush()
            for line in worker.stdout:
                reply = json.loads(line)
                if "advance" in reply:
                    request.advance(reply["advance"])
                elif "error" in reply:
                    raise UnpackFault(reply["error"], reply.get("errno"))
                else:
                    return reply["done"]
        except BrokenPipeError:
            pass
        del self._workers[number]
        raise UnpackFault(f"the process that unpacks it {_end(worker)}")


def _start() -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))))
    single = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
    return subprocess.Popen(
        [sys.executable, "-m", "world.packed.worker"],
        env=os.environ | single | {"PYTHONPATH": path, "BLOSC_NTHREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _end(worker: subprocess.Popen[str]) -> str:
    worker.wait()
    if worker.returncode >= 0:
        return f"ended with status {worker.returncode}"
    try:
        return f"was killed ({signal.Signals(-worker.returncode).name})"
    except ValueError:
        return one_line(f"was killed by signal {-worker.returncode}")
