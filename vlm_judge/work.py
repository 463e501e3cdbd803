"""Workers: jobs in parallel, results in the main thread as they come, and everybody stops together."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vlm_judge.budget import Exhausted
from vlm_judge.client import Stopped
from vlm_judge.console import say
from vlm_judge.service import Fatal

Job = TypeVar("Job")
Done = TypeVar("Done")


@dataclass
class Ended:
    """Why the work ended early: a refusal, an exhausted budget; None when it did not."""

    fatal: Fatal | None = None
    exhausted: Exhausted | None = None
    interrupted: bool = False


class Crew(Generic[Job, Done]):
    """Runs ``do`` on jobs with some threads until they are done or ``stop`` is set."""

    def __init__(self, do: Callable[[Job], Done], workers: int, stop: threading.Event) -> None:
        self._do, self._workers, self._stop = do, workers, stop
        self._results: queue.Queue[Done | BaseException | None] = queue.Queue()

    def run(self, jobs: Sequence[Job], finished: Callable[[Done], None]) -> Ended:
        """Call ``finished`` in this thread for every result, in order of completion.

        After Ctrl-C, a refusal or an exhausted budget nothing new is begun, what is on its way is waited for
        and its results are kept. A second Ctrl-C leaves at once. An error of ours stops everybody and is
        raised when all results are in.
        """
        waiting = deque(jobs)
        threads = [
            threading.Thread(target=self._work, args=(waiting,), daemon=True)
            for _ in range(min(self._workers, len(jobs)))
        ]
        for thread in threads:
            thread.start()
        ended, fault = Ended(), None
        left = len(threads)
        while left:
            try:
                result = self._results.get()
            except KeyboardInterrupt:
                if ended.interrupted:
                    raise
                ended.interrupted = True
                self._stop.set()
                say("waiting for the calls on their way; once more leaves at once")
                continue
            if result is None:
                left -= 1
            elif isinstance(result, Fatal):
                ended.fatal = ended.fatal or result
            elif isinstance(result, Exhausted):
                ended.exhausted = ended.exhausted or result
            elif isinstance(result, BaseException):
                fault = fault or result
            else:
                finished(result)
        if fault is not None:
            raise fault
        return ended

    def _work(self, waiting: deque[Job]) -> None:
        try:
            while not self._stop.is_set():
                try:
                    job = waiting.popleft()
                except IndexError:
                    break
                self._results.put(self._do(job))
        except Stopped:
            pass
        except BaseException as error:
            self._stop.set()
            self._results.put(error)
        finally:
            self._results.put(None)
