"""The queue directory: each item ends exactly once, whatever its workers do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.workqueue import MOST_RETURNS, Item, Queue, Watch, Worker

ROWS = [{"n": number} for number in range(5)]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue.create(tmp_path / "q", ROWS)


def tokens(queue: Queue) -> list[int]:
    """Every token that lies anywhere, by the number of its item."""
    found = [item.number for item in queue.ready()]
    found += [item.number for items in queue.taken().values() for item in items]
    found += [int(path.name.split(".")[0]) for path in (queue.directory / "done").iterdir()]
    return sorted(found)


def test_items_are_taken_in_order_and_end_with_an_outcome(queue: Queue) -> None:
    assert queue.rows() == ROWS
    with Worker(queue, "w", {"host": "here"}) as worker:
        taken = [worker.take() for _ in range(6)]
        assert taken == [*(Item(n, 0) for n in range(5)), None]
        assert queue.taken() == {"w": taken[:5]}
        assert worker.finish(Item(3, 0), {"state": "failed", "note": "why"})
    assert queue.ended() == {3: "000003.0~w"}
    assert queue.outcome("000003.0~w") == {"state": "failed", "note": "why", "worker": "w"}
    # What was held when the worker left is there again, and nobody counts that as a try.
    assert queue.ready() == [Item(n, 0) for n in (0, 1, 2, 4)]
    assert tokens(queue) == [0, 1, 2, 3, 4]


def test_an_empty_queue_and_one_that_is_closed_give_nothing(tmp_path: Path, queue: Queue) -> None:
    with Worker(Queue.create(tmp_path / "empty", []), "w") as worker:
        assert worker.take() is None
    with Worker(queue, "w") as worker:
        assert worker.take() == Item(0, 0)
        queue.close()
        assert worker.take() is None
        assert worker.finish(Item(0, 0), {"state": "ok"})


def test_what_a_dead_worker_held_comes_back_and_is_given_up_in_the_end(queue: Queue) -> None:
    for returns in range(MOST_RETURNS):
        worker = Worker(queue, f"w{returns}").__enter__()
        assert worker.take() == Item(0, returns)
        assert queue.give_back(worker.name, "it died") == 1
        assert not worker.finish(Item(0, returns), {"state": "ok"})  # too late
        worker._over.set()
    with Worker(queue, "last") as worker:
        assert worker.take() == Item(0, MOST_RETURNS)
        assert queue.give_back("last", "it died") == 0
    (name,) = queue.ended().values()
    outcome = queue.outcome(name)
    assert outcome == {"state": "lost", "note": "given up after 4 tries: it died"}
    assert tokens(queue) == [0, 1, 2, 3, 4]


def test_returning_without_counting_never_gives_up(queue: Queue) -> None:
    for number in range(MOST_RETURNS + 3):
        with Worker(queue, f"w{number}") as worker:
            assert worker.take() == Item(0, 0)


def test_a_late_end_does_not_count_when_another_worker_has_the_item(queue: Queue) -> None:
    with Worker(queue, "slow") as slow, Worker(queue, "quick") as quick:
        slow.take()
        queue.give_back("slow", "no sign of life")
        again = quick.take()
        assert again == Item(0, 1)
        assert not slow.finish(Item(0, 0), {"state": "failed"})
        assert quick.finish(again, {"state": "ok"})
        assert not slow.finish(Item(0, 0), {"state": "failed"})
    assert queue.outcome(queue.ended()[0])["worker"] == "quick"
    assert os.listdir(queue.directory / "outcomes") == ["000000.1~quick"]


def test_only_a_heartbeat_that_stands_still_for_long_enough_is_death(queue: Queue) -> None:
    moment = [0.0]
    watch = Watch(queue, 120, lambda: moment[0])
    with Worker(queue, "w") as worker, Worker(queue, "idle"):
        worker.take()
        beat = queue.directory / "workers/w"
        assert watch.dead() == []
        for moment[0] in (60.0, 119.0):
            assert watch.dead() == []
        os.utime(beat, ns=(1, 1))  # another machine's clock may say anything
        moment[0] = 130.0
        assert watch.dead() == []
        moment[0] = 249.0
        assert watch.dead() == []
        moment[0] = 250.0
        assert watch.dead() == ["w"]  # and never one that holds nothing


def test_the_heartbeat_beats(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contract.workqueue.HEARTBEAT_S", 0.01)
    with Worker(queue, "w"):
        first = queue.workers()["w"]
        until = time.monotonic() + 30
        while queue.workers()["w"] == first:
            assert time.monotonic() < until


@pytest.mark.parametrize("name", ["", "a/b", "a~b", ".a", "a\0b"])
def test_names_that_cannot_be_files_are_refused(queue: Queue, name: str) -> None:
    with pytest.raises(ValueError):
        Worker(queue, name)


def test_a_strange_file_and_a_damaged_outcome_do_no_harm(queue: Queue) -> None:
    for directory in ("ready", "done", "taken/x"):
        (queue.directory / directory).mkdir(exist_ok=True)
        (queue.directory / directory / ".nfs00001").touch()
        (queue.directory / directory / "note.txt").touch()
    assert len(queue.ready()) == 5
    assert queue.ended() == {}
    assert queue.taken() == {}
    (queue.directory / "outcomes/000000.0~w").write_text("{", encoding="utf-8")
    assert queue.outcome("000000.0~w")["state"] == "lost"
    (queue.directory / "outcomes/000000.0~w").write_text("[]", encoding="utf-8")
    assert queue.outcome("000000.0~w")["state"] == "lost"
    assert queue.outcome("000001.0~w")["state"] == "lost"
    (queue.directory / "manifest.json").write_text('[{"n": 0}, {"n', encoding="utf-8")
    assert len(Queue(queue.directory).ready()) == 5
    with pytest.raises(ValueError):
        queue.rows()


def test_a_file_that_stands_for_no_item_is_never_waited_for(queue: Queue) -> None:
    for directory in ("ready", "done", "taken/x"):
        (queue.directory / directory).mkdir(exist_ok=True)
        for name in ("3.0", "0000003.0", "000003.00", "\u0663.0", "000005.0", "999999.0", "9" * 200 + ".0"):
            (queue.directory / directory / name).touch()
    assert [item.number for item in queue.ready()] == list(range(5))
    assert queue.ended() == {}
    assert queue.taken() == {}
    with Worker(queue, "w") as worker:
        assert [worker.take() for _ in range(6)] == [*(Item(number, 0) for number in range(5)), None]
    assert len(queue.ready()) == 5


_WORKER = """
import os, random, sys
from pathlib import Path
from contract.workqueue import Queue, Worker
queue, name, seed = Queue(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
draw = random.Random(seed)
log = os.open(sys.argv[1] + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with Worker(queue, name) as worker:
    while (item := worker.take()) is not None:
        for _ in range(draw.randrange(2000)):
            pass
        if worker.finish(item, {"state": "ok"}):
            os.write(log, f"{item.number} {name}\\n".encode())
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_item_ends_once_with_many_processes_that_are_killed(
    tmp_path: Path, repository: Path, seed: int
) -> None:
    draw = random.Random(seed)
    count = 150
    queue = Queue.create(tmp_path / "q", [{"n": n} for n in range(count)])
    env = {**os.environ, "PYTHONPATH": str(repository)}
    running: dict[str, subprocess.Popen[bytes]] = {}
    started = kills = 0
    until = time.monotonic() + 120
    while len(queue.ended()) < count:
        assert time.monotonic() < until
        while len(running) < 4:
            name = f"w{started}"
            words = [sys.executable, "-c", _WORKER, str(queue.directory), name, str(started)]
            running[name] = subprocess.Popen(words, env=env)
            started += 1
        if kills < 6 and queue.taken() and draw.random() < 0.5:
            victim = draw.choice(sorted(running))
            running[victim].send_signal(signal.SIGKILL)
            kills += 1
        for name, process in list(running.items()):
            if process.poll() is not None:
                assert process.returncode in (0, -9)
                del running[name]
                queue.give_back(name, "killed", counts=False)
    for process in running.values():
        process.wait(60)
    assert tokens(queue) == list(range(count))
    assert sorted(queue.ended()) == list(range(count))
    told = [line.split() for line in (tmp_path / "q.log").read_text().splitlines()]
    assert len({number for number, _ in told}) == len(told)  # nobody ended what another had ended
    by_worker = {name: queue.outcome(name)["worker"] for name in queue.ended().values()}
    assert all(name.endswith(f"~{worker}") for name, worker in by_worker.items())
    assert all(json.loads((queue.directory / "outcomes" / name).read_text()) for name in by_worker)
