"""Which run starts when, on which GPU, and when no further one may; with an engine that only says so."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness_lab import Lab, eventually

from contract.errors import UserError
from harness.runtime import scheduler
from harness.runtime.agentconfig import Budget
from harness.runtime.backends.base import Job, Orphan, Outcome
from harness.runtime.config import load_runtime
from harness.runtime.going import Going, last_line
from harness.runtime.gpus import slots
from harness.runtime.jobs import load_jobs
from harness.runtime.livetable import clock, money, short, status, table, totals
from harness.runtime.planning import Plan, plan_all
from harness.runtime.running import Result
from harness.runtime.scheduler import Batch, Options
from harness.runtime.space import shortage

Script = Callable[[Job, Path, threading.Event], Outcome]


def deliver(job: Job, log: Path, stop: threading.Event) -> Outcome:
    """An agent that succeeds at once."""
    solution = Path(job.workdir) / "solution"
    solution.mkdir()
    (solution / "build.sh").touch()
    (Path(job.workdir) / "world").mkdir()
    return Outcome(0, 2.0)


class WordEngine:
    """A backend that only does what the test's script says, and remembers what it was asked."""

    name = "host"

    def __init__(self, script: Script = deliver) -> None:
        self.script = script
        self.started: list[Job] = []
        self.running: Counter[str] = Counter()
        self.most = 0
        self.most_of: Counter[str] = Counter()
        self._lock = threading.Lock()

    def check(self, image: str) -> str:
        return "words"

    def check_job(self, job: Job) -> None:
        """Keeps everything."""

    def describe(self, job: Job) -> list[str]:
        return list(job.command)

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        agent = job.labels["org.4dcodebench.run"].split("/")[2].split("-")[0]
        with self._lock:
            self.started.append(job)
            self.running[agent] += 1
            self.most = max(self.most, self.running.total())
            self.most_of[agent] = max(self.most_of[agent], self.running[agent])
        try:
            return self.script(job, log, stop)
        finally:
            with self._lock:
                self.running[agent] -= 1

    def orphans(self) -> list[Orphan]:
        return []

    def remove(self, orphan: Orphan) -> None:
        raise AssertionError("there is nothing to remove")


def plans(lab: Lab, engine: WordEngine, **how: Any) -> list[Plan]:
    runtime = load_runtime(lab.runtime_path)
    return plan_all(load_jobs(lab.jobs_path, runtime.cases), runtime, engine, **how)


def carry_out(
    lab: Lab, engine: WordEngine, stop: threading.Event | None = None, **options: Any
) -> tuple[list[Result], list[str]]:
    said: list[str] = []
    how = Options(**{"retry_wait": 0.01, **options})
    batch = Batch(plans(lab, engine, redo=how.redo), engine, how, stop or threading.Event(), said.append)
    return batch.run(), said


def numbered(lab: Lab, count: int, tables: str = "", **agent: str) -> None:
    lab.runtime(lab.shell_agent("true") + lab.shell_agent("true", "other") + tables, **agent)
    lab.jobs(*({"model": f"m{number}"} for number in range(count)))


