"""Everything about one run that a page shows; what is missing says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract.metrics import BY_KEY, METRICS
from contract.names import (
    LOGS,
    MESHES,
    RENDER,
    RESULTS,
    REWARD_DETAIL,
    RUN_RECORD,
    SESSION,
    SOLUTION,
    VIZ,
    WORKSPACE,
    WORLD,
)
from contract.states import case_state
from viewer.clips import clip
from viewer.files import TYPES
from viewer.index import Entry
from viewer.readjson import Broken, read_record, shown, text
from viewer.rows import COLUMNS
from viewer.trees import Absent, Trees, listing, walk

_TEXTS = (LOGS, f"{WORKSPACE}/{SOLUTION}", SESSION)


def run_view(trees: Trees, entry: Entry) -> dict[str, Any]:
    """Record, readings with states and causes, gates, videos, files and texts of a run."""
    parts = entry.place.parts
    problems: list[str] = []
    record = _read(trees, (*parts, RUN_RECORD), problems)
    detail = _read(trees, (*parts, RESULTS, REWARD_DETAIL), problems)
    world = (*parts, WORKSPACE, WORLD)
    names = {item.name for item in listing(trees.runs, world)}
    row = dict(zip(COLUMNS, entry.row, strict=True))
    return {
        "row": row,
        "record": shown(record),
        "problems": problems,
        "readings": readings(entry, detail or {}),
        "gates": gates(detail or {}),
        "alignment": shown((detail or {}).get("alignment")),
        "infrastructure": shown((detail or {}).get("infrastructure")),
        "skipped": shown((detail or {}).get("skipped")),
        "scorer": shown(
            {k: v for k, v in _mapping(detail, "scorer").items() if k in ("protocol", "version", "host")}
        ),
        "render": _clip(trees, (*world, RENDER)),
        "meshes": MESHES in names and not entry.place.staging,
        "viz": videos(trees, parts),
        "texts": texts(trees, parts),
    }


def _read(trees: Trees, parts: tuple[str, ...], problems: list[str]) -> dict[str, Any] | None:
    try:
        return read_record(trees.runs, parts)
    except Broken as error:
        problems.append(text(str(error)))
        return None


def _mapping(record: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    value = (record or {}).get(key)
    return value if isinstance(value, dict) else {}


def _clip(trees: Trees, parts: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        return clip(trees.runs, parts)
    except Absent:
        return None


def readings(entry: Entry, detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a metric: number or state, cause, and the text of a failure."""
    reward, causes = entry.run.reward, _mapping(detail, "causes")
    found = []
    for metric in METRICS:
        value = (reward or {}).get(metric.key)
        fixed = case_state(metric.key, entry.run.case)
        state = value if isinstance(value, str) else ("" if value is not None else "missing")
        cause = text(causes.get(metric.key), 80)
        if state == "missing":
            state = fixed.value if fixed and reward is None else "missing"
            cause = "" if fixed else ("not scored" if reward is None else "left out or not asked for")
        why = detail.get(f"{metric.type}_failure")
        found.append(
            {
                "key": metric.key,
                "value": shown(value) if isinstance(value, int | float) else None,
                "state": shown(state)[:40] if isinstance(state, str) else "",
                "cause": cause or (fixed.cause or "" if fixed else ""),
                "failure": text(why, 2_000) if metric.key in BY_KEY else "",
            }
        )
    return found


def gates(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Both gates: open, closed or not asked, and why."""
    found = []
    for name in ("video_gate", "world_gate"):
        gate = _mapping(detail, name)
        lines = gate.get("detail")
        found.append(
            {
                "name": name,
                "ok": gate.get("ok") if isinstance(gate.get("ok"), bool) else None,
                "error": text(gate.get("error"), 2_000),
                "lines": [text(line, 500) for line in lines[:50]] if isinstance(lines, list) else [],
            }
        )
    return found


def videos(trees: Trees, parts: tuple[str, ...]) -> list[dict[str, Any]]:
    """What the visualizer left: playable files of ``viz/``."""
    return [
        {"name": item.name, "bytes": item.size}
        for item in listing(trees.runs, (*parts, VIZ))
        if not item.folder and "." in item.name and f".{item.name.rsplit('.', 1)[1]}" in TYPES
    ]


def texts(trees: Trees, parts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Files that can be read as text: logs, the delivered program, the agent's session."""
    found = []
    for folder in _TEXTS:
        below = tuple(folder.split("/"))
        found += [
            {"path": f"{folder}/{path}", "bytes": size} for path, size in walk(trees.runs, (*parts, *below))
        ]
    return found[:2_000]
