"""What ``score.py`` hands to the scorer: manifest entries, the command line, and the job that carries it
out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from contract.errors import UserError
from contract.names import CASES, DATA, RUNS, SANITY, WORLD
from contract.runs import RunKey
from harness.runtime.agentjob import labels
from harness.runtime.backends.base import Job, Limits, Mount
from harness.runtime.config import NO_NETWORK, REPOSITORY, Runtime
from harness.runtime.gpus import devices
from harness.runtime.rundir import Place
from harness.runtime.runrecord import FINISHED, read_record, state_of

MANIFEST = PurePosixPath("/manifest.json")
CHECKPOINTS = "checkpoints"
UNLIMITED = 10 * 365 * 86_400.0
"""Seconds. An invocation has no limit of its own: each metric has one, and what is finished is kept."""
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
class Entry:
    """One world to score: paths as a manifest writes them, below ``cases/``, ``data/`` or ``runs/``."""

    case: str
    world: str
    out: str

    def record(self) -> dict[str, str]:
        return {"case": self.case, "world": self.world, "out": self.out}

    def directory(self, runtime: Runtime) -> Path:
        """Where results go, on this machine."""
        root, rest = self.out.split("/", 1)
        return {CASES: runtime.cases, DATA: runtime.data, RUNS: runtime.runs}[root] / rest


def run_entry(key: RunKey) -> Entry:
    """The entry of a run."""
    return Entry(key.case, f"{RUNS}/{key.world}", f"{RUNS}/{key.path}")


def sanity_entries(cases: Sequence[str], data: Path) -> list[Entry]:
    """The reference worlds of the cases that have one, each as a submission of itself."""
    return [
        Entry(case, f"{DATA}/{case}/{WORLD}", f"{DATA}/{case}/{SANITY}")
        for case in cases
        if (data / case / WORLD).is_dir()
    ]


def why_not_run(key: RunKey, runs: Path) -> str:
    """Why a run cannot be scored, empty when it can.

    A finished run without a delivery *is* scored: the agent failed, and each of its metrics becomes an
    error. A run that never happened, or that the operator or the engine ended, says nothing about the agent
    and is left out.
    """
    place = Place(runs, key)
    record = read_record(place.final)
    state = state_of(record)
    if state in FINISHED:
        return ""
    if place.stagings():
        return "it is running, or its launcher was killed"
    if state is not None:
        return f"its state is {state}"
    return "its run.json cannot be read" if place.final.exists() else "it was never run"


def worlds_at_once(runtime: Runtime, worlds: int) -> int:
    """How many worlds the scorer works on side by side: ``[scorer] jobs``, or what the machine carries.

    One per two processors, and one per 4 GiB of memory; never more than there are worlds.
    """
    section, environment = runtime.file.scorer, runtime.file.scorer.environment
    if section.jobs is not None:
        return min(section.jobs, max(1, worlds))
    cpus = float(len(os.sched_getaffinity(0)))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    if environment.cpus is not None:
        cpus = min(cpus, environment.cpus)
    if environment.memory_mb is not None:
        memory = min(memory, environment.memory_mb)
    return max(1, min(worlds, int(cpus / CPUS_PER_WORLD), int(memory / MIB_PER_WORLD)))


def arguments(runtime: Runtime, types: Sequence[str], redo: bool, worlds: int = 1) -> list[str]:
    """Flags of ``python -m scorer`` besides its paths, for so many worlds."""
    section = runtime.file.scorer
    words = [word for name in types for word in ("--type", name)]
    at_once = worlds_at_once(runtime, worlds)
    if at_once > 1:
        words += ["--jobs", str(at_once)]
    words += ["--task-timeout", f"{section.task_timeout_sec:g}"]
    words += ["--prepare-timeout", f"{section.task_prepare_timeout_sec:g}"]
    for name, seconds in section.task_timeouts.items():
        words += ["--timeout", f"{name}={seconds:g}"]
    return [*words, "--redo"] if redo else words


def scorer_job(runtime: Runtime, manifest: Path, flags: Sequence[str], name: str) -> Job:
    """The scorer as a job of the runtime file's backend: real paths on the host, fixed mounts in a
    container.
    """
    section = runtime.file.scorer
    environment = section.environment
    on_host = runtime.backend == "host"
    env = {"PYTHONUNBUFFERED": "1"}
    if environment.cpus is not None:
        # The flags say how many share the processors.
        share = int(environment.cpus) // (int(flags[flags.index("--jobs") + 1]) if "--jobs" in flags else 1)
        env |= dict.fromkeys(THREAD_VARIABLES, str(max(1, share)))
    checkpoints = _checkpoints(runtime)
    if on_host:
        env["HOME"] = os.environ.get("HOME", "/")
        paths = ["--manifest", str(manifest), "--cases", str(runtime.cases), "--data", str(runtime.data)]
        paths += ["--runs", str(runtime.runs), "--checkpoints", str(runtime.checkpoints or "/nonexistent")]
        command = (sys.executable, "-m", "scorer", *paths, *flags)
        mounts: tuple[Mount, ...] = ()
        network = environment.network_mode != NO_NETWORK
        limits = Limits(memory_mb=environment.memory_mb)
    else:
        command = ("python", "-m", "scorer", "--manifest", str(MANIFEST), *flags)
        mounts = _mounts(runtime, manifest, checkpoints)
        network = environment.network_mode == "default"
        limits = Limits(cpus=environment.cpus, memory_mb=environment.memory_mb)
    return Job(
        name=name,
        command=command,
        image=runtime.image(section.image, "scorer"),
        mounts=mounts,
        env=env,
        workdir=PurePosixPath(REPOSITORY) if on_host else PurePosixPath("/workspace"),
        network=network,
        gpus=_gpus(environment.gpus),
        limits=limits,
        labels=labels(name),
    )


def time_limit(runtime: Runtime) -> float:
    """Seconds for one invocation of the scorer."""
    section = runtime.file.scorer
    return section.score_timeout_sec or section.timeout_sec or UNLIMITED


def _mounts(runtime: Runtime, manifest: Path, checkpoints: Path | None) -> tuple[Mount, ...]:
    mounts = [
        Mount(runtime.cases, PurePosixPath(f"/{CASES}")),
        Mount(runtime.data, PurePosixPath(f"/{DATA}"), writable=True),
        Mount(runtime.runs, PurePosixPath(f"/{RUNS}"), writable=True),
        Mount(manifest, MANIFEST),
    ]
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


def _gpus(count: int | None) -> tuple[str, ...] | None:
    """Devices of the scorer: those of CUDA_VISIBLE_DEVICES, at most ``count``; 0 is none, None is what
    there is.
    """
    if count == 0:
        return ()
    found = devices("auto")
    if count is None or found == ():
        return found
    return tuple(str(index) for index in range(count)) if found is None else found[:count]