def order(engine: WordEngine) -> list[str]:
    return [job.labels["org.4dcodebench.run"].split("/")[2] for job in engine.started]


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_as_many_at_once_as_there_are_slots_in_the_order_of_the_file(lab: Lab, parallel: int) -> None:
    numbered(lab, 8)
    full = threading.Event()

    def meet(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if engine.running.total() >= parallel:
            full.set()
        assert full.wait(60), "the slots were never all taken"
        return deliver(job, log, stop)

    engine = WordEngine(meet)
    results, _ = carry_out(lab, engine, slots=slots(parallel, ()))
    assert [result.state for result in results] == ["done"] * 8
    assert [result.key.model for result in results] == [f"m{number}" for number in range(8)]
    assert engine.most == parallel
    assert sorted(order(engine)[:parallel]) == [f"tester-m{number}-none" for number in range(parallel)]
    assert sorted(order(engine)) == sorted(f"tester-m{number}-none" for number in range(8))


def test_an_agents_own_bound_holds_and_does_not_hold_up_others(lab: Lab) -> None:
    numbered(lab, 0)
    lab.jobs(*({"model": f"m{n}"} for n in range(4)), {"agent": "other", "model": "o"})
    seen = threading.Event()

    def watch(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if "other" in job.name:
            seen.set()
        assert seen.wait(60), "the other agent's run was held up"
        return deliver(job, log, stop)

    engine = WordEngine(watch)
    results, _ = carry_out(lab, engine, slots=slots(3, ()), per_agent={"tester": 1})
    assert all(result.succeeded for result in results)
    assert engine.most_of["tester"] == 1
    assert [name for name in order(engine) if "tester" in name] == [f"tester-m{n}-none" for n in range(4)]


def test_each_of_several_runs_has_a_whole_gpu(lab: Lab) -> None:
    numbered(lab, 6)
    taken: Counter[tuple[str, ...]] = Counter()
    lock, both = threading.Lock(), threading.Event()

    def hold(job: Job, log: Path, stop: threading.Event) -> Outcome:
        assert job.gpus is not None
        with lock:
            assert not taken[job.gpus], "two runs on one GPU"
            taken[job.gpus] += 1
            if taken.total() == 2:
                both.set()
        assert both.wait(60)
        with lock:
            taken[job.gpus] -= 1
        return deliver(job, log, stop)

    results, _ = carry_out(lab, WordEngine(hold), slots=slots(4, ("3", "GPU-7")))
    assert all(result.succeeded for result in results)
    assert {tuple(result.record["gpus"]) for result in results} == {("3",), ("GPU-7",)}


def test_how_gpus_are_dealt_out(tmp_path: Path) -> None:
    assert slots(1, ("0", "1")) == [("0", "1")]
    assert slots(1, None) == [None]
    assert slots(3, ()) == [(), (), ()]
    assert slots(3, ("0", "1")) == [("0",), ("1",)]
    assert slots(2, ("a", "b", "c")) == [("a",), ("b",)]
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert slots(4, None, tmp_path) == [("0",), ("1",)]
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES"):
        slots(2, None, tmp_path / "none")


def lose(times: int) -> tuple[Script, list[int]]:
    """An engine that is lost so many times, then works."""
    left = [times]

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        left[0] -= 1
        if left[0] >= 0:
            log.write_text(f"attempt that was lost, {left[0]} to go\n", encoding="utf-8")
            return Outcome(None, 5.0, error="the engine went away")
        return deliver(job, log, stop)

    return script, left


def test_what_the_infrastructure_spoilt_is_tried_again_and_every_attempt_is_on_record(lab: Lab) -> None:
    numbered(lab, 1)
    engine = WordEngine(lose(2)[0])
    (result,), said = carry_out(lab, engine, retries=2)
    assert result.state == "done"
    record = lab.record(system="tester-m0-none")
    assert [entry.get("failure") for entry in record["attempts"]] == ["engine_lost", "engine_lost", None]
    assert [entry["number"] for entry in record["attempts"]] == [1, 2, 3]
    assert [e["state"] for e in record["history"]] == [
        "queued", "running", "collecting", "queued", "running", "collecting", "queued", "running",
        "collecting", "done",
    ]  # fmt: skip
    run = lab.place(system="tester-m0-none")
    logs = [(run / f"attempts/{number}/logs/agent.log").read_text() for number in (1, 2)]
    assert logs == ["attempt that was lost, 1 to go\n", "attempt that was lost, 0 to go\n"]
    assert len({job.name for job in engine.started}) == 3
    waits = [line.split("trying again in ")[1].split(" s")[0] for line in said if "trying again" in line]
    assert [float(wait) for wait in waits] == [0.01, 0.02]
    assert lab.leftovers() == []


def test_retries_end(lab: Lab) -> None:
    numbered(lab, 2)
    script, left = lose(1000)
    (one, other), _ = carry_out(lab, WordEngine(script), retries=3)
    assert (one.state, other.state) == ("environment_error", "environment_error")
    assert 1000 - left[0] == 8
    assert len(lab.record(system="tester-m0-none")["attempts"]) == 4


def test_the_wait_grows_and_is_bounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LONGEST_WAIT_S", 0.05)
    numbered(lab, 1)
    _, said = carry_out(lab, WordEngine(lose(4)[0]), retries=4)
    waits = [float(text.split("again in ")[1].split(" s")[0]) for text in said if "trying again" in text]
    assert waits == [0.01, 0.02, 0.04, 0.05]


def test_the_agents_own_failure_is_never_tried_again(lab: Lab) -> None:
    numbered(lab, 1)
    engine = WordEngine(lambda job, log, stop: Outcome(3, 5.0))
    (result,), _ = carry_out(lab, engine, retries=5)
    assert (result.state, result.note) == ("failed", "the agent ended with status 3")
    assert len(engine.started) == 1


def test_while_one_run_waits_to_be_tried_again_others_have_its_slot(lab: Lab) -> None:
    numbered(lab, 3)
    failed: list[str] = []

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if "-m0-" in job.name and not failed:
            failed.append(job.name)
            return Outcome(None, 5.0, error="the engine went away")
        return deliver(job, log, stop)

    engine = WordEngine(script)
    results, _ = carry_out(lab, engine, retries=1, retry_wait=0.5)
    assert [result.state for result in results] == ["done"] * 3
    assert order(engine) == ["tester-m0-none", "tester-m1-none", "tester-m2-none", "tester-m0-none"]


def test_a_stop_while_a_run_waits_ends_the_wait_and_puts_it_in_its_place(lab: Lab) -> None:
    numbered(lab, 1)
    stop = threading.Event()

    def script(job: Job, log: Path, stopped: threading.Event) -> Outcome:
        threading.Timer(0.1, stop.set).start()
        return Outcome(None, 5.0, error="the engine went away")

    (result,), _ = carry_out(lab, WordEngine(script), stop, retries=9, retry_wait=500.0)
    assert result.state == "environment_error"
    assert lab.record(system="tester-m0-none")["state"] == "environment_error"
    assert lab.leftovers() == []


def test_a_refused_login_stops_further_runs_with_it_and_no_others(lab: Lab) -> None:
    numbered(lab, 2)
    lab.jobs({"model": "m0"}, {"model": "m1"}, {"agent": "other"})

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if "other" in job.name:
            return deliver(job, log, stop)
        log.write_text("API Error: 401 authentication_error\n", encoding="utf-8")
        return Outcome(1, 5.0)

    results, _ = carry_out(lab, WordEngine(script), retries=5)
    assert [result.state for result in results] == ["environment_error", "not started", "done"]
    assert "refused the login" in results[1].note
    assert "synthetic-B_01-tester-m0-none-1" in results[1].note
    assert not lab.place(system="tester-m1-none").exists()
    assert lab.record(system="tester-m0-none")["failure"] == "auth_error"


def spend(tokens: int, usd: float | None = None, then: Script = deliver) -> Script:
    """An agent that reports what it used, as a transcript of the format ``usage``."""

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        line: dict[str, Any] = {"usage": {"input_tokens": tokens - 10, "output_tokens": 10}}
        if usd is not None:
            line["cost_usd"] = usd
        session = log.parent.parent / "session" / ".s"
        (session / "use.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
        return then(job, log, stop)

    return script


def counted(lab: Lab, count: int) -> None:
    lab.runtime(lab.shell_agent("true", extra='session_dir = ".s"\ntranscript = "usage"'))
    lab.jobs(*({"model": f"m{number}"} for number in range(count)))


def until_stopped(job: Job, log: Path, stop: threading.Event) -> Outcome:
    assert stop.wait(60), "it was not stopped"
    solution = Path(job.workdir) / "solution"
    solution.mkdir()
    return Outcome(143, 5.0, interrupted=True)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_tokens=250), "300 tokens used, max_tokens = 250"),
        (Budget(max_usd=5.0), "6.00 dollars spent, max_usd = 5"),
    ],
)
def test_a_used_up_budget_starts_no_further_run(lab: Lab, budget: Budget, reason: str) -> None:
    counted(lab, 5)
    engine = WordEngine(spend(100, 2.0))
    results, _ = carry_out(lab, engine, budget=budget)
    assert [result.state for result in results] == ["done"] * 3 + ["not started"] * 2
    assert reason in results[3].note
    record = lab.record(system="tester-m0-none")
    assert record["spent"] == {"tokens": 100, "cost_usd": 2.0}
    assert record["usage"]["input_tokens"] == 90
    # The same jobs file again goes on with the same budget, not with a new one.
    again, _ = carry_out(lab, engine, budget=budget)
    assert [result.state for result in again] == ["done"] * 3 + ["not started"] * 2
    assert len(engine.started) == 3
    more, _ = carry_out(lab, engine, budget=Budget(max_tokens=100_000))
    assert [result.state for result in more] == ["done"] * 5


