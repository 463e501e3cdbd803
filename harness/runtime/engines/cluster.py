"""SLURM: handing array tasks over through ``submitit``, asking for their states, cancelling them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import UserError, one_line
from harness.runtime.config import Runtime
from harness.runtime.engines.settings import LauncherSection

_ASK_S = 60.0
_GONE_S = 120.0
"""How long cancelled tasks may take to end: SLURM's KillWait, and what a container needs."""
_PROGRAMS = ("sbatch", "squeue", "scancel")
_NAME = "4dcb"


@dataclass(frozen=True)
class Submission:
    """Array tasks, one a slot, on the terms of ``[launcher]``."""

    name: str
    tasks: int
    terms: LauncherSection

    def parameters(self) -> dict[str, Any]:
        """What submitit makes the batch script of."""
        terms = self.terms
        return {
            "job_name": self.name,
            "partition": terms.partition,
            "time": terms.time,
            "gres": terms.gres,
            "cpus_per_task": terms.cpus_per_task,
            "mem": terms.mem,
            "setup": list(terms.setup) or None,
            "additional_parameters": dict(terms.extra) or None,
            "array_parallelism": self.tasks,
            "stderr_to_stdout": True,
            # Since SLURM 22.05 a step does not take this over from its job.
            "srun_args": [f"--cpus-per-task={terms.cpus_per_task}"] if terms.cpus_per_task else None,
        }

    def words(self) -> list[str]:
        """An equivalent command line for people."""
        shown = {**self.parameters(), **self.terms.extra}
        names = ("job_name", "partition", "time", "gres", "cpus_per_task", "mem", *self.terms.extra)
        options = [f"--{name.replace('_', '-')}={shown[name]}" for name in names if shown[name] is not None]
        return ["sbatch", f"--array=0-{self.tasks - 1}", *options, "…", *_task_words(self.name)]


def _task_words(name: str) -> list[str]:
    return ["python", "-m", "submitit.core._submit", f"<{name}>"]


@dataclass(frozen=True)
class Task:
    """An array task that SLURM has not ended. node : empty while it waits."""

    name: str
    state: str
    node: str = ""


def check_programs(path: Path) -> None:
    """Raise ``UserError`` where jobs cannot be submitted from this machine. path : of the runtime file."""
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            raise UserError(
                f'[launcher] engine = "slurm", but {program} is not on PATH',
                where=path,
                next_step="start this on a machine that submits jobs, or load its SLURM module",
            )
    if importlib.util.find_spec("submitit") is None:
        raise UserError(
            '[launcher] engine = "slurm", but submitit is not installed',
            where=path,
            next_step='pip install "fourdcodebench[slurm]"',
        )


def submission(runtime: Runtime, what: str, items: int) -> Submission:
    """Tasks for so many items: ``[launcher] slots``, and never more than there are items."""
    terms = runtime.file.launcher
    return Submission(f"{_NAME}-{what}", max(1, min(terms.slots, items)), terms)


def submit(folder: Path, wanted: Submission, work: Callable[..., Any], payload: Mapping[str, Any]) -> str:
    """Submit ``work(payload)`` as that many array tasks; returns the job's number. ``folder`` : on the shared
    file system, for scripts and output. Raises ``RuntimeError`` with what SLURM says.
    """
    import submitit

    executor = submitit.SlurmExecutor(folder=folder)
    executor.update_parameters(**wanted.parameters())
    try:
        jobs = executor.map_array(work, [dict(payload)] * wanted.tasks)
    except Exception as error:
        raise RuntimeError(one_line(f"sbatch: {error}")) from error
    return str(jobs[0].job_id).partition("_")[0]


def active(numbers: Iterable[str]) -> list[Task]:
    """Tasks of those jobs that wait, run or are being ended. Raises ``RuntimeError`` when SLURM does not
    answer: then nothing is known.
    """
    found = []
    for number in numbers:
        done = _ask("squeue", "--noheader", "--array", "--format=%i|%T|%N", f"--jobs={number}")
        if done.returncode:
            if "Invalid job id" in done.stderr:  # SLURM has forgotten it: it ended a while ago
                continue
            raise RuntimeError(one_line(f"squeue: {done.stderr or done.stdout}"))
        for row in done.stdout.splitlines():
            name, _, rest = row.strip().partition("|")
            state, _, node = rest.partition("|")
            found.append(Task(name, state, node))
    return found


def cancel(numbers: Iterable[str], wait: threading.Event | None = None) -> list[Task]:
    """End all tasks of those jobs and wait until they are gone; returns those that are not."""
    numbers = list(numbers)
    if not numbers:
        return []
    _ask("scancel", *numbers)
    until = time.monotonic() + _GONE_S
    pause = wait or threading.Event()
    left = [Task(number, "UNKNOWN") for number in numbers]
    while time.monotonic() < until:
        try:
            left = active(numbers)
        except RuntimeError:
            pause.wait(1.0)
            continue
        if not left:
            return []
        pause.wait(0.5)
    return left


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ASK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))
