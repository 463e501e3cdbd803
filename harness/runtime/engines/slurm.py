"""A queue of items worked off by SLURM tasks, looked after from the machine that submitted them.

The tasks do what slots of this machine do, on the same queue. What this side adds: it returns what lost tasks
held, submits further ones for it, tells of the progress, and cancels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.record import read_json
from contract.workqueue import Queue, Watch
from harness.runtime.config import Runtime
from harness.runtime.engines import cluster
from harness.runtime.engines.task import ENDS, work
from harness.runtime.invocation import Invocation
from harness.runtime.stagework import Progress, StageEnd

Say = Callable[[str], None]
_SHORTEST_S, _LONGEST_S = 0.5, 10.0
"""Between two looks at the cluster: often at first, seldom when nothing changes."""


def run_slurm(
    payload: Mapping[str, Any],
    queue: Path,
    names: Sequence[str],
    runtime: Runtime,
    record: Invocation,
    stop: threading.Event,
    say: Say,
) -> StageEnd:
    """Work off a queue that is there by SLURM tasks and wait for their end; ``stop`` cancels them.

    payload : what each task is told, see ``engines.task``; its ``what`` names the job. record : its last
    stage gets the jobs' numbers.
    """
    progress = Progress(Queue(queue), names, str(payload["what"]), say)
    watch = _Watcher(payload, Queue(queue), runtime, record, progress, stop, say)
    try:
        watch.run()
    except RuntimeError as error:
        watch.fault = str(error)
    finally:
        left = cluster.cancel(watch.numbers) if stop.is_set() or watch.fault else []
    for task in left:
        say(f"warning: task {task.name} is still {task.state}; end it with: scancel {task.name}")
    watch.settle([task.name for task in left])
    progress.tell()
    return StageEnd(progress.outcomes, "stopped" if stop.is_set() else watch.fault, watch.status)


@dataclass
class _Watcher:
    payload: Mapping[str, Any]
    queue: Queue
    runtime: Runtime
    record: Invocation
    progress: Progress
    stop: threading.Event
    say: Say
    fault: str = ""
    status: int = 1
    numbers: list[str] = field(default_factory=list)
    _pause: float = _SHORTEST_S
    _seen: object = None
    _silent: bool = False

    @property
    def folder(self) -> Path:
        """Scripts and output of the tasks."""
        return self.record.directory / "slurm" / str(self.payload["what"])

    def run(self) -> None:
        """Submit, look, submit again what was lost, until nothing is left to do or to hope for."""
        terms = self.runtime.file.launcher
        stale = Watch(self.queue, terms.stale_sec)
        again = terms.resubmits
        self.submit(len(self.queue.ready()))
        while not self.stop.is_set():
            self.progress.tell()
            tasks = self.look()
            if tasks is not None:
                self.settle([task.name for task in tasks])
                for worker in stale.dead():
                    back = self.queue.give_back(worker, "no sign of life")
                    self.say(f"{worker} shows no sign of life: {back} item(s) go back to the queue")
                if self.refused():
                    return
                ready, wanted = self.queue.ready(), self.wanted()
                if not ready and not self.queue.taken():
                    if not tasks:
                        return
                elif ready and len(tasks) < wanted:
                    if not again:
                        if not tasks:
                            self.fault = f"{len(ready)} item(s) were lost with their tasks too often"
                            return
                    else:
                        again -= 1
                        self.say(f"{len(ready)} item(s) are left without a task: submitting again")
                        self.submit(wanted - len(tasks))
            self.wait(tasks)

    def wanted(self) -> int:
        """Tasks that there is work for."""
        items = len(self.queue.ready()) + sum(map(len, self.queue.taken().values()))
        return cluster.submission(self.runtime, "", items).tasks

    def submit(self, items: int) -> None:
        wanted = cluster.submission(self.runtime, str(self.payload["what"]), items)
        self.folder.mkdir(parents=True, exist_ok=True)
        payload = {**self.payload, "folder": str(self.folder)}
        number = cluster.submit(self.folder, wanted, work, payload)
        self.numbers.append(number)
        self.record.stages[-1]["slurm"] = list(self.numbers)
        self.record.save()
        self.say(f"SLURM job {number}: {wanted.tasks} task(s), output in {self.folder}")

    def look(self) -> list[cluster.Task] | None:
        """Tasks that have not ended; None when SLURM does not say."""
        try:
            tasks = cluster.active(self.numbers)
        except RuntimeError as error:
            if not self._silent:
                self.say(f"warning: {error}; asking again")
            self._silent = True
            return None
        self._silent = False
        return tasks

    def settle(self, names: Sequence[str]) -> None:
        """Return what tasks held that are no more; ``names`` : of those that are. A worker carries its task's
        name in front.
        """
        for worker in self.queue.taken():
            if worker.partition(".")[0] not in names:
                back = self.queue.give_back(worker, "its task ended", counts=not self.stop.is_set())
                if not self.stop.is_set() and back:
                    self.say(f"task {worker} ended with {back} item(s): they go back to the queue")

    def refused(self) -> bool:
        """Whether a task found that none can work: then the others are not tried."""
        for path in sorted(self.folder.glob(f"*{ENDS}")):
            try:
                end = read_json(path)
            except (OSError, ValueError):
                continue
            if isinstance(end, dict) and end.get("fault"):
                self.fault, self.status = str(end["fault"]), int(end.get("status", 1))
                self.queue.close()
                return True
        return False

    def wait(self, tasks: object) -> None:
        seen = (tasks, len(self.progress.outcomes))
        self._pause = _SHORTEST_S if seen != self._seen else min(self._pause * 1.5, _LONGEST_S)
        self._seen = seen
        self.stop.wait(self._pause)
