"""What there is to score: entries of a manifest, and which runs may be scored at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.names import CASES, DATA, RUNS, SANITY, WORLD
from contract.runs import RunKey
from harness.runtime.config import Runtime
from harness.runtime.rundir import Place
from harness.runtime.runrecord import FINISHED, read_record, state_of


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
        return _on_disk(self.out, runtime)

    def world_directory(self, runtime: Runtime) -> Path:
        """Where the world lies, on this machine."""
        return _on_disk(self.world, runtime)

    @property
    def name(self) -> str:
        """How tables call it; ``runs/`` in front of every name says nothing."""
        return self.out.removeprefix(f"{RUNS}/")


def _on_disk(path: str, runtime: Runtime) -> Path:
    root, rest = path.split("/", 1)
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
