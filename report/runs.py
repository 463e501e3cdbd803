"""Find the runs below a tree and read their rewards, saying what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from contract.cases import KINDS, kind
from contract.errors import UserError
from contract.metrics import METRICS, MODEL_UNITS, metrics_of
from contract.names import RESULTS, REWARD, REWARD_DETAIL, RUN_RECORD
from contract.record import read_json
from contract.states import case_state

FAILED_STATES = ("done", "failed")
"""States of a run that is a result of the agent; other states say nothing about it."""


@dataclass(frozen=True)
class ScoredRun:
    """One run: where it lies, and its ``reward.json`` (None: never scored) or why it could not be read.

    gates_open : neither gate refused it. protocol : under which it was scored, ``unknown`` for older results.
    skipped : keys without a reading, as their model was left out. faults : types without one by the machine's
    fault (or ``gate``: all of them), and what happened.
    """

    case: str
    system: str
    trial: str
    reward: Mapping[str, object] | None
    problem: str = ""
    gates_open: bool = True
    protocol: str = "unknown"
    skipped: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.case}/{self.system}/{self.trial}"

    @property
    def kind(self) -> str:
        return kind(self.case)


def find_runs(root: Path) -> list[ScoredRun]:
    """Every run of the tree ``<root>/<kind>/<case>/<system>/<trial>``, in order of path.

    Raises ``UserError`` when ``root`` is no directory or holds no run.
    """
    if not root.is_dir():
        raise UserError("no such directory of runs", where=root, next_step="give one with --runs")
    runs = [_read(path, root) for path in sorted(_trials(root))]
    if not runs:
        raise UserError(
            "holds no run",
            where=root,
            expected="<kind>/<case>/<system>/<trial>/ with run.json or results/reward.json",
            next_step="run infer.py and score.py first",
        )
    return runs


def _trials(root: Path) -> Iterator[Path]:
    for name in KINDS:
        for path in (root / name).glob("*/*/*"):
            kept = (path / RUN_RECORD).is_file() or (path / RESULTS / REWARD).is_file()
            if kept and not path.name.startswith("."):
                yield path


def _read(path: Path, root: Path) -> ScoredRun:
    kind_name, case, system, trial = path.relative_to(root).parts
    name = f"{kind_name}/{case}"
    reward_file = path / RESULTS / REWARD
    if not reward_file.is_file():
        return ScoredRun(name, system, trial, None, _why_unscored(path))
    try:
        reward = read_json(reward_file)
    except (OSError, ValueError) as error:
        return ScoredRun(name, system, trial, None, f"{REWARD} cannot be read: {error}")
    if not isinstance(reward, dict):
        return ScoredRun(name, system, trial, None, f"{REWARD} holds no object")
    gates_open, protocol, skipped, faults = _circumstances(path / RESULTS / REWARD_DETAIL)
    absent = frozenset(key for key in skipped if key not in reward)
    return ScoredRun(name, system, trial, reward, "", gates_open, protocol, absent, faults)


def _circumstances(detail_file: Path) -> tuple[bool, str, list[str], dict[str, str]]:
    try:
        detail = read_json(detail_file)
        scorer = detail.get("scorer") or {}
        units = detail.get("skipped") or {}
        skipped = [metric.key for unit in units if unit in MODEL_UNITS for metric in metrics_of(unit)]
        faults = {name: str(text) for name, text in (detail.get("infrastructure") or {}).items()}
        gates_open = detail.get("status", "ok") != "gate_failure"
        return gates_open, str(scorer.get("protocol", "unknown")), skipped, faults
    except (OSError, ValueError, AttributeError, TypeError):
        return True, "unknown", [], {}


def _why_unscored(path: Path) -> str:
    try:
        record = read_json(path / RUN_RECORD)
        state = record.get("state", "done") if isinstance(record, dict) else "unreadable"
    except (OSError, ValueError):
        state = "unreadable"
    if state in FAILED_STATES:
        return "not scored yet"
    return f"no result of the agent (state {state})"


def skipped_keys(runs: list[ScoredRun]) -> dict[str, int]:
    """Keys that could be scored and whose model was left out, with the number of runs, in table order."""
    counts = Counter(key for run in runs for key in run.skipped if case_state(key, run.case) is None)
    return {metric.key: counts[metric.key] for metric in METRICS if counts[metric.key]}


def machine_faults(runs: list[ScoredRun]) -> dict[str, dict[str, str]]:
    """What the machine's faults left without a reading, by name of the run."""
    return {run.name: dict(run.faults) for run in runs if run.faults}


def missing_runs(runs: list[ScoredRun]) -> dict[str, str]:
    """What is missing, by name, with the reason: runs without a reward, and cases that a system lacks.

    A system is expected to have a run of every case that any system in the selection has one of.
    """
    missing = {run.name: run.problem for run in runs if run.reward is None}
    present = {(run.system, run.case) for run in runs}
    for system in sorted({run.system for run in runs}):
        for case in sorted({run.case for run in runs}):
            if (system, case) not in present:
                missing[f"{case}/{system}"] = "never run"
    return missing
