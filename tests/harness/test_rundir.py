"""Locks, staging, the swap, and what is found after a launcher was killed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness_lab import REPOSITORY, eventually, snapshot

from contract.runs import RunKey
from harness.runtime import rundir
from harness.runtime.rundir import Place, locked, publish, recover
from harness.runtime.runrecord import (
    DONE,
    ENVIRONMENT_ERROR,
    FAILED,
    FINISHED,
    INTERRUPTED,
    RUNNING,
    RunRecord,
    read_record,
    state_of,
)

KEY = RunKey("synthetic/B_01", "a", "m", "none", 1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / KEY.path.parent).mkdir(parents=True)
    return Place(tmp_path, KEY)


def stage(place: Place, state: str | None, run_id: str = "00000001") -> Path:
    """A staging directory whose run is in ``state``."""
    staging = place.staging(run_id)
    (staging / "run" / "logs").mkdir(parents=True)
    (staging / "workspace").mkdir()
    if state:
        RunRecord(staging / "run", {"run_id": run_id}).enter(state)
    return staging


def put(place: Place, state: str) -> None:
    """A run in its place."""
    place.final.mkdir()
    RunRecord(place.final, {"run_id": "old"}).enter(state)


def who(place: Place) -> str | None:
    record = read_record(place.final)
    return None if record is None else record["run_id"]


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("old", [None, DONE, FAILED, INTERRUPTED, ENVIRONMENT_ERROR])
@pytest.mark.parametrize("new", [DONE, FAILED, INTERRUPTED, ENVIRONMENT_ERROR])
def test_only_a_finished_run_replaces_a_finished_one(
    place: Place, monkeypatch: pytest.MonkeyPatch, old: str | None, new: str, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(rundir, "_exchange", lambda *_: False)
    if old:
        put(place, old)
    assert publish(place, stage(place, new)) == []
    kept = old in FINISHED and new not in FINISHED
    assert who(place) == ("old" if kept else "00000001")
    assert (read_record(place.attempt) or {}).get("run_id") == ("00000001" if kept else None)
    names = {path.name for path in place.final.parent.iterdir()}
    assert names == ({"1", ".1.attempt"} if kept else {"1"})


def test_a_finished_run_removes_the_attempt_before_it(place: Place) -> None:
    put(place, DONE)
    publish(place, stage(place, INTERRUPTED))
    publish(place, stage(place, DONE, "00000002"))
    assert {path.name for path in place.final.parent.iterdir()} == {"1"}
    assert who(place) == "00000002"


def test_something_foreign_is_not_replaced_by_an_attempt(place: Place) -> None:
    place.final.mkdir()
    (place.final / "notes.txt").write_text("mine", encoding="utf-8")
    publish(place, stage(place, INTERRUPTED))
    assert snapshot(place.final).keys() == {"notes.txt"}


@pytest.mark.parametrize("state", [None, RUNNING, INTERRUPTED])
def test_the_remains_of_an_unfinished_run_are_removed(place: Place, state: str | None) -> None:
    put(place, DONE)
    stage(place, state)
    assert recover(place)
    assert {path.name for path in place.final.parent.iterdir()} == {"1"}
    assert who(place) == "old"


def test_a_finished_run_that_had_not_reached_its_place_is_put_there(place: Place) -> None:
    stage(place, DONE)
    assert recover(place) == ["a finished run of a killed launcher was put in its place"]
    assert who(place) == "00000001"
    assert recover(place) == []


class Killed(BaseException):
    """Stands for the launcher's death at a certain system call."""


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("old", [None, DONE, INTERRUPTED])
def test_death_at_any_step_of_the_swap_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str | None, exchange: bool
) -> None:
    """Any prefix of the steps of ``publish``, then ``recover``: the new run must stand in its place."""
    calls = itertools.count()
    for allowed in range(12):
        root = tmp_path / str(allowed)
        (root / KEY.path.parent).mkdir(parents=True)
        place = Place(root, KEY)
        if old:
            put(place, old)
        staging = stage(place, DONE)
        with monkeypatch.context() as patch:
            left = itertools.repeat(None, allowed)
            for module, name in ((rundir, "_exchange"), (rundir, "remove_tree"), (Path, "rename")):
                real = getattr(module, name)

                def step(
                    *arguments: object, _real: object = real, _left: object = left, _name: str = name
                ) -> object:
                    if next(_left, "dead") == "dead":  # type: ignore[call-overload]
                        raise Killed
                    next(calls)
                    return False if _name == "_exchange" and not exchange else _real(*arguments)  # type: ignore[operator]

                patch.setattr(module, name, step)
            try:
                publish(place, staging)
                died = False
            except Killed:
                died = True
        recover(place)
        assert who(place) == "00000001"
        assert {path.name for path in place.final.parent.iterdir()} == {"1"}
        if not died:
            return
    raise AssertionError("the swap has more steps than this test allows")


HOLDER = """
import sys
from pathlib import Path
from contract.runs import RunKey
from harness.runtime.rundir import Place, locked
with locked(Place(Path(sys.argv[1]), RunKey("synthetic/B_01", "a", "m", "none", 1))) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def test_one_holder_at_a_time_and_the_kernel_frees_a_dead_ones_lock(place: Place) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ,
        "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with locked(place) as mine:
        assert not mine
    holder.kill()
    holder.communicate()

    def free() -> bool:
        with locked(place) as mine:
            return mine

    assert eventually(free)
    assert not place.lock.exists()


def test_a_lock_is_not_fooled_by_a_file_that_was_unlinked_meanwhile(place: Place) -> None:
    with locked(place) as first:
        assert first
        place.lock.unlink()
        place.lock.touch()
        with locked(place) as second:
            # The path names another file now; whoever locks that one is the holder from now on.
            assert second


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (None, None),
        ({}, None),
        ({"state": "running"}, "running"),
        ({"agent_exit": 0, "delivered": True}, "done"),
        ({"agent_exit": 0, "delivered": False}, "failed"),
        ({"agent_exit": 124, "delivered": True}, "failed"),
        ({"state": 5, "agent_exit": 0, "delivered": True}, "done"),
    ],
)
def test_states_of_records_ours_and_older_ones(record: dict[str, object] | None, state: str | None) -> None:
    assert state_of(record) == state


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'"text"'])
def test_an_unreadable_record_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    assert read_record(tmp_path) is None
