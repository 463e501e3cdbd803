"""One check of the doctor: a function that looks and says, under a deadline, and never stops the others."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contract.errors import UserError, one_line
from contract.runs import RunKey
from harness.runtime.backends.base import Backend
from harness.runtime.config import Runtime
from harness.runtime.trees import remove_tree

OK, WARN, FAIL = "ok", "warn", "fail"
AFTER_STOP_S = 45.0
"""Longest wait for a check that was told to stop: a container is ended in order, and confirmed gone."""


@dataclass(frozen=True)
class Finding:
    """What one check found. ``status``: ok, warn or fail. ``fix``: the next step, empty without one."""

    name: str
    status: str
    what: str
    fix: str = ""

    def record(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "what": self.what, "fix": self.fix}


@dataclass(frozen=True)
class Check:
    """look : makes the finding; it is given an event that is set when it must end early, and may raise.

    deadline : seconds.
    """

    name: str
    look: Callable[[threading.Event], Finding]
    deadline: float = 60.0


def quick(look: Callable[..., Finding], *given: object) -> Callable[[threading.Event], Finding]:
    """``look(*given)`` as the ``look`` of a check that has nothing to end early."""
    return lambda _: look(*given)


@dataclass(frozen=True)
class Patient:
    """What is examined. keys : runs of the jobs file, none without one. jobs : that file."""

    runtime: Runtime
    backend: Backend
    keys: tuple[RunKey, ...] = ()
    jobs: Path | None = None
    hashes: bool = False

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents of the jobs, without jobs those of the runtime file."""
        known = [key.agent for key in self.keys] or list(self.runtime.file.agent.agents)
        return tuple(dict.fromkeys(known))


@dataclass
class _Answer:
    found: list[Finding] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


def examine(check: Check) -> Finding:
    """The check's finding. What it raises is a failure, and so is a deadline that passes; Ctrl-C lets it end
    what it has started and goes on as ``KeyboardInterrupt``.
    """
    answer, stop = _Answer(), threading.Event()

    def work() -> None:
        answer.found.append(_looked(check, stop))
        answer.done.set()

    # A daemon: a file system that never answers must not keep the program.
    threading.Thread(target=work, name=f"check {check.name}", daemon=True).start()
    try:
        if answer.done.wait(check.deadline):
            return answer.found[0]
    except KeyboardInterrupt:
        stop.set()
        answer.done.wait(AFTER_STOP_S)
        raise
    stop.set()
    answer.done.wait(AFTER_STOP_S)
    return Finding(
        check.name, FAIL, f"no answer within {check.deadline:g} s", "see whether the machine or disk is stuck"
    )


def _looked(check: Check, stop: threading.Event) -> Finding:
    try:
        return check.look(stop)
    except UserError as error:
        return failed(check.name, error)
    except Exception as error:
        text = one_line(f"{type(error).__name__}: {error}")[:300]
        return Finding(check.name, FAIL, text, "this is a fault of ours, please report it")


def failed(name: str, error: UserError) -> Finding:
    """A user's fault as a finding."""
    where = f"{error.where}: " if error.where else ""
    expected = f"; expected {error.expected}" if error.expected else ""
    step = error.next_step or (f"correct {error.where}" if error.where else "see docs/configuration.md")
    return Finding(name, FAIL, one_line(f"{where}{error.what}{expected}"), one_line(step))


def existing(path: Path) -> Path:
    """``path``, or the nearest directory above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


@contextmanager
def scratch(runtime: Runtime) -> Iterator[Path]:
    """A new directory where runs will lie, removed afterwards: what holds there holds for runs."""
    place = Path(tempfile.mkdtemp(prefix=".4dcb-doctor-", dir=existing(runtime.runs)))
    try:
        yield place
    finally:
        remove_tree(place)
