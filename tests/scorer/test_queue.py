"""The scorer and the prepare stage as workers of a queue: models loaded once, nothing lost, nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from prepare_lab import PrepareLab
from scorer_lab import CASE, Lab, eventually

from contract.workqueue import Queue, Worker

RUNS = tuple(f"runs/{CASE}/toy-model-high/{trial}" for trial in range(1, 5))


@pytest.fixture
def four(lab: Lab) -> Lab:
    """Four worlds of one case, a metric and a model."""
    for run in RUNS:
        lab.add_run(run)
    lab.metric("mesh")
    lab.model("geophys_dinov3")
    return lab


def outcomes(queue: Queue) -> dict[int, str]:
    return {number: queue.outcome(name)["state"] for number, name in queue.ended().items()}


def test_a_worker_loads_its_model_once_after_the_last_world(four: Lab) -> None:
    queue = Queue.create(four.root / "q", four.entries)
    done = four.score("--queue", str(queue.directory), "--worker", "w", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert four.calls == ["mesh"] * 4 + ["load:geophys_dinov3"] + ["geophys_dinov3"] * 4
    assert outcomes(queue) == dict.fromkeys(range(4), "ok")
    assert "4/4 completed without failures" in done.stdout
    # There is nothing left: a second worker ends at once, and loads nothing.
    again = four.score("--queue", str(queue.directory))
    assert (again.returncode, len(four.calls)) == (0, 9)


def test_worlds_that_fail_end_as_failed_and_the_others_go_on(four: Lab) -> None:
    four.metric("mesh", 'if "/2/" in str(scene.world_path):\n    raise ValueError("no")\nreturn fine')
    four.model("geophys_dinov3", 'if "/3/" in str(subject.render):\n    raise ValueError("no")\nreturn fine')
    queue = Queue.create(four.root / "q", four.entries)
    done = four.score("--queue", str(queue.directory))
    assert done.returncode == 1
    assert outcomes(queue) == {0: "ok", 1: "failed", 2: "failed", 3: "ok"}
    assert "2/4 completed without failures" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_waits_for_a_model_goes_back_when_its_worker_ends(four: Lab, number: signal.Signals) -> None:
    four.model("geophys_dinov3", load="time.sleep(600)")
    queue = Queue.create(four.root / "q", four.entries)
    process = four.start("--queue", str(queue.directory), "--worker", "w")
    try:
        assert eventually(lambda: "load:geophys_dinov3" in four.calls, 60)
        assert len(queue.taken()["w"]) == 4
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    if number == signal.SIGKILL:
        assert queue.give_back("w", "killed") == 4
    assert len(queue.ready()) == 4
    four.model("geophys_dinov3")
    assert four.score("--queue", str(queue.directory)).returncode == 0
    assert outcomes(queue) == dict.fromkeys(range(4), "ok")
    assert four.calls.count("mesh") == 4  # what needs no model is not computed again


def test_a_worker_that_was_given_up_says_so(four: Lab) -> None:
    waits = """
        open("{0}/here", "w").close()
        while not os.path.exists("{0}/go"):
            time.sleep(0.02)
        return fine
    """
    four.metric("mesh", waits.format(four.root))
    queue = Queue.create(four.root / "q", four.entries[:1])
    process = four.start("--queue", str(queue.directory), "--worker", "w", "--type", "mesh")
    try:
        assert eventually((four.root / "here").exists, 60)
        queue.give_back("w", "no sign of life")
        with Worker(queue, "other") as other:
            item = other.take()
            assert item is not None
            other.finish(item, {"state": "ok"})
        (four.root / "go").touch()
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "another worker has taken it over" in said
    assert queue.outcome(queue.ended()[0])["worker"] == "other"


# The prepare stage.


@pytest.fixture
def stage(tmp_path: Path) -> PrepareLab:
    found = PrepareLab(tmp_path / "stage")
    for name in ("real/a", "real/b", "synthetic/c"):
        found.add_case(name)
    return found


GROUPS = ("flow", "semantic", "geophys")


def queue_of(lab: PrepareLab) -> Queue:
    rows = [
        {"case": case, "group": group}
        for group in GROUPS
        for case in lab.cases
        if group != "flow" or case.startswith("real/")
    ]
    return Queue.create(lab.root / "q", rows)


def loads(lab: PrepareLab) -> list[str]:
    return [line.split()[1] for line in lab.calls if line.startswith("load ")]


def test_a_process_loads_each_model_once_for_all_its_items(stage: PrepareLab) -> None:
    queue = queue_of(stage)
    done = stage.prepare("--queue", str(queue.directory), "--only", ",".join(GROUPS))
    assert done.returncode == 0, done.stderr
    assert loads(stage) == ["raft-large", "dinov3", "tips"]
    assert outcomes(queue) == dict.fromkeys(range(8), "ok")
    assert stage.files("real/b") == [
        "flow.h5", "geophys_dinov3.npz", "semantic_dinov3.npz", "semantic_tips.npz",
    ]  # fmt: skip
    assert stage.files("synthetic/c") == [
        "geophys_dinov3.npz", "semantic_dinov3.npz", "semantic_tips.npz",
    ]  # fmt: skip


def test_two_processes_share_the_items(stage: PrepareLab) -> None:
    queue = queue_of(stage)
    words = [
        stage.command("--device", "cpu", "--queue", str(queue.directory), "--worker", name) for name in "xy"
    ]
    running = [
        subprocess.Popen(each, env=stage.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in words
    ]
    said = [process.communicate(timeout=180) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert outcomes(queue) == dict.fromkeys(range(8), "ok")
    for name in set(loads(stage)):
        assert loads(stage).count(name) <= 2
    computed = [line for out, _ in said for line in out.splitlines() if ": done in " in line]
    assert len(computed) == len({line.split(": done")[0] for line in computed}) == 11


def test_an_item_that_fails_carries_its_reason(stage: PrepareLab) -> None:
    queue = queue_of(stage)
    stage.video("real/b").write_bytes(b"no video")
    stage.fail(**{"raft-large_flow": "ValueError:too wild"})
    done = stage.prepare("--queue", str(queue.directory))
    assert done.returncode == 1
    rows = json.loads((queue.directory / "manifest.json").read_text(encoding="utf-8"))
    states = {(rows[n]["case"], rows[n]["group"]): state for n, state in outcomes(queue).items()}
    assert states == {
        (case, group): "failed" if case == "real/b" or (case, group) == ("real/a", "flow") else "ok"
        for case, group in states
    }
    notes = {
        (rows[n]["case"], rows[n]["group"]): queue.outcome(name).get("note", "")
        for n, name in queue.ended().items()
    }
    assert "too wild" in notes["real/a", "flow"]
    assert all("reference.mp4" in note for (case, _), note in notes.items() if case == "real/b")


def test_a_row_without_a_group_is_one_line(stage: PrepareLab) -> None:
    queue = Queue.create(stage.root / "q", [{"case": "real/a"}])
    done = stage.prepare("--queue", str(queue.directory))
    assert done.returncode == 2
    assert "item 1 has no group" in done.stderr
