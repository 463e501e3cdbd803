"""``score.py`` as a program: what it hands to the scorer, and what it makes of the answer."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from clips import clip
from harness_lab import DELIVER, SCORE, Lab, end, eventually, snapshot
from rich.console import Console

from contract.errors import UserError
from contract.metrics import TYPE_BY_NAME
from contract.runs import RunKey
from harness.runtime.config import load_runtime
from harness.runtime.scoretable import score_tables
from harness.runtime.scoring import run_entry, sanity_entries
from harness.runtime.slots import Slot, scorer_slots
from harness.runtime.stagejob import Order, stage_flags, stage_job, worlds_at_once


@pytest.fixture
def delivered(lab: Lab) -> Lab:
    """A finished run on a case whose video can be decoded; its world is no world."""
    clip(lab.cases / "synthetic/B_01/reference.mp4", frames=3)
    lab.runtime(lab.shell_agent(DELIVER) + lab.shell_agent("exit 1", "bad"))
    lab.jobs()
    assert lab.infer().returncode == 0
    return lab


def invocations(lab: Lab) -> list[Path]:
    return sorted((lab.runs / "manifests").glob("*"))


def test_a_submission_that_fails_its_gates_is_scored_as_an_error_and_resumed(delivered: Lab) -> None:
    done = delivered.score("--type", "mesh")
    assert done.returncode == 1, done.stdout + done.stderr
    reward = json.loads((delivered.place() / "results/reward.json").read_text(encoding="utf-8"))
    assert set(reward.values()) == {"error"}
    assert "Watertight" in done.stdout
    (invocation,) = invocations(delivered)
    assert json.loads((invocation / "queue/score/manifest.json").read_text(encoding="utf-8")) == [
        {
            "case": "synthetic/B_01",
            "world": "runs/synthetic/B_01/tester-m-none/1/workspace/world",
            "out": "runs/synthetic/B_01/tester-m-none/1",
        }
    ]
    log = (invocation / "score.log").read_text(encoding="utf-8")
    assert log.strip()
    assert set(log.splitlines()) <= set(done.stdout.splitlines())
    assert "[RUN] score 1/1 synthetic/B_01/tester-m-none/1: failed: see the log" in done.stdout
    record = json.loads((invocation / "invocation.json").read_text(encoding="utf-8"))
    assert (record["exit"], record["entries"], record["program"]) == (1, 1, "score")
    (stage,) = record["stages"]
    assert (stage["stage"], stage["items"], stage["ended"], stage["fine"]) == ("score", 1, 1, 0)
    assert delivered.score("--type", "mesh").returncode == 1
    assert len(invocations(delivered)) == 2


def test_runs_that_are_not_there_are_listed_and_not_scored(delivered: Lab) -> None:
    delivered.jobs({"model": "typo"}, {"case": "clip"})
    before = snapshot(delivered.root)
    done = delivered.score()
    assert done.returncode == 1
    assert "not run: synthetic/B_01/tester-typo-none/1: it was never run" in done.stdout
    assert snapshot(delivered.root) == before


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"state": "interrupted"}, "its state is interrupted"),
        ({"state": "environment_error"}, "its state is environment_error"),
        ({"state": "running"}, "its state is running"),
        (None, "its run.json cannot be read"),
    ],
)
def test_runs_that_did_not_finish_are_not_counted_as_bad_ones(
    lab: Lab, record: dict[str, str] | None, why: str
) -> None:
    lab.runtime()
    lab.jobs()
    lab.place().mkdir(parents=True)
    if record:
        (lab.place() / "run.json").write_text(json.dumps(record), encoding="utf-8")
    done = lab.score()
    assert done.returncode == 1
    assert why in done.stdout
    assert not (lab.place() / "results").exists()


def test_a_finished_run_without_a_delivery_is_scored(lab: Lab) -> None:
    # Leaving it out would raise the average of an agent that fails.
    lab.runtime(lab.shell_agent("exit 1"))
    lab.jobs()
    assert lab.infer().returncode == 1
    done = lab.score("--dry-run", "--type", "mesh")
    assert "would score runs/synthetic/B_01/tester-m-none/1/workspace/world" in done.stdout
    assert "not run" not in done.stdout


def test_a_dry_run_touches_nothing(delivered: Lab) -> None:
    before = snapshot(delivered.root)
    done = delivered.score("--dry-run", "--type", "mesh,dynamic_iou", "--redo")
    assert done.returncode == 0
    assert "-m scorer --queue" in done.stdout
    assert "--type dynamic_iou --type mesh" in done.stdout
    assert "--redo" in done.stdout
    assert snapshot(delivered.root) == before


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--stage", ""], "names no stage"),
        (["--stage", "scoer"], "no such stage; expected --stage prepare,score"),
        (["--stage", "prepare", "--only", ","], "--only names no group"),
        (["--stage", "prepare", "--only", "flaw"], "did you mean flow"),
        (["--only", "flow"], "belongs to the stage prepare"),
        (["--media", "x"], "belongs to the stage viz"),
        (["--type", "mess"], "did you mean mesh"),
        (["--type", "mesh,,zzz"], "--type zzz: no such type"),
    ],
)
def test_flags_that_mean_nothing(delivered: Lab, flags: list[str], part: str) -> None:
    before = snapshot(delivered.root)
    done = delivered.score(*flags)
    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count("\n") == 1
    assert snapshot(delivered.root) == before


def test_a_model_that_is_not_there_is_an_error_before_anything_is_scored(delivered: Lab) -> None:
    done = delivered.score("--type", "semantic,mesh")
    assert done.returncode == 2
    assert "dinov3-vitl16" in done.stderr
    assert "tipsv2-l14" in done.stderr
    assert "--allow-missing-models" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not invocations(delivered)
    assert not (delivered.place() / "results").exists()


def test_models_that_are_not_there_can_be_left_out(delivered: Lab) -> None:
    assert delivered.score("--type", "semantic,mesh", "--allow-missing-models").returncode == 1  # no world
    results = delivered.place() / "results"
    reward = json.loads((results / "reward.json").read_text(encoding="utf-8"))
    assert set(reward) == set(TYPE_BY_NAME["mesh"].keys)
    detail = json.loads((results / "reward.detail.json").read_text(encoding="utf-8"))
    assert set(detail["skipped"]) == {"semantic_dinov3", "semantic_tips"}


def test_sanity_adds_each_reference_world_once(lab: Lab) -> None:
    (lab.data / "synthetic/B_01/world").mkdir(parents=True)
    (entry,) = sanity_entries(("synthetic/B_01", "real/clip"), lab.data)
    assert entry.record() == {
        "case": "synthetic/B_01", "world": "data/synthetic/B_01/world", "out": "data/synthetic/B_01/sanity",
    }  # fmt: skip
    lab.runtime()
    lab.jobs({}, {"trial": 2})
    done = lab.score("--sanity", "--dry-run", "--type", "mesh")
    assert done.stdout.count("would score data/synthetic/B_01/world") == 1


def test_names_in_a_manifest_are_those_of_the_tree() -> None:
    entry = run_entry(RunKey("real/clip", "claude", "org/m", "high", 3))
    assert entry.world == "runs/real/clip/claude-org%2Fm-high/3/workspace/world"
    assert entry.out == "runs/real/clip/claude-org%2Fm-high/3"


def docker_runtime(lab: Lab, scorer: str = "") -> None:
    lab.runtime(f'[scorer.image]\ndocker = "scorer:x"\n{scorer}', top='backend = "docker"')


def order(lab: Lab, stage: str = "score", **fields: object) -> Order:
    return Order(stage, lab.runs / "manifests/1", **{"items": 1, **fields})  # type: ignore[arg-type]


def test_the_scorers_container(lab: Lab) -> None:
    docker_runtime(
        lab,
        "[scorer]\ntask_timeout_sec = 7\ntask_timeouts = {mesh = 9.5}\n"
        "[scorer.environment]\ncpus = 2.5\nmemory_mb = 100\ngpus = 0",
    )
    runtime = load_runtime(lab.runtime_path)
    (slot,) = scorer_slots(runtime)
    wanted = order(lab, names=("mesh",), redo=True)
    job = stage_job(runtime, wanted, "slot0.1", slot)
    assert job.command == (
        "python", "-m", "scorer", "--queue", "/queue", "--worker", "slot0.1", "--type", "mesh",
        "--task-timeout", "7", "--prepare-timeout", "600", "--timeout", "mesh=9.5", "--redo",
    )  # fmt: skip
    mounts = [(str(m.source), str(m.target), m.writable) for m in job.mounts]
    assert mounts[:4] == [
        (str(lab.cases), "/cases", False), (str(lab.data), "/data", True), (str(lab.runs), "/runs", True),
        (str(lab.runs / "manifests/1/queue/score"), "/queue", True),
    ]  # fmt: skip
    assert (job.image, job.network, job.gpus, job.as_root) == ("scorer:x", False, (), False)
    assert (job.limits.cpus, job.limits.memory_mb) == (2.5, 100)
    assert job.name == "4dcb-score-1-slot0.1"
    assert threads(job.env) == {"2"}


def threads(env: Mapping[str, str]) -> set[str]:
    """What the thread variables say; all six or none are set."""
    names = (
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
        "OPENCV_FOR_THREADS_NUM", "CV_NUM_THREADS",
    )  # fmt: skip
    return {env.get(name, "unset") for name in names}


def test_the_container_of_the_stage_prepare(lab: Lab) -> None:
    docker_runtime(lab)
    runtime = load_runtime(lab.runtime_path)
    wanted = order(lab, "prepare", names=("flow", "depth"), allow_missing=True)
    job = stage_job(runtime, wanted, "slot1.2", Slot(1, ("5",)), slots=2)
    assert job.command == (
        "python", "-m", "scorer.prepare", "--queue", "/queue", "--worker", "slot1.2",
        "--only", "flow", "--only", "depth",
    )  # fmt: skip
    assert [str(mount.target) for mount in job.mounts[:3]] == ["/cases", "/data", "/queue"]
    assert job.gpus == ("5",)
    assert Order.of(json.loads(json.dumps(wanted.record()))) == wanted


@pytest.mark.parametrize(
    ("scorer", "worlds", "cpus", "gib", "expected"),
    [
        ("", 5, 2, 24, 1),
        ("", 5, 7, 24, 3),
        ("", 2, 64, 500, 2),
        ("", 0, 64, 500, 1),
        ("", 50, 64, 9, 2),
        ("", 50, 64, 1, 1),
        ("", 50, 1, 500, 1),
        ("[scorer.environment]\ncpus = 8", 50, 64, 500, 4),
        ("[scorer.environment]\ncpus = 0.5", 50, 64, 500, 1),
        ("[scorer.environment]\nmemory_mb = 12288", 50, 64, 500, 3),
        ("[scorer]\njobs = 6", 50, 2, 1, 6),
        ("[scorer]\njobs = 6", 4, 2, 1, 4),
    ],
)
def test_worlds_scored_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, scorer: str, worlds: int, cpus: int, gib: int, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if "SIZE" in name else gib << 18)
    docker_runtime(lab, scorer)
    runtime = load_runtime(lab.runtime_path)
    assert worlds_at_once(runtime, worlds) == expected
    wanted = order(lab, items=worlds)
    assert (["--jobs", str(expected)] == stage_flags(runtime, wanted)[:2]) is (expected > 1)
    job = stage_job(runtime, wanted, "w", Slot(0, ()))
    if "cpus = 8" in scorer:
        assert threads(job.env) == {"2"}


def test_slots_of_a_machine_share_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if "SIZE" in name else 500 << 18)
    docker_runtime(lab)
    runtime = load_runtime(lab.runtime_path)
    assert worlds_at_once(runtime, 40, slots=4) == 2
    assert worlds_at_once(runtime, 5, slots=4) == 2
    assert worlds_at_once(runtime, 4, slots=4) == 1
    assert threads(stage_job(runtime, order(lab, items=40), "w", Slot(3, ()), slots=4).env) == {"2"}
    assert threads(stage_job(runtime, order(lab, items=40), "w", Slot(0, ())).env) == {"unset"}


@pytest.mark.parametrize(
    ("visible", "scorer", "expected"),
    [
        ("0,3,5", "[scorer.environment]\ngpus = 2", [("0",), ("3",)]),
        ("0,3,5", "", [("0",), ("3",), ("5",)]),
        ("0,3", "[scorer]\nslots = 3", [("0",), ("3",), ("0",)]),
        ("0,3", "[scorer]\nslots = 1", [("0",)]),
        ("0,3", "[scorer.environment]\ngpus = 0", [()]),
        ("", "", [()]),
        ("", "[scorer]\nslots = 2", [(), ()]),
        ("", "[scorer.environment]\ngpus = 2", [()]),
        ("1", "[scorer.environment]\ngpus = 4", [("1",)]),
    ],
)
def test_each_visible_device_is_a_slot(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, visible: str, scorer: str, expected: list[tuple[str, ...]]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    docker_runtime(lab, scorer)
    slots = scorer_slots(load_runtime(lab.runtime_path))
    assert [slot.gpus for slot in slots] == expected
    assert [slot.number for slot in slots] == list(range(len(expected)))


def test_devices_that_nobody_names_are_one_slot(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("harness.runtime.slots.devices", lambda _: None)
    docker_runtime(lab)
    assert scorer_slots(load_runtime(lab.runtime_path)) == [Slot(0, None)]
    docker_runtime(lab, "[scorer.environment]\ngpus = 2")
    assert [slot.gpus for slot in scorer_slots(load_runtime(lab.runtime_path))] == [("0",), ("1",)]


def test_a_named_checkpoint_store_must_exist(lab: Lab) -> None:
    docker_runtime(lab, '[scorer]\ncheckpoints = "/nowhere/4dcb"')
    with pytest.raises(UserError, match="checkpoints does not exist"):
        stage_job(load_runtime(lab.runtime_path), order(lab), "w", Slot(0, ()))


def test_limits_that_the_host_cannot_keep_are_refused(delivered: Lab) -> None:
    delivered.runtime("[scorer.environment]\nmemory_mb = 100\n" + delivered.shell_agent(DELIVER))
    done = delivered.score("--type", "mesh")
    assert done.returncode == 2
    assert "memory_mb" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_the_launcher_stops_the_scorer(delivered: Lab, number: signal.Signals) -> None:
    process = delivered.start("--type", "mesh", program=SCORE)
    try:
        assert eventually(lambda: list(delivered.runs.glob("manifests/*/score.log")))
        process.send_signal(number)
        process.wait(60)
    finally:
        end(process)
    assert process.returncode in (130, -9, 1)
    assert eventually(lambda: not delivered.processes())
    for path in delivered.runs.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    shutil.rmtree(delivered.runs / "manifests")
    assert delivered.score("--type", "mesh").returncode == 1
    assert (delivered.place() / "results/reward.json").is_file()


@pytest.mark.parametrize("entries", [1, 4])
def test_the_table_shows_numbers_states_and_gaps(entries: int) -> None:
    rewards: list[tuple[str, dict[str, object] | None]] = [
        ("a", {"mesh_watertight": 0.5, "dynamic_iou": "excluded"})
    ]
    rewards += [("b", None)] * (entries - 1)
    text = StringIO()
    console = Console(file=text, width=120)
    for table in score_tables(rewards):
        console.print(table)
    assert "0.5000" in text.getvalue()
    assert "excl." in text.getvalue()
    assert ("not scored" in text.getvalue()) == (entries > 1)
    assert score_tables([("x", None)]) == []


def test_two_invocations_at_once_do_not_share_a_directory(delivered: Lab) -> None:
    processes = [delivered.start("--type", "mesh", program=SCORE) for _ in range(2)]
    try:
        for process in processes:
            process.communicate(timeout=120)
    finally:
        for process in processes:
            end(process)
    names = [path.name for path in invocations(delivered)]
    assert len(names) == 2
    assert {name.rsplit("-", 1)[1] for name in names} == {str(process.pid) for process in processes}
    assert (delivered.place() / "results/reward.json").is_file()
