"""Dynamic slots against static shards, on simulated items and a simulated clock, through the real queue."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness_lab import Lab

from contract.workqueue import Queue, Worker
from harness.runtime.config import load_runtime
from harness.runtime.scorework import Work
from harness.runtime.scoring import Entry
from harness.runtime.stages import SCORE

SLOTS, ITEMS = 4, 40


def greedy(seconds: Sequence[float]) -> float:
    """Makespan of the longest-first rule that knows all durations."""
    ends = [0.0] * SLOTS
    for duration in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += duration
    return max(ends)


def round_robin(seconds: Sequence[float]) -> float:
    """Makespan of shards ``i, i + n, i + 2n, …`` in the order of the jobs file."""
    return max(sum(seconds[slot::SLOTS]) for slot in range(SLOTS))


def simulated(queue: Queue, seconds: Sequence[float]) -> float:
    """Makespan of workers that take from the queue whenever they are free."""
    workers = [Worker(queue, f"slot{number}") for number in range(SLOTS)]
    free = [(0.0, number) for number in range(SLOTS)]
    end = 0.0
    for worker in workers:
        worker.__enter__()
    while free:
        moment, number = heapq.heappop(free)
        item = workers[number].take()
        if item is not None:
            assert workers[number].finish(item, {"state": "ok"})
            heapq.heappush(free, (moment + seconds[item.number], number))
            end = max(end, moment + seconds[item.number])
    for worker in workers:
        worker.__exit__(None, None, None)
    return end


@pytest.mark.parametrize("seed", range(5))
def test_four_slots_and_forty_skewed_items(lab: Lab, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    # Skewed: a few items take many times what most take. What is known beforehand is off by up to a third.
    truth = {f"runs/{n}/workspace/world": draw.lognormvariate(3, 1.2) for n in range(ITEMS)}
    guess = {world: seconds * draw.uniform(0.75, 1.33) for world, seconds in truth.items()}
    lab.runtime()
    runtime = load_runtime(lab.runtime_path)
    monkeypatch.setattr(
        "harness.runtime.scorework.world_cost",
        lambda world, video: guess[f"runs/{world.relative_to(runtime.runs)}"],
    )
    entries = [Entry("synthetic/B_01", world, f"runs/{n}") for n, world in enumerate(truth)]
    rows = Work(runtime, [SCORE], [], entries, {}, [], []).rows(SCORE)
    queue = Queue.create(Path(lab.root) / "queue", rows)
    dynamic = simulated(queue, [truth[row["world"]] for row in rows])
    bound, static = greedy(list(truth.values())), round_robin(list(truth.values()))
    assert sorted(queue.ended()) == list(range(ITEMS))
    print(f"greedy {bound:.0f} s, queue {dynamic:.0f} s, round robin {static:.0f} s")
    assert dynamic <= 1.10 * bound
    assert dynamic < static
