"""How long the viewer needs to look through a large tree: first, again, and for a report of it.

    python benchmarks/viewer_index.py [--cases 200] [--systems 10] [--trials 3]

Makes a tree in a temporary directory: records, rewards, and details with 300 readings per frame each.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from contract.metrics import METRICS
from contract.states import case_state
from viewer.answers import encode, packed
from viewer.index import Index
from viewer.results import Results, Selection

FRAMES = 300


def make(root: Path, cases: int, systems: int, trials: int) -> int:
    """Write the tree; returns the number of runs."""
    rng = random.Random(0)
    curve = [round(rng.random(), 6) for _ in range(FRAMES)]
    for case_number in range(cases):
        kind = "real" if case_number % 2 else "synthetic"
        case = f"{kind}/case_{case_number:03d}"
        for system in range(systems):
            for trial in range(1, trials + 1):
                run = root / case / f"agent-model_{system}-high" / str(trial)
                (run / "results").mkdir(parents=True)
                record = {
                    "agent": "agent", "model": f"model_{system}", "effort": "high", "trial": trial,
                    "state": "done",
                    "agent_seconds": rng.uniform(100, 9000), "cost_usd": rng.uniform(1, 30),
                    "steps": 90, "tool_calls": 120,
                    "usage": {"input_tokens": 10_000, "output_tokens": 90_000, "cached_input_tokens": 9_000},
                    "history": [{"state": "queued", "at": "2026-01-01T00:00:00.000+00:00"}] * 4,
                }  # fmt: skip
                fixed = {metric.key: case_state(metric.key, case) for metric in METRICS}
                reward = {key: state.value if state else rng.random() for key, state in fixed.items()}
                detail = {
                    "status": "ok", "scorer": {"protocol": "4dcb-1", "version": "0.1.0"}, "causes": {},
                    "depth_per_frame": curve,
                    "semantic_per_frame": {"semantic_dinov3": curve, "semantic_tips": curve},
                }  # fmt: skip
                for path, value in (
                    ("run.json", record),
                    ("results/reward.json", reward),
                    ("results/reward.detail.json", detail),
                ):
                    (run / path).write_text(json.dumps(value, indent=2, sort_keys=True))
    return cases * systems * trials


def timed(label: str, act: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    took, used = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{label:34} {took:7.3f} s wall  {used:7.3f} s of processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--systems", type=int, default=10)
    parser.add_argument("--trials", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        print(f"{make(root, options.cases, options.systems, options.trials)} runs")
        time.sleep(0.1)  # times of change that can be told from those of the reading
        index = Index(root)
        timed("first look", lambda: index.snapshot(0))
        timed("again, nothing changed", lambda: index.snapshot(0))
        record = next(root.glob("*/*/*/1/run.json"))
        record.write_text(record.read_text().replace('"done"', '"failed"'))
        timed("again, one run changed", lambda: index.snapshot(0))
        rows = [entry.row for entry in index.snapshot().entries.values()]
        timed("rows as JSON, compressed", lambda: packed(encode(rows)))
        results = Results(index)
        timed("report, first", lambda: results.as_record(Selection()))
        timed("report, again", lambda: results.as_record(Selection()))
        timed("by case", lambda: results.pivot(Selection(), "Overall"))


if __name__ == "__main__":
    main()
