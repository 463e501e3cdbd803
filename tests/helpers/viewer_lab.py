"""Trees for the viewer's tests: runs of every kind, honest and hostile, beside the fixture worlds."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.metrics import METRICS
from contract.record import write_json
from contract.states import case_state
from viewer.trees import Trees

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""
RIGID = "synthetic/rigid"
EVIL = "<img src=x onerror=alert(1)>"


def add_run(
    runs: Path,
    path: str,
    record: Mapping[str, Any] | None = None,
    reward: Mapping[str, Any] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Path:
    """A run directory with the given records."""
    run = runs / path
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / "run.json", {"state": "done", **(record or {})})
    if reward is not None:
        (run / "results").mkdir(exist_ok=True)
        write_json(run / "results/reward.json", reward)
        write_json(run / "results/reward.detail.json", {"status": "ok", "causes": {}, **(detail or {})})
    return run


def full_reward(case: str, value: float) -> dict[str, Any]:
    """A reading for each metric: ``value`` where the metric applies, else the state."""
    states = {metric.key: case_state(metric.key, case) for metric in METRICS}
    return {key: state.value if state else value for key, state in states.items()}


def add_world(runs: Path, path: str, world: Path) -> None:
    """Deliver a copy of ``world``."""
    shutil.copytree(world, runs / path / "workspace/world", dirs_exist_ok=True)


def session(run: Path, name: str, *lines: object) -> None:
    """A transcript below the run's session."""
    path = run / "session" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def claude_lines(words: str = "I look at the video.") -> list[dict[str, Any]]:
    """A short session of Claude Code, with a tool call, its output, a picture and an error."""
    picture = {
        "type": "image",
        "source": {"media_type": "image/png", "data": base64.b64encode(PIXEL).decode()},
    }
    usage = {"input_tokens": 12, "output_tokens": 34, "cache_read_input_tokens": 5600}

    def said(*blocks: object) -> dict[str, Any]:
        message = {"id": "m", "usage": usage, "content": list(blocks)}
        return {"type": "assistant", "timestamp": "2026-01-02T03:04:05.678Z", "message": message}

    def heard(*blocks: object) -> dict[str, Any]:
        return {"type": "user", "message": {"content": list(blocks)}}

    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls /input"}}
    return [
        {"type": "user", "message": {"content": "Rebuild the video."}},
        said({"type": "thinking", "thinking": "What moves?"}, {"type": "text", "text": words}, call),
        heard({"type": "tool_result", "tool_use_id": "t1", "content": "reference.mp4"}),
        heard(
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [picture, {"type": "text", "text": "seen"}],
            }
        ),
        heard({"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no such file"}),
    ]


def make_trees(target: Path, worlds: Path) -> Trees:
    """The fixture's rigid case with three systems, and runs in every other state."""
    runs = target / "runs"
    shutil.copytree(worlds / "cases/synthetic/rigid", target / "cases" / RIGID)
    shutil.copytree(worlds / "data/synthetic/rigid", target / "data" / RIGID)
    (target / "cases/real").mkdir()
    for trial, (system, value) in enumerate((("self", 0.9), ("late", 0.6), ("frozen", 0.3)), 1):
        record = {
            "agent": system,
            "cost_usd": float(trial),
            "agent_seconds": 60.0 * trial,
            "steps": 5 * trial,
        }
        record |= {"usage": {"input_tokens": 1000, "output_tokens": 500}, "delivered": True, "agent_exit": 0}
        detail = {
            "scorer": {"protocol": "4dcb-1", "version": "0.1.0"},
            "video_gate": {"ok": True},
            "world_gate": {"ok": True},
        }
        detail["semantic_per_frame"] = {"semantic_dinov3": [0.5, 0.6, float(trial) / 10]}
        run = add_run(runs, f"{RIGID}/{system}/1", record, full_reward(RIGID, value), detail)
        add_world(runs, f"{RIGID}/{system}/1", worlds / f"runs/{RIGID}/{system}/1/workspace/world")
        (run / "logs").mkdir()
        (run / "logs/agent.log").write_text("first line\nsecond line\n")
    session(runs / f"{RIGID}/self/1", ".claude/projects/p/one.jsonl", *claude_lines())
    gate = {
        "status": "gate_failure",
        "causes": {"dynamic_iou": "no_video"},
        "video_gate": {"ok": False, "error": "no render.mp4"},
    }
    add_run(
        runs,
        "real/clip/late/1",
        {"state": "failed", "failure": "timeout"},
        full_reward("real/clip", 0.0) | {"dynamic_iou": "error"},
        gate,
    )
    add_run(
        runs,
        "real/clip/self/1",
        {"state": "environment_error", "failure": "auth_error", "failure_note": "token void"},
    )
    add_run(runs, "real/clip/self/.2.staging-ab12/run", {"state": "running", "run_id": "ab12"})
    (runs / "real/clip/frozen/1").mkdir(parents=True)
    (runs / "real/clip/frozen/1/run.json").write_text('{"state": "done"')
    return Trees.of(target / "cases", target / "data", runs)