@pytest.mark.parametrize(
    "budget", [Budget(max_tokens_per_run=500), Budget(max_usd_per_run=3.0)], ids=["tokens", "dollars"]
)
def test_a_run_beyond_its_budget_is_ended_and_is_a_result(
    lab: Lab, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_LOOK_S", 0.02)
    counted(lab, 1)
    (result,), said = carry_out(lab, WordEngine(spend(600, 3.5, until_stopped)), budget=budget, retries=3)
    record = lab.record(system="tester-m0-none")
    assert (record["state"], record["failure"], record["partial"]) == ("failed", "run_budget", True)
    assert "per_run" in result.note
    assert record["artifacts"] == ["solution"]
    assert any("ending it" in text for text in said)


def test_runs_that_go_on_are_ended_when_the_batch_is_beyond_its_budget(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_LOOK_S", 0.02)
    counted(lab, 3)
    engine = WordEngine(spend(600, 3.0, until_stopped))
    results, _ = carry_out(lab, engine, budget=Budget(max_usd=5.0), slots=slots(2, ()))
    assert [result.state for result in results] == ["interrupted", "interrupted", "not started"]
    record = lab.record(system="tester-m0-none")
    assert (record["failure"], record["partial"]) == ("batch_budget", True)
    engine.script = deliver
    rerun, _ = carry_out(lab, engine, budget=Budget(max_usd=50.0))
    assert [result.state for result in rerun] == ["done"] * 3
    record = lab.record(system="tester-m0-none")
    assert (record["attempt"], record["spent"]["cost_usd"]) == (2, 3.0)


def test_dollars_that_nobody_knows_stop_a_batch_with_a_bound_on_them(lab: Lab) -> None:
    counted(lab, 2)
    results, _ = carry_out(lab, WordEngine(spend(100)), budget=Budget(max_usd=5.0))
    assert [result.state for result in results] == ["done", "not started"]
    assert "cannot be kept" in results[1].note
    assert lab.record(system="tester-m0-none")["attempts"][0]["cost_usd"] is None


def test_spoilt_attempts_count_for_the_batch_but_not_for_the_run(lab: Lab) -> None:
    counted(lab, 2)
    spoilt: list[int] = []

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if not spoilt:
            spoilt.append(1)
            return Outcome(None, 5.0, error="the engine went away")
        return deliver(job, log, stop)

    budget = Budget(max_tokens=250, max_tokens_per_run=150)
    results, _ = carry_out(lab, WordEngine(spend(100, 1.0, script)), budget=budget, retries=1)
    assert [result.state for result in results] == ["done", "done"]
    assert lab.record(system="tester-m0-none")["spent"] == {"tokens": 200, "cost_usd": 2.0}
    assert lab.record(system="tester-m0-none")["usage"]["input_tokens"] == 90


def test_no_room_on_the_disk_starts_nothing_and_says_why(lab: Lab) -> None:
    numbered(lab, 2)
    engine = WordEngine()
    results, _ = carry_out(lab, engine, floor_gb=1e9, places=(lab.runs,))
    assert [result.state for result in results] == ["not started"] * 2
    assert "min_free_gb" in results[0].note
    assert engine.started == []


def test_room_that_comes_back_is_used(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(lab, 3)
    monkeypatch.setattr(scheduler, "_SPACE_S", 0.02)
    first, answers = threading.Event(), iter(["", "full", "full"])
    monkeypatch.setattr(scheduler, "shortage", lambda *_: next(answers, ""))

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if not first.is_set():
            first.set()
            assert eventually(lambda: next(answers, "end") == "end")
        return deliver(job, log, stop)

    results, said = carry_out(lab, WordEngine(script), slots=slots(2, ()))
    assert [result.state for result in results] == ["done"] * 3
    assert any("waiting for room" in text for text in said)


def test_free_space_is_that_of_the_nearest_directory(tmp_path: Path) -> None:
    assert shortage([tmp_path / "not" / "there"], 0.000001) == ""
    assert "less than [agent] min_free_gb" in shortage([tmp_path / "not" / "there"], 1e9)
    assert shortage([], 1e9) == ""


def test_one_run_that_breaks_costs_no_other(lab: Lab) -> None:
    numbered(lab, 3)

    def script(job: Job, log: Path, stop: threading.Event) -> Outcome:
        if "-m1-" in job.name:
            raise RuntimeError("a fault of ours")
        return deliver(job, log, stop)

    results, _ = carry_out(lab, WordEngine(script))
    assert [result.state for result in results] == ["done", "environment_error", "done"]
    assert "a fault of ours" in results[1].note


def test_what_is_shown_of_runs_that_go_on(lab: Lab) -> None:
    numbered(lab, 2)
    engine = WordEngine()
    batch = Batch(plans(lab, engine), engine, Options(), threading.Event(), lambda _: None)
    run = Going(batch._plans[0].key, gpus=("1",), phase="running", since=time.monotonic() - 3725)
    run.tokens, run.usd, run.line = 1_234_567, 3.456, "[red]working\x1b[31m"
    batch.going[0] = run
    assert status(run) == (
        "synthetic-B_01-tester-m0-none-1 running for 1:02:05, 1234567 tokens, $3.46: [red]working\x1b[31m"
    )
    from rich.console import Console

    console = Console(width=160, force_terminal=False)
    with console.capture() as captured:
        console.print(table(batch))
    shown = captured.get()
    for part in ("synthetic/B_01/tester-m0-none/1", "1:02:05", "1.2M", "$3.46", "[red]working", "2 waiting"):
        assert part in shown
    assert totals(batch) == "0 ended, 1 running, 2 waiting; 1.2M tokens, $3.46"
    assert (clock(59.9), clock(600), clock(3600)) == ("0:59", "10:00", "1:00:00")
    assert (short(0), short(999), short(1500), short(2 * 10**9)) == ("0", "999", "1.5k", "2.0G")
    run.usd = None
    assert "(0 of 1 priced)" in money(run.spent())


def test_the_last_line_is_a_whole_one_and_shows_no_secret(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    log = staging / "run" / "logs" / "agent.log"
    log.parent.mkdir(parents=True)
    run = Going(plan_key(), staging=staging, phase="running", forms=[b"sk-0123456789"])
    run.look()
    assert run.line == ""
    log.write_bytes(b"key sk-0123456789 \x1b[2J\n\nhalf a line with sk-01234")
    run.look()
    assert run.line == "key *** \\x1b[2J"
    log.write_bytes(b"sk-" + b"x" * 10_000)
    assert last_line(log) == ""


def plan_key() -> Any:
    from contract.runs import RunKey

    return RunKey("synthetic/B_01", "a", "m", "none", 1)
