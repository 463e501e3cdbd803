"""Many runs in one launch: which starts when, on which GPU, and when no further one may start."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.runtime import attempts
from harness.runtime.agentconfig import Budget
from harness.runtime.backends.base import Backend
from harness.runtime.credentials import clear_temporaries, read_copy, write_back
from harness.runtime.going import Going
from harness.runtime.gpus import Gpus
from harness.runtime.ledger import Ledger
from harness.runtime.planning import Plan
from harness.runtime.running import NOT_STARTED, Result, Say, Terms, conclude, execute
from harness.runtime.runrecord import now, read_record
from harness.runtime.space import shortage

LONGEST_WAIT_S = 900.0
"""Before an attempt is repeated, however often it has failed."""
_TICK_S, _LOOK_S, _LOGIN_S, _SPACE_S = 0.2, 2.0, 30.0, 5.0


@dataclass(frozen=True)
class Options:
    """How a batch is carried out.

    slots : GPUs of each run at the same time. per_agent : at most so many runs of an agent at once.
    places : where there must be ``floor_gb`` gigabytes of free space before a run starts.
    """

    slots: Sequence[Gpus] = ((),)
    retries: int = 0
    retry_wait: float = 15.0
    floor_gb: float = 0.0
    places: tuple[Path, ...] = ()
    per_agent: Mapping[str, int] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    redo: bool = False
    take_over: bool = False


@dataclass
class _Waiting:
    """A run that has not ended. ``tries``: attempts in this launch that the infrastructure spoilt."""

    index: int
    plan: Plan
    tries: int = 0
    not_before: float = 0.0


class Batch:
    """The runs of one launch. Everything but the attempts themselves happens in the calling thread."""

    def __init__(
        self, plans: Sequence[Plan], backend: Backend, options: Options, stop: threading.Event, say: Say
    ) -> None:
        self._plans, self._backend, self._options = plans, backend, options
        self._stop, self._say = stop, say
        self._waiting = [_Waiting(index, plan) for index, plan in enumerate(plans)]
        self._free = list(options.slots)
        self._ended: queue.SimpleQueue[tuple[_Waiting, Gpus, Result]] = queue.SimpleQueue()
        self._refused: dict[str, str] = {}
        self._next_check = self._next_login = self._next_space = 0.0
        self._short = ""
        self._queued_at = now()
        self.results: dict[int, Result] = {}
        self.going: dict[int, Going] = {}
        self.ledger = Ledger(options.budget)

    @property
    def waiting(self) -> int:
        """Runs that wait to be started or tried again."""
        return len(self._waiting)

    def run(self) -> list[Result]:
        """Carry out the runs in order, as many at a time as there are slots. One that fails never stops the
        others.
        """
        self._open()
        over = threading.Event()
        threading.Thread(target=self._look_on, args=(over,), name="looking on", daemon=True).start()
        try:
            while self._waiting or self.going:
                self._collect()
                self._check()
                if self._stop.is_set():
                    for run in list(self.going.values()):
                        run.stop.set()
                    self._give_up(self._waiting, "")
                else:
                    self._start()
        finally:
            over.set()
        return [self.results[index] for index in range(len(self._plans))]

    def _open(self) -> None:
        """Report what is finished already, and take up the account of earlier launches."""
        for source in {p.setting.credential.source for p in self._plans if p.setting.credential}:
            clear_temporaries(source)
        for job in list(self._waiting):
            record = read_record(job.plan.place.final)
            if record is not None and not self._options.redo:
                self.ledger.before(job.index, attempts.spent(record))
            if job.plan.skip:
                self._waiting.remove(job)
                self._end(
                    job, execute(job.plan, self._backend, Going(job.plan.key), self._say, self._terms(job))
                )

    def _terms(self, job: _Waiting) -> Terms:
        left = self._options.retries - job.tries
        return Terms(self._options.redo, max(0, left), self._queued_at, self._options.take_over)

    def _collect(self) -> None:
        """Wait a moment for an attempt to end; deal with all that have."""
        timeout = _TICK_S
        while True:
            try:
                job, gpus, result = self._ended.get(timeout=timeout)
            except queue.Empty:
                return
            timeout = 0.0
            del self.going[job.index]
            self._free.append(gpus)
            if result.record:
                self.ledger.settle(job.index, attempts.spent(result.record))
            if result.login_refused:
                login = job.plan.setting.login
                self._refused.setdefault(login, f"{result.note} (seen in {job.plan.key.label})")
            if result.again:
                self._wait_for(job, result)
            else:
                self._end(job, result)

    def _end(self, job: _Waiting, result: Result) -> None:
        self.results[job.index] = result
        self._say(line(result))

    def _wait_for(self, job: _Waiting, result: Result) -> None:
        """Queue a run again that the infrastructure has spoilt; in its old place, which is only fair."""
        wait = min(self._options.retry_wait * 2**job.tries, LONGEST_WAIT_S)
        job.tries += 1
        job.not_before = time.monotonic() + wait
        self._say(
            f"{job.plan.key.label}: {result.note}; trying again in {wait:g} s "
            f"(retry {job.tries} of {self._options.retries})"
        )
        self._waiting.append(job)
        self._waiting.sort(key=lambda other: other.index)

    def _look_on(self, over: threading.Event) -> None:
        """In a thread of its own, since it reads what agents write: what the runs say and have used."""
        while not over.wait(_LOOK_S):
            for run in list(self.going.values()):
                run.look()

    def _check(self) -> None:
        """Every few seconds: whether a run has to end for what it has used."""
        moment = time.monotonic()
        if moment < self._next_check:
            return
        self._next_check = moment + _LOOK_S
        for run in list(self.going.values()):
            over = self.ledger.over_run(run)
            if over and not run.stop.is_set():
                self._say(f"{run.key.label}: {over}: ending it")
                run.end("run_budget", over)
        over = self.ledger.over_batch(self.going.items()) if self.going else ""
        for run in list(self.going.values()) if over else []:
            if not run.stop.is_set():
                self._say(f"{run.key.label}: {over} by the batch: ending it")
                run.end("batch_budget", over)
        if moment >= self._next_login:
            self._next_login = moment + _LOGIN_S
            self._bring_logins_back()

    def _bring_logins_back(self) -> None:
        """Take over refreshed logins while runs go on, so that those that start later have them."""
        for index, run in self.going.items():
            credential = self._plans[index].setting.credential
            if credential and credential.write_back and run.staging and run.phase == "running":
                write_back(credential.source, read_copy(credential.copy(run.staging)))

    def _start(self) -> None:
        """Start what can be started now; give up what cannot be any more."""
        over = self.ledger.over_batch(self.going.items())
        if over:
            self._give_up(self._waiting, f"the budget is used up: {over}")
            return
        for job in list(self._waiting) if self._refused else []:
            refused = self._refused.get(job.plan.setting.login)
            if refused:
                self._give_up([job], refused)
        while self._free:
            ready = self._next()
            if ready is None:
                return
            if self._lacks_space():
                if not self.going:
                    self._give_up(self._waiting, f"no room: {self._short}")
                return
            self._waiting.remove(ready)
            self._launch(ready, self._free.pop(0))

    def _next(self) -> _Waiting | None:
        """The first run in order that may start now."""
        busy: dict[str, int] = {}
        for run in self.going.values():
            busy[run.key.agent] = busy.get(run.key.agent, 0) + 1
        moment = time.monotonic()
        for job in self._waiting:
            agent = job.plan.key.agent
            limit = self._options.per_agent.get(agent)
            if job.not_before <= moment and (limit is None or busy.get(agent, 0) < limit):
                return job
        return None

    def _lacks_space(self) -> bool:
        moment = time.monotonic()
        if moment >= self._next_space:
            short = shortage(self._options.places, self._options.floor_gb)
            if short and not self._short and self.going:
                self._say(f"waiting for room before the next run starts: {short}")
            self._short = short
            self._next_space = moment + (_SPACE_S if short else 0.0)
        return bool(self._short)

    def _launch(self, job: _Waiting, gpus: Gpus) -> None:
        plan = dataclasses.replace(job.plan, setting=job.plan.setting.with_gpus(gpus))
        run = Going(plan.key, plan.setting.reader, gpus)
        terms = self._terms(job)

        def work() -> None:
            self._ended.put((job, gpus, execute(plan, self._backend, run, self._say, terms)))

        self.going[job.index] = run
        threading.Thread(target=work, name=f"run {plan.key.label}").start()

    def _give_up(self, jobs: Sequence[_Waiting], why: str) -> None:
        """End the waiting of runs that will not start, or not be tried again."""
        for job in list(jobs):
            self._waiting.remove(job)
            waited = conclude(job.plan, why) if job.tries else Result(job.plan.key, NOT_STARTED, why)
            self._end(job, waited)


def line(result: Result) -> str:
    """How the end of a run is told."""
    seconds = result.record.get("agent_seconds")
    took = f" after {seconds} s" if seconds is not None and not result.skipped else ""
    note = f": {result.note}" if result.note else ""
    return f"{result.key.label} {result.state}{took}{note}"
