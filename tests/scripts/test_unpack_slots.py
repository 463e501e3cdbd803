"""The worker processes: bounded in number and in memory, replaced when one dies."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import unpack_slots
from packed_worlds import write_small
from unpack_slots import Slots, UnpackFault
from world_unpacking import unpack


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack_slots.os, "sched_getaffinity", lambda pid: set(range(64)))
    assert Slots().count == 7
    assert Slots(3).count == 3
    assert Slots(100).count == 7
    monkeypatch.setattr(unpack_slots.os, "sched_getaffinity", lambda pid: {5})
    assert Slots().count == 1


def test_what_needs_much_memory_waits_and_what_needs_more_than_all_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running: list[int] = []
    most, lock, go = [0], threading.Lock(), threading.Event()

    def answer(self: Slots, number: int, request: unpack_slots._Request) -> int:
        with lock:
            running.append(request.memory)
            most[0] = max(most[0], sum(running) if len(running) > 1 else 0)
        go.wait(0.02)
        with lock:
            running.remove(request.memory)
        return request.memory

    monkeypatch.setattr(Slots, "_answer", answer)
    with Slots(4) as slots:
        room = slots._room
        sizes = [room // 2, room // 2, room // 3, room // 3, room // 3, 2 * room, room // 4, 2 * room, 0, 1]
        answers = [slots.ask({}, memory=size) for size in sizes]
        assert [one.result(60) for one in answers] == sizes
    assert 0 < most[0] <= room


def test_a_stopped_pool_answers_everybody(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    with Slots(1) as slots:
        answers = [slots.ask({"do": "inspect", "packed": str(tmp_path / "packed.h5")}) for _ in range(50)]
        answers[0].result(60)
        slots.stop()
        outcomes = [one.exception(60) for one in answers]
    assert isinstance(outcomes[-1], UnpackFault)
    assert slots.pids() == [] or all(not _alive(pid) for pid in slots.pids())


def test_no_process_stays(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    with Slots(2) as slots:
        unpack(slots, tmp_path / "packed.h5", tmp_path / "world", lambda count: None)
        pids = slots.pids()
        assert 1 <= len(pids) <= 2
    end = time.monotonic() + 60
    while any(map(_alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_fault_is_told_when_all_have_ended(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    (tmp_path / "world").mkdir()
    with Slots(1) as slots:
        with pytest.raises(FileExistsError):
            unpack(slots, tmp_path / "packed.h5", tmp_path / "world", lambda count: None)
        with pytest.raises(UnpackFault, match="cannot be opened: No such file"):
            unpack(slots, tmp_path / "none.h5", tmp_path / "other", lambda count: None)


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
