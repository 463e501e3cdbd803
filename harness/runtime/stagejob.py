"""One container of a stage as a job of a backend: its command line, mounts, variables and limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from contract.checkpoint_store import UNVERIFIED
from contract.errors import UserError
from contract.names import CASES, DATA, RUNS
from harness.runtime.agentjob import labels
from harness.runtime.backends.base import Job, Limits, Mount
from harness.runtime.config import NO_NETWORK, REPOSITORY, Runtime
from harness.runtime.slots import Slot
from harness.runtime.stages import SCORE, STAGES, Stage

QUEUE = PurePosixPath("/queue")
CHECKPOINTS = "checkpoints"
UNLIMITED = 10 * 365 * 86_400.0
"""Seconds. A stage has no limit of its own: each metric has one, and what is finished is kept."""
CPUS_PER_WORLD, MIB_PER_WORLD = 2, 4096
"""Of one world that is scored: two processors keep its kernels busy; memory with room to spare."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "CV_NUM_THREADS",
)


@dataclass(frozen=True)
class Order:
    """What is to be done in a stage, wherever it is carried out.

    names : types, groups or media, none for all. items : in the queue. directory : of the invocation.
    """

    stage: str
    directory: Path
    items: int
    names: tuple[str, ...] = ()
    redo: bool = False
    allow_missing: bool = False

    @property
    def queue(self) -> Path:
        return self.directory / "queue" / self.stage

    def record(self) -> dict[str, object]:
        """The order as JSON."""
        return {
            "stage": self.stage, "directory": str(self.directory), "items": self.items,
            "names": list(self.names), "redo": self.redo, "allow_missing": self.allow_missing,
        }  # fmt: skip

    @classmethod
    def of(cls, record: Mapping[str, object]) -> Order:
        """The order that :meth:`record` has written."""
        fields = dict(record)
        names, directory = fields.pop("names"), fields.pop("directory")
        return cls(directory=Path(str(directory)), names=tuple(names), **fields)  # type: ignore[arg-type]


def worlds_at_once(runtime: Runtime, worlds: int, slots: int = 1) -> int:
    """How many worlds a scorer works on side by side: ``[scorer] jobs``, or what the machine carries.

    One per two processors, and one per 4 GiB of memory, of this slot's share; never more than there are
    worlds.
    """
    section, environment = runtime.file.scorer, runtime.file.scorer.environment
    if section.jobs is not None:
        return min(section.jobs, max(1, worlds))
    cpus = float(len(os.sched_getaffinity(0))) / slots
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 20) / slots
    if environment.cpus is not None:
        cpus = min(cpus, environment.cpus)
    if environment.memory_mb is not None:
        memory = min(memory, environment.memory_mb)
    return max(1, min(-(-worlds // slots), int(cpus / CPUS_PER_WORLD), int(memory / MIB_PER_WORLD)))


def stage_flags(runtime: Runtime, order: Order, slots: int = 1) -> list[str]:
    """Flags of a stage's program besides its paths; ``slots`` : of this machine that share it."""
    words = [word for name in order.names for word in (STAGES[order.stage].flag, name)]
    if order.stage == SCORE.name:
        section = runtime.file.scorer
        at_once = worlds_at_once(runtime, order.items, slots)
        if at_once > 1:
            words += ["--jobs", str(at_once)]
        words += ["--task-timeout", f"{section.task_timeout_sec:g}"]
        words += ["--prepare-timeout", f"{section.task_prepare_timeout_sec:g}"]
        for name, seconds in section.task_timeouts.items():
            words += ["--timeout", f"{name}={seconds:g}"]
        if order.allow_missing:
            words.append("--allow-missing-models")
    return [*words, "--redo"] if order.redo else words


def stage_job(runtime: Runtime, order: Order, worker: str, slot: Slot, slots: int = 1) -> Job:
    """A container of the stage as a job of the runtime file's backend: real paths on the host, else fixed
    mounts. worker : its name in the queue; unique in the invocation.
    """
    stage, section = STAGES[order.stage], runtime.file.scorer
    environment, on_host = section.environment, runtime.backend == "host"
    flags = stage_flags(runtime, order, slots)
    env = {"PYTHONUNBUFFERED": "1"} | _threads(environment.cpus, flags, slots)
    if os.environ.get(UNVERIFIED) == "1":
        env[UNVERIFIED] = "1"
    checkpoints = _checkpoints(runtime)
    if on_host:
        env["HOME"] = os.environ.get("HOME", "/")
        paths = ["--cases", str(runtime.cases), "--data", str(runtime.data)]
        paths += ["--runs", str(runtime.runs)] if stage.tree else []
        paths += ["--checkpoints", str(runtime.checkpoints or "/nonexistent")]
        python, queue = sys.executable, str(order.queue)
        network = environment.network_mode != NO_NETWORK
        limits = Limits(memory_mb=environment.memory_mb)
    else:
        python, queue, paths = "python", str(QUEUE), []
        network = environment.network_mode == "default"
        limits = Limits(cpus=environment.cpus, memory_mb=environment.memory_mb)
    name = f"4dcb-{stage.name}-{order.directory.name}-{worker}"
    return Job(
        name=name,
        command=(python, "-m", stage.module, "--queue", queue, "--worker", worker, *paths, *flags),
        image=runtime.image(section.image, "scorer"),
        mounts=() if on_host else _mounts(runtime, stage, order, checkpoints),
        env=env,
        workdir=PurePosixPath(REPOSITORY) if on_host else PurePosixPath("/workspace"),
        network=network,
        gpus=slot.gpus,
        limits=limits,
        labels=labels(name),
    )


def time_limit(runtime: Runtime, stage: str) -> float:
    """Seconds for one stage of an invocation: its own key, else ``timeout_sec``, else no limit."""
    section = runtime.file.scorer
    own: float | None = getattr(section, f"{stage}_timeout_sec")
    return own or section.timeout_sec or UNLIMITED


def _threads(cpus: float | None, flags: list[str], slots: int) -> dict[str, str]:
    """Variables that bound threads, where the processors are shared in a way that the program cannot see."""
    if cpus is None and slots == 1:
        return {}
    if cpus is None:
        cpus = len(os.sched_getaffinity(0)) / slots
    worlds = int(flags[flags.index("--jobs") + 1]) if "--jobs" in flags else 1
    return dict.fromkeys(THREAD_VARIABLES, str(max(1, int(cpus) // worlds)))


def _mounts(runtime: Runtime, stage: Stage, order: Order, checkpoints: Path | None) -> tuple[Mount, ...]:
    mounts = [
        Mount(runtime.cases, PurePosixPath(f"/{CASES}")),
        Mount(runtime.data, PurePosixPath(f"/{DATA}"), writable=True),
    ]
    if stage.tree:
        mounts.append(Mount(runtime.runs, PurePosixPath(f"/{RUNS}"), writable=True))
    mounts.append(Mount(order.queue, QUEUE, writable=True))
    if checkpoints is not None:
        mounts.append(Mount(checkpoints, PurePosixPath(f"/{CHECKPOINTS}")))
    return tuple(mounts)


def _checkpoints(runtime: Runtime) -> Path | None:
    """The model store; one that the file names must exist, the default may be absent."""
    path = runtime.checkpoints
    if path is None or path.is_dir():
        return path
    if "checkpoints" in runtime.file.scorer.model_fields_set:
        raise UserError(
            "[scorer]: checkpoints does not exist", where=path, next_step="create it or correct the key"
        )
    return None
