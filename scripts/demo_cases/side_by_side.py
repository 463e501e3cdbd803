"""Several cases at once: one process of the program per case, as many as there are processors.

Each child is the program itself with a single name: the arrays are what they are when a case is made alone,
and an interrupted child tidies up after itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class Crew:
    """Runs commands, ``slots`` at a time; what they say appears line by line."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._children: list[subprocess.Popen[str]] = []
        self._lock = Lock()
        self._stopped = False

    def run(self, commands: Sequence[Sequence[str]], prefix: Sequence[str]) -> list[int]:
        """Statuses of the commands in order. Lines that begin with a command's ``prefix`` go to standard
        output, others to standard error.

        On Ctrl-C every child is interrupted and waited for, then ``KeyboardInterrupt`` goes on.
        """
        with self._ending(), ThreadPoolExecutor(self.slots) as pool:
            futures = [pool.submit(self._one, *pair) for pair in zip(commands, prefix, strict=True)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._stop()
                raise

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._children:
                if child.poll() is None:
                    child.send_signal(signal.SIGINT)

    def _one(self, command: Sequence[str], prefix: str) -> int:
        share = str(max(1, processors() // self.slots))
        with self._lock:
            if self._stopped:
                return -signal.SIGINT
            child = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                env=dict.fromkeys(THREADS, share) | os.environ,
                # Away from the terminal's Ctrl-C: it reaches a child once, from here.
                start_new_session=True,
            )
            self._children.append(child)
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:
                if line.startswith(prefix):
                    sys.stdout.write(line)
                    sys.stdout.flush()
                elif not self._stopped:  # when it is stopped, one line is said about it for all
                    sys.stderr.write(line)
        return child.wait()
