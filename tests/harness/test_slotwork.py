"""Slots on a pretended engine, SLURM without a cluster: what happens when containers and tasks misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness_lab import Lab

from contract.record import write_json
from contract.runs import RunKey
from contract.workqueue import Queue, Worker
from harness.runtime.agentconfig import Budget
from harness.runtime.backends.base import Job, Outcome
from harness.runtime.config import load_runtime
from harness.runtime.engines import cluster
from harness.runtime.engines.inference import remaining
from harness.runtime.engines.task import Cancelled, task_name
from harness.runtime.slotwork import Shared, SlotWork

Container = Callable[[Queue, str], Outcome]
Worked = tuple[Shared, "Pretended", list[str]]


class Pretended:
    """An engine whose containers are functions. It runs in this process, several at a time."""

    name = "pretended"

    def __init__(self, queue: Queue, container: Container) -> None:
        self.queue, self.container = queue, container
        self.started: list[str] = []

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        self.started.append(job.name)
        return self.container(self.queue, job.name)


def good(queue: Queue, name: str) -> Outcome:
    """Does everything that is there."""
    with Worker(queue, name) as worker:
        while (item := worker.take()) is not None:
            worker.finish(item, {"state": "ok"})
    return Outcome(0, 1.0)


def dying(at: int, outcome: Outcome) -> Container:
    """Dies whenever it comes to item ``at``, like a container that is killed: without letting go of it."""

    def run(queue: Queue, name: str) -> Outcome:
        worker = Worker(queue, name)
        worker._place.mkdir()
        write_json(worker._beat, {})
        while (item := worker.take()) is not None:
            if item.number == at:
                return outcome
            worker.finish(item, {"state": "ok"})
        return Outcome(0, 1.0)

    return run


def work(
    queue: Queue, container: Container, slots: int = 1, **more: Any
) -> tuple[Shared, Pretended, list[str]]:
    """Let so many slots work; returns what they shared, the engine, and what was said."""
    said: list[str] = []
    engine = Pretended(queue, container)
    fields = {"ends_at": time.monotonic() + 600, "stale": 120.0, "stop": threading.Event(), **more}
    shared = Shared(queue, engine, said.append, **fields)  # type: ignore[arg-type]
    log = queue.directory / "log"
    works = [SlotWork(shared, lambda name: Job(name, ("x",)), log, f"slot{n}") for n in range(slots)]
    threads = [threading.Thread(target=each.run) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return shared, engine, said


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue.create(tmp_path / "q", [{"n": number} for number in range(6)])


def states(queue: Queue) -> dict[int, str]:
    return {number: queue.outcome(name)["state"] for number, name in queue.ended().items()}


@pytest.mark.parametrize("slots", [1, 3])
def test_an_item_that_kills_its_container_is_given_up_and_the_others_are_done(
    queue: Queue, slots: int
) -> None:
    shared, engine, said = work(queue, dying(0, Outcome(137, 1.0, oom_killed=True)), slots)
    assert states(queue) == {0: "lost", **dict.fromkeys(range(1, 6), "ok")}
    note = queue.outcome(queue.ended()[0])["note"]
    assert note.startswith("given up after 4 tries: a container ran out of memory")
    assert not shared.fault
    assert len(engine.started) >= 4
    assert len(set(engine.started)) == len(engine.started)
    assert sum("1 item(s) go back" in line for line in said) == 3


def test_containers_that_take_nothing_are_not_started_for_ever(queue: Queue) -> None:
    shared, engine, _ = work(queue, lambda queue, name: Outcome(None, 0.0, error="no such image"))
    assert "3 containers in a row ended before they took anything" in shared.fault
    assert len(engine.started) == 3
    assert len(queue.ready()) == 6


def test_a_program_that_refuses_to_start_is_started_once(queue: Queue) -> None:
    shared, engine, _ = work(queue, lambda queue, name: Outcome(2, 0.1))
    assert (len(engine.started), shared.status) == (1, 2)
    assert "refused to start" in shared.fault


def test_time_that_is_up_ends_the_stage(queue: Queue) -> None:
    shared, engine, _ = work(queue, dying(2, Outcome(124, 9.0, timed_out=True)))
    assert "ran out of time" in shared.fault
    assert states(queue) == {0: "ok", 1: "ok"}
    shared, engine, _ = work(queue, good, ends_at=time.monotonic() - 1)
    assert (engine.started, "ran out of time" in shared.fault) == ([], True)


def test_a_stop_returns_what_was_held_and_counts_no_try(queue: Queue) -> None:
    stop = threading.Event()

    def stopped(queue: Queue, name: str) -> Outcome:
        stop.set()
        return dying(1, Outcome(None, 1.0, interrupted=True))(queue, name)

    shared, engine, said = work(queue, stopped, stop=stop)
    assert [item.returns for item in queue.ready()] == [0] * 5
    assert (len(engine.started), said, shared.fault) == (1, [], "")


def test_an_engine_that_raises_costs_no_item(queue: Queue) -> None:
    def raising(queue: Queue, name: str) -> Outcome:
        if name == "slot0.1":
            raise ConnectionError("engine gone")
        return good(queue, name)

    _, engine, said = work(queue, raising)
    assert states(queue) == dict.fromkeys(range(6), "ok")
    assert "engine gone" in said[0]
    assert engine.started == ["slot0.1", "slot0.2"]


def test_items_of_a_machine_that_is_gone_come_back(queue: Queue) -> None:
    elsewhere = Worker(queue, "othermachine")
    elsewhere._place.mkdir()
    elsewhere.take()
    _, _, said = work(queue, good, stale=0.2)
    assert states(queue) == dict.fromkeys(range(6), "ok")
    assert queue.ended()[0].startswith("000000.1~slot0.")
    assert "othermachine shows no sign of life: 1 item(s) go back to the queue" in said


def test_a_container_that_is_not_gone_keeps_what_it_holds_until_its_heart_stops(queue: Queue) -> None:
    first = dying(0, Outcome(None, 1.0, gone=False, error="will not go"))
    containers = {"slot0.1": first}
    _, _, said = work(queue, lambda q, name: containers.get(name, good)(q, name), stale=0.2)
    assert states(queue) == dict.fromkeys(range(6), "ok")
    assert any("slot0.1 shows no sign of life" in line for line in said)


def test_a_slot_on_a_cluster_does_not_wait_for_others(queue: Queue) -> None:
    with Worker(queue, "other") as other:
        other.take()
        work(queue, good, patient=False)
        assert states(queue) == dict.fromkeys(range(1, 6), "ok")


# SLURM, without one.


def test_the_terms_of_a_submission(lab: Lab) -> None:
    lab.runtime(
        '[launcher]\nengine = "slurm"\nslots = 4\npartition = "p"\ntime = "1:00:00"\ngres = "gpu:1"\n'
        'cpus_per_task = 3\nmem = "8G"\nsetup = ["module load x"]\nextra = {account = "lab", nice = 5}'
    )
    runtime = load_runtime(lab.runtime_path)
    wanted = cluster.submission(runtime, "score", 40)
    assert wanted.words() == [
        "sbatch", "--array=0-3", "--job-name=4dcb-score", "--partition=p", "--time=1:00:00", "--gres=gpu:1",
        "--cpus-per-task=3", "--mem=8G", "--account=lab", "--nice=5", "…", "python", "-m",
        "submitit.core._submit", "<4dcb-score>",
    ]  # fmt: skip
    assert wanted.parameters()["srun_args"] == ["--cpus-per-task=3"]
    assert wanted.parameters()["setup"] == ["module load x"]
    assert [cluster.submission(runtime, "x", items).tasks for items in (0, 1, 4, 5)] == [1, 1, 4, 4]


@pytest.mark.parametrize("program", ["infer", "score"])
def test_without_slurm_here_nothing_is_touched(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    lab.runtime(lab.shell_agent("true") + '[launcher]\nengine = "slurm"')
    lab.jobs()
    programs = lab.root / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    flags = ["--type", "mesh"] if program == "score" else []
    done = getattr(lab, program)(*flags, PATH=str(programs))
    assert (done.returncode, "sbatch is not on PATH" in done.stderr) == (2, True), done.stderr
    assert not lab.runs.exists()


def test_tasks_are_named_as_slurm_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    assert task_name() == "12"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "11")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert task_name() == "11_3"


def test_silence_of_slurm_is_not_taken_for_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact' >&2; exit 1\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RuntimeError, match="Unable to contact"):
        cluster.active(["7"])
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
    assert cluster.active(["7"]) == []
    squeue.write_text("#!/bin/sh\necho '7_0|RUNNING|n1'; echo '7_1|PENDING|'\n")
    assert cluster.active(["7"]) == [
        cluster.Task("7_0", "RUNNING", "n1"), cluster.Task("7_1", "PENDING"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "cancelled", "interrupted"),
    [
        (Outcome(143, 1.0), True, True),
        (Outcome(None, 1.0, error="the warden was killed"), True, True),
        (Outcome(0, 1.0), True, False),
        (Outcome(143, 1.0), False, False),
    ],
)
def test_what_slurm_ends_is_no_failure_of_its_own(
    monkeypatch: pytest.MonkeyPatch, queue: Queue, outcome: Outcome, cancelled: bool, interrupted: bool
) -> None:
    monkeypatch.setattr("harness.runtime.engines.task._SIGNAL_S", 0.05)
    stop = threading.Event()
    if cancelled:
        stop.set()
    backend = Cancelled(Pretended(queue, lambda queue, name: outcome), stop)  # type: ignore[arg-type]
    ended = backend.run(Job("j", ("x",)), queue.directory / "log", 9.0, threading.Event())
    assert ended.interrupted is interrupted
    assert ended.exit_code == outcome.exit_code
    assert not (interrupted and ended.error)
    assert backend.name == "pretended"


def test_a_run_gets_what_the_others_left_of_the_budget(lab: Lab) -> None:
    keys = [RunKey("synthetic/B_01", "a", "m", "none", trial) for trial in (1, 2)]
    for key, tokens in zip(keys, (300, 500), strict=True):
        place = lab.runs / key.path
        place.mkdir(parents=True)
        usage = {"input_tokens": tokens, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0}
        write_json(place / "run.json", {"state": "done", "usage": usage, "cost_usd": tokens / 100})
    assert remaining(Budget(), keys, lab.runs) == (Budget(), "")
    left, why = remaining(Budget(max_usd=10.0, max_tokens=1000, max_tokens_per_run=9), keys, lab.runs)
    assert (left.max_usd, left.max_tokens, left.max_tokens_per_run, why) == (2.0, 200, 9, "")
    assert "800 tokens used" in remaining(Budget(max_tokens=800), keys, lab.runs)[1]
    assert "8.00 dollars spent" in remaining(Budget(max_usd=8.0), keys, lab.runs)[1]
