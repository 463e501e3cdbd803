from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scorer_lab import Lab, alive, eventually

from scorer.child import answer, is_infrastructure
from scorer.environment import worker_environment
from scorer.manifest import Entry
from scorer.tasks import plain, require_owned
from scorer.worker import CallFailed, CallTimedOut, Slot, Stopped, Worker, WorkerLost


def test_only_exceptions_become_replies() -> None:
    reply = answer(lambda x: 1 / x, (0,))
    assert (reply.failed, reply.infrastructure) == (True, False)
    assert reply.text == "ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in reply.trace
    assert answer(lambda x: x, (3,)).value == 3
    assert len(answer({}.__getitem__, ("x" * 9000,)).text) == 2000
    with pytest.raises(SystemExit):
        answer(sys.exit, ())


def test_faults_of_the_machine_are_told_apart() -> None:
    assert is_infrastructure(MemoryError())
    assert is_infrastructure(np.exceptions.AxisError("x")) is False
    assert is_infrastructure(np._core._exceptions._ArrayMemoryError((1 << 60,), np.dtype(float)))
    assert is_infrastructure(OSError(errno.ENOSPC, "full"))
    assert is_infrastructure(OSError(errno.EDQUOT, "quota"))
    assert not is_infrastructure(FileNotFoundError(errno.ENOENT, "gone"))
    assert not is_infrastructure(ValueError("no space left"))


def test_plain_resolves_what_json_cannot_hold() -> None:
    given: Any = {
        "a": np.float32(0.5),
        3: (np.int64(2), np.array([[1, 2]])),
        "p": Path("/x"),
        "b": np.bool_(True),
    }
    assert plain(given) == {"a": 0.5, "3": [2, [[1, 2]]], "p": "/x", "b": True}
    assert type(plain(np.float64(0.5))) is float
    assert np.isnan(plain({"n": np.float32("nan")})["n"])
    for bad in ({"x": object()}, {"x": {1, 2}}, {(1, 2): 3}, {"x": 1j}, {"x": b"bytes"}):
        with pytest.raises(TypeError):
            plain(bad)


def test_detail_keys_must_belong_to_the_type() -> None:
    require_owned("mesh", ["mesh_watertight", "geometry_note"])
    require_owned("scene_3d", ["alignment", "scene_score"])
    for key in ("dynamic_iou", "status", "alignment"):
        with pytest.raises(ValueError, match="does not belong to mesh"):
            require_owned("mesh", [key])


@pytest.fixture
def slot(lab: Lab, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(lab.root / "metrics"))
    place = Slot(worker_environment(1), 60.0, threading.Event())
    yield place
    place.empty()


def measure(slot: Slot, lab: Lab, seconds: float = 60.0) -> Any:
    out = lab.root
    where = Entry("synthetic/box", lab.world, out, lab.root / "cases" / "x.mp4", lab.root / "data")
    return slot.call("measure", "mesh", "lab_mesh", where.out, seconds=seconds, scene=where, opening=60.0)


def test_a_call_gives_a_value_and_a_raise_leaves_the_worker_alive(lab: Lab, slot: Slot) -> None:
    lab.metric(
        "mesh",
        f"""
        if Path({str(lab.log)!r}).read_text().split() == ["mesh", "mesh"]:
            raise KeyError("x")
        return fine
        """,
    )
    assert measure(slot, lab).detail == {"mesh_watertight": 0.5}
    first = slot._worker
    with pytest.raises(CallFailed, match="KeyError: 'x'") as caught:
        measure(slot, lab)
    assert not caught.value.infrastructure
    measure(slot, lab)
    assert slot._worker is first


def test_a_deadline_kills_the_worker_and_what_it_started(lab: Lab, slot: Slot) -> None:
    lab.metric(
        "mesh",
        f"""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path({str(lab.root / "pids")!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
        """,
    )
    with pytest.raises(CallTimedOut, match=r"^timeout after 4s$"):
        measure(slot, lab, 4.0)
    pids = [int(pid) for pid in (lab.root / "pids").read_text().split()]
    assert len(pids) == 2
    assert eventually(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", r"\(SIGKILL\)"),
        ("os._exit(3)", r"\(status 3\)"),
        ("sys.exit(0)", r"\(status 0\)"),
    ],
)
def test_a_lost_worker_is_replaced_and_tried_once_more(lab: Lab, slot: Slot, how: str, words: str) -> None:
    lab.metric("mesh", how)
    with pytest.raises(WorkerLost, match=rf"^worker exited without a result {words}$") as caught:
        measure(slot, lab)
    assert caught.value.infrastructure
    assert lab.calls == ["mesh", "mesh"]


def test_a_death_is_seen_although_a_forked_process_holds_the_pipe(lab: Lab, slot: Slot) -> None:
    lab.metric(
        "mesh",
        """
        if os.fork() == 0:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    with pytest.raises(WorkerLost):
        measure(slot, lab, 600.0)


def test_a_worker_that_does_not_come_up_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Slot(worker_environment(1), 60.0, threading.Event())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WorkerLost, match="cannot be started"):
        place.call("inputs", (), seconds=5.0)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(WorkerLost, match="exited without a result"):
        place.call("inputs", (), seconds=5.0)


def test_stop_ends_a_call(lab: Lab, slot: Slot) -> None:
    lab.metric("mesh", "time.sleep(600)")

    def end() -> None:
        assert eventually(lambda: lab.calls)
        slot.stop.set()
        slot.kill()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(Stopped):
        measure(slot, lab, 600.0)
    thread.join()
    with pytest.raises(Stopped):
        measure(slot, lab)


def test_killing_again_is_harmless() -> None:
    worker = Worker(worker_environment(1))
    worker.wait_ready(60.0)
    assert worker.call("inputs", (Path("/nowhere"),), seconds=60.0) == {Path("/nowhere"): None}
    worker.kill()
    worker.kill()
    with pytest.raises(WorkerLost):
        worker.call("inputs", (), seconds=1.0)
    worker.close()


def test_nothing_outlives_a_scorer_that_is_killed(lab: Lab) -> None:
    lab.add_run()
    pids = lab.root / "pids"
    lab.metric(
        "mesh",
        f"""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
        """,
    )
    scorer = lab.start()
    assert eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    found = [int(pid) for pid in pids.read_text().split()]
    os.kill(scorer.pid, signal.SIGKILL)
    scorer.communicate()  # ends when nobody holds its output any more
    assert scorer.returncode == -signal.SIGKILL
    assert eventually(lambda: not any(alive(pid) for pid in found))
