"""One run as one row: what its three records say, small enough to send thousands of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.aggregate import Scored, summarise
from contract.metrics import METRICS, metrics_of
from contract.metrics import MODEL_UNITS as MODELS
from contract.names import RESULTS, REWARD, REWARD_DETAIL, RUN_RECORD
from contract.states import STATES
from report.runs import FAILED_STATES, ScoredRun
from viewer.readjson import Broken, number, read_record, text
from viewer.trees import Absent, directory

BROKEN, UNKNOWN = "broken", "unknown"
"""States of our own: the record cannot be read; the record names no state."""

COLUMNS = (
    "id", "kind", "case", "system", "agent", "model", "effort", "trial", "state", "scored", "cause", "note",
    "score", "seconds", "cost", "tokens", "steps", "calls", "started", "changed", "live", "reward",
)  # fmt: skip
"""Names of a row's members, in order. ``reward`` holds a reading for each metric, in the metric table's
order.
"""


@dataclass(frozen=True)
class RunPlace:
    """Where a run lies below the runs root. ``staging``: directory of a run that has not ended, else
    empty.
    """

    kind: str
    case: str
    system: str
    trial: str
    staging: str = ""

    @property
    def id(self) -> str:
        return "/".join((self.kind, self.case, self.system, self.trial))

    @property
    def parts(self) -> tuple[str, ...]:
        own = (self.staging, "run") if self.staging else (self.trial,)
        return (self.kind, self.case, self.system, *own)


def read_run(root: Path, place: RunPlace, changed: float) -> tuple[list[Any], ScoredRun] | None:
    """The row of a run, and the run as reports take it; None for a staging directory of no run that goes on.

    After a swap such a directory holds the run that was replaced: its record carries another id.
    """
    try:
        with directory(root, place.parts) as handle:
            return _read_run(handle, place, changed)
    except Absent:
        return None


def _read_run(root: int, place: RunPlace, changed: float) -> tuple[list[Any], ScoredRun] | None:
    problem = ""
    record: Mapping[str, Any] = {}
    try:
        record = read_record(root, (RUN_RECORD,)) or {}
    except Broken as error:
        problem = str(error)
    if place.staging and not place.staging.endswith(f"-{text(record.get('run_id'))}"):
        return None
    state = BROKEN if problem else state_of(record)
    reward, reward_problem = _reward(root)
    detail: Mapping[str, Any] = {}
    try:
        detail = read_record(root, (RESULTS, REWARD_DETAIL)) or {}
    except Broken as error:
        problem = problem or str(error)
    run = _scored_run(place, reward, reward_problem, detail, state)
    scored, cause, note = _verdict(record, reward, detail)
    if problem or reward_problem:
        cause, note = "broken_json", problem or reward_problem
        scored = BROKEN if reward_problem else scored
    row = [
        place.id,
        place.kind,
        f"{place.kind}/{place.case}",
        place.system,
        text(record.get("agent")) or place.system.split("-", 1)[0],
        text(record.get("model")) or "",
        text(record.get("effort")) or "",
        int(place.trial) if place.trial.isascii() and place.trial.isdigit() else place.trial,
        state,
        scored,
        cause,
        note,
        score(run),
        number(record.get("agent_seconds")),
        number(record.get("cost_usd")),
        tokens(record.get("usage")),
        number(record.get("steps")),
        number(record.get("tool_calls")),
        text(record.get("started_at"), 40),
        changed,
        1 if place.staging else 0,
        [_shown(reward.get(metric.key)) for metric in METRICS] if reward is not None else None,
    ]
    return row, run


def state_of(record: Mapping[str, Any]) -> str:
    """State of a run; records of the reference harness have none and were written at the end only."""
    if isinstance(record.get("state"), str):
        return text(record["state"], 40)
    if "agent_exit" not in record:
        return UNKNOWN
    return "done" if record["agent_exit"] == 0 and record.get("delivered") is True else "failed"


def tokens(usage: object) -> int | None:
    """Every token that passed the wire; reasoning is part of the output."""
    if not isinstance(usage, dict):
        return None
    names = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens")
    counts = [number(usage.get(name)) for name in names]
    return int(sum(count or 0 for count in counts)) if any(count is not None for count in counts) else None


def score(run: ScoredRun) -> float | None:
    """Overall of this one run by the benchmark's rule; None when nothing of it counts."""
    if not run.reward:
        return None
    try:
        return summarise([Scored(run.case, run.reward, run.gates_open)]).overall
    except ValueError:
        return None


def _reward(root: int) -> tuple[dict[str, Any] | None, str]:
    try:
        return read_record(root, (RESULTS, REWARD)), ""
    except Broken as error:
        return None, str(error)


def _scored_run(
    place: RunPlace,
    reward: dict[str, Any] | None,
    problem: str,
    detail: Mapping[str, Any],
    state: str,
) -> ScoredRun:
    case = f"{place.kind}/{place.case}"
    if reward is None:
        why = "not scored yet" if state in FAILED_STATES else f"no result of the agent (state {state})"
        return ScoredRun(case, place.system, place.trial, None, problem or why)
    scorer, units, faults = detail.get("scorer"), detail.get("skipped"), detail.get("infrastructure")
    protocol = scorer.get("protocol", "unknown") if isinstance(scorer, dict) else "unknown"
    skipped = [
        metric.key
        for unit in (units if isinstance(units, list | dict) else ())
        if unit in MODELS
        for metric in metrics_of(unit)
    ]
    return ScoredRun(
        case,
        place.system,
        place.trial,
        reward,
        gates_open=detail.get("status", "ok") != "gate_failure",
        protocol=str(protocol),
        skipped=frozenset(key for key in skipped if key not in reward),
        faults={name: str(what) for name, what in faults.items()} if isinstance(faults, dict) else {},
    )


def _verdict(
    record: Mapping[str, Any], reward: dict[str, Any] | None, detail: Mapping[str, Any]
) -> tuple[str, str, str]:
    """How far scoring went (``no``, ``gate``, ``errors``, ``yes``), the cause of what went wrong, a note."""
    failure, note = text(record.get("failure"), 80), text(record.get("failure_note") or record.get("error"))
    if reward is None:
        return "no", failure, note
    causes = detail.get("causes")
    named = next((text(cause, 80) for cause in causes.values()), "") if isinstance(causes, dict) else ""
    if detail.get("status") == "gate_failure":
        return "gate", failure or named or "gate_failure", note or text(detail.get("gate_failure"))
    if any(reward.get(metric.key) == "error" for metric in METRICS):
        errors = [
            text(cause, 80)
            for key, cause in (causes.items() if isinstance(causes, dict) else ())
            if reward.get(key) == "error"
        ]
        return "errors", failure or (errors[0] if errors else "error"), note
    return "yes", failure, note


def _shown(value: object) -> float | str | None:
    if isinstance(value, str):
        return value if value in STATES else "?"
    found = number(value)
    return None if found is None else round(float(found), 6)
