"""The scorer's side of a worker process: start it, call it under a deadline, replace it when it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

from scorer.messages import READY, Reply

TASKS = "scorer.tasks.Tasks"
"""What a worker does unless told otherwise: dotted name of the class whose methods are called."""
_LOOK = 1.0
"""Seconds between two looks at whether a silent worker still lives."""


class CallFailed(Exception):
    """A call raised in the worker, which lives on. ``trace`` holds the end of its traceback.

    opening : it was the selection before the call that failed.
    """

    opening = False

    def __init__(self, text: str, *, trace: str = "", infrastructure: bool = False) -> None:
        self.trace = trace
        self.infrastructure = infrastructure
        super().__init__(text)


class CallTimedOut(CallFailed):
    """The deadline passed; the worker was killed."""


class WorkerLost(CallFailed):
    """The worker died by itself, or could not be started or reached: never the submission's fault."""

    def __init__(self, text: str) -> None:
        super().__init__(text, infrastructure=True)


class Stopped(Exception):
    """The scorer is ending; the call was given up."""


class Worker:
    """One live worker process. Calls are strictly serial."""

    def __init__(self, env: Mapping[str, str], tasks: str = TASKS) -> None:
        ours, theirs = socketpair()
        watched, self._lifeline = os.pipe()
        try:
            # A session of its own from the first instruction, so that the group can always be killed as a
            # whole.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scorer.child", str(theirs.fileno()), str(watched), tasks],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**env, "PYTHONPATH": os.pathsep.join(part or str(Path.cwd()) for part in sys.path)},
                pass_fds=(theirs.fileno(), watched),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._lifeline)
            ours.close()
            raise WorkerLost(f"worker cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(watched)
        self._connection = Connection(ours.detach())
        self._lock = threading.Lock()
        self._open = True

    def wait_ready(self, seconds: float) -> None:
        """Wait for the ready message. Raises ``WorkerLost`` when it does not come in time."""
        try:
            message = self._receive(seconds)
        except CallTimedOut as error:
            raise WorkerLost(f"worker did not start: {error}") from error
        if message != READY:
            self.kill()
            raise WorkerLost("worker did not start: unexpected message")

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Value of ``method(*arguments)`` in the worker. Raises ``CallFailed`` or one of its kinds."""
        try:
            self._connection.send((method, arguments))
        except (OSError, ValueError) as error:
            self.kill()
            raise WorkerLost("worker is no longer running") from error
        reply: Reply = self._receive(seconds)
        if reply.failed:
            raise CallFailed(reply.text, trace=reply.trace, infrastructure=reply.infrastructure)
        return reply.value

    def kill(self) -> None:
        """End the worker and everything that it started; harmless again, or from another thread."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._lifeline)

    def close(self) -> None:
        """Kill, then close the pipe. Only the thread that makes the calls may do this."""
        self.kill()
        self._connection.close()

    def _receive(self, seconds: float) -> Any:
        try:
            if not self._wait(seconds):
                self.kill()
                raise CallTimedOut(f"timeout after {seconds:g}s")
            return self._connection.recv()
        except (EOFError, OSError) as error:
            how = self._how_it_ended()
            self.kill()
            raise WorkerLost(f"worker exited without a result{how}") from error

    def _wait(self, seconds: float) -> bool:
        """Whether a message came in time. Raises ``EOFError`` when the process ended without one.

        The pipe alone does not tell: processes that a metric forked hold its other end too.
        """
        end = time.monotonic() + seconds
        while True:
            ended = self._process.poll() is not None
            left = 0.0 if ended else max(0.0, end - time.monotonic())
            if self._connection.poll(min(left, _LOOK)):
                return True
            if ended:
                raise EOFError
            if left == 0.0:
                return False

    def _how_it_ended(self) -> str:
        """`` (SIGKILL)`` or `` (status 3)``; the pipe may close a moment before the process ends."""
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(5)
            if status < 0:
                return f" ({signal.Signals(-status).name})"
            return f" (status {status})"
        return ""


@dataclass
class Slot:
    """A place for one worker, filled on demand and filled again when the worker is lost.

    start_seconds : deadline of a worker's start. stop : set when the scorer ends. tasks : see ``TASKS``.
    """

    env: Mapping[str, str]
    start_seconds: float
    stop: threading.Event
    tasks: str = TASKS

    def __post_init__(self) -> None:
        self._worker: Worker | None = None
        self._scene: Any = None
        self._lock = threading.Lock()

    def call(
        self, method: str, *arguments: Any, seconds: float, scene: Any = None, opening: float = 0.0
    ) -> Any:
        """Call in the slot's worker, started if need be, see :meth:`Worker.call`. Raises ``Stopped``.

        scene : what the worker must have selected first, within ``opening`` seconds; a new worker selects it
        anew. A lost worker is replaced and the call made once more, as the kernel may have killed it for
        another's memory.
        """
        for attempt in (1, 2):
            try:
                if scene is not None and self._scene != scene:
                    self._select(scene, opening)
                return self._once(method, *arguments, seconds=seconds)
            except WorkerLost:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _select(self, scene: Any, seconds: float) -> None:
        try:
            self._once("select", scene, seconds=seconds)
        except CallFailed as error:
            error.opening = True
            raise
        self._scene = scene

    def _once(self, method: str, *arguments: Any, seconds: float) -> Any:
        worker = self._live()
        try:
            return worker.call(method, *arguments, seconds=seconds)
        except CallFailed as error:
            # One that ran out of memory lives on, but what it still holds is anyone's guess.
            if error.infrastructure or isinstance(error, CallTimedOut):
                self.empty()
            self._check()
            raise

    def empty(self) -> None:
        """End the worker, if there is one. Called by the thread that makes the calls."""
        with self._lock:
            worker, self._worker, self._scene = self._worker, None, None
        if worker is not None:
            worker.close()

    def kill(self) -> None:
        """Kill the worker from another thread; the call under way raises ``Stopped`` if ``stop`` is set."""
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.kill()

    def _live(self) -> Worker:
        self._check()
        if self._worker is None:
            worker = Worker(self.env, self.tasks)
            with self._lock:
                self._worker = worker
            try:
                self._check()  # a stop that came before the worker was known has not killed it
                worker.wait_ready(self.start_seconds)
            except (WorkerLost, Stopped):
                self.empty()
                self._check()
                raise
        return self._worker

    def _check(self) -> None:
        if self.stop.is_set():
            raise Stopped
