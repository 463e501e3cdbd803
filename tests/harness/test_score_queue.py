"""``score.py`` over several slots and stages, with the real scorer on small worlds."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import pytest
from harness_lab import SCORE, Lab, end, eventually

from contract.checkpoints import CHECKPOINTS, GROUP_METRICS, GROUP_MODELS, RAFT
from contract.errors import UserError
from contract.metrics import BY_KEY, TYPE_BY_NAME, type_of
from contract.workqueue import Item, Queue, Worker
from harness.runtime.stages import STAGES, groups_needed, is_estimated, wanted_stages
from harness.runtime.workload import frame_count, tree_bytes, world_cost
from scorer.digest import ESTIMATES
from scorer.prepare.table import TABLE

WORLDS = {
    "synthetic/rigid": ("self", "late", "frozen"),
    "synthetic/grain": ("other",),
    "real/clip_rigid": ("self",),
}


@pytest.fixture
def filled(tmp_path: Path, fixture_worlds: Path) -> Lab:
    """Finished runs of agents named like the fixture's submissions."""
    lab = Lab(tmp_path, cases=())
    jobs = []
    for case, names in WORLDS.items():
        shutil.copytree(fixture_worlds / "cases" / case, lab.cases / case)
        shutil.copytree(fixture_worlds / "data" / case, lab.data / case)
        for name in names:
            place = lab.place(case, f"{name}-m-none")
            source = fixture_worlds / "runs" / case / name / "1/workspace"
            shutil.copytree(source, place / "workspace")
            (place / "run.json").write_text(json.dumps({"state": "done"}), encoding="utf-8")
            jobs.append({"case": case, "agent": name})
    lab.jobs(*jobs)
    lab.runtime("[scorer]\nslots = 2\njobs = 1")
    return lab


def rewards(lab: Lab) -> dict[str, Any]:
    return {
        str(path.relative_to(lab.runs).parent.parent): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(lab.runs.rglob("results/reward.json"))
    }


def scored(lab: Lab) -> dict[str, Any]:
    """Those with a reading; a scorer makes the file when it begins."""
    return {name: reward for name, reward in rewards(lab).items() if reward}


def detail(lab: Lab, name: str) -> Any:
    """What a run's result rests on, and how long it took."""
    path = lab.runs / name / "results/reward.detail.json"
    return json.loads(path.read_text(encoding="utf-8"))["scorer"]["types"]


def invocation(lab: Lab) -> tuple[Path, dict[str, Any]]:
    """Directory and record of the last launch."""
    path = sorted((lab.runs / "manifests").iterdir())[-1]
    return path, json.loads((path / "invocation.json").read_text(encoding="utf-8"))


def test_two_slots_score_every_world_once(filled: Lab) -> None:
    shown = filled.score("--type", "dynamic_iou", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert not (filled.runs / "manifests").exists()
    done = filled.score("--type", "dynamic_iou")
    assert done.returncode == 0, done.stdout + done.stderr
    path, record = invocation(filled)
    (stage,) = record["stages"]
    assert (stage["items"], stage["ended"], stage["fine"], stage["fault"]) == (5, 5, 5, None)
    # A dry run shows what is run, to the word.
    commands = [line.removeprefix("[RUN] ") for line in shown.stdout.splitlines() if " -m scorer " in line]
    assert len(commands) == 2
    stamp = re.compile(r"manifests/[0-9-]+/")
    assert [stamp.sub("", c) for c in commands] == [stamp.sub("", c) for c in stage["commands"]]
    queue = Queue(path / "queue/score")
    assert sorted(queue.ended()) == list(range(5))
    assert set(queue.workers()) == {"slot0.1", "slot1.1"}
    assert len(rewards(filled)) == 5
    assert all(0 <= reward["dynamic_iou"] <= 1 for reward in rewards(filled).values())
    assert {path.name for path in path.glob("*.log")} == {"score-slot0.log", "score-slot1.log"}
    assert "[gpu " in done.stdout
    for number in range(1, 6):
        assert f"[RUN] score {number}/5 " in done.stdout
    again = filled.score("--type", "dynamic_iou")
    assert again.returncode == 0
    assert again.stdout.count(": up to date") == 5
    # What is longest is first: frames times bytes.
    rows = json.loads((path / "queue/score/manifest.json").read_text(encoding="utf-8"))
    costs = [
        world_cost(filled.root / row["world"], filled.cases / row["case"] / "reference.mp4") for row in rows
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1] > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_launch_that_is_cut_off_is_continued(filled: Lab, number: signal.Signals) -> None:
    process = filled.start("--type", "dynamic_iou", program=SCORE)
    try:
        assert eventually(lambda: scored(filled), 60)
        process.send_signal(number)
        process.wait(60)
    finally:
        end(process)
    assert eventually(lambda: not filled.processes())
    first = scored(filled)
    before = {name: detail(filled, name) for name in first}
    status = filled.score("--status")
    assert status.returncode == 0
    if number == signal.SIGKILL:
        assert "is gone; the same command continues" in status.stdout
    else:
        assert process.returncode == 130
        path, record = invocation(filled)
        assert record["exit"] == 130
        assert not Queue(path / "queue/score").taken()
    done = filled.score("--type", "dynamic_iou")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(scored(filled)) == 5
    assert {name: value for name, value in rewards(filled).items() if name in first} == first
    # The seconds of a measurement would have changed, had it been made again.
    assert {name: detail(filled, name) for name in first} == before


def test_a_scorer_that_is_killed_returns_what_it_held(filled: Lab) -> None:
    process = filled.start("--type", "dynamic_iou,mesh", program=SCORE)
    try:
        assert eventually(lambda: list(filled.runs.glob("manifests/*/queue/score/taken/slot*.1/*")), 60)
        victims = [pid for pid in filled.processes() if is_scorer(pid, "slot0.1")]
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 0
    path, record = invocation(filled)
    assert record["stages"][0]["fine"] == 5
    assert sorted(Queue(path / "queue/score").ended()) == list(range(5))


def is_scorer(pid: int, worker: str) -> bool:
    """Whether a process is the scorer's parent of that name."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"scorer" in words and worker.encode() in words


def test_a_case_that_cannot_be_prepared_is_not_scored(filled: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints here are none, so that loading them fails: the real program, its real failure."""
    store = filled.root / "checkpoints"
    for file in CHECKPOINTS[RAFT].files:
        (store / RAFT / file.path).parent.mkdir(parents=True, exist_ok=True)
        (store / RAFT / file.path).write_bytes(b"no weights")
    filled.runtime(f'[scorer]\nslots = 2\njobs = 1\ncheckpoints = "{store}"')
    (filled.data / "real/clip_rigid/estimates/flow.h5").unlink()
    monkeypatch.setenv("FOURDCB_UNVERIFIED_CHECKPOINTS", "1")
    done = filled.score("--stage", "score,prepare", "--type", "flow,dynamic_iou")
    assert done.returncode == 1, done.stdout + done.stderr
    _, record = invocation(filled)
    assert [stage["stage"] for stage in record["stages"]] == ["prepare", "score"]
    # Only what the types rest on, and only on cases of the kind that has it.
    assert [stage["items"] for stage in record["stages"]] == [1, 4]
    assert [stage["fine"] for stage in record["stages"]] == [0, 4]
    assert "not scored" in done.stdout
    table = " ".join(done.stdout.split("not scored")[1].split())
    assert "real/clip_rigid/self-m-none/1" in table
    assert "prepare: flow:" in table
    assert not (filled.place("real/clip_rigid", "self-m-none") / "results").exists()
    assert len(rewards(filled)) == 4


def test_checkpoints_are_looked_at_before_anything_starts(filled: Lab) -> None:
    filled.runtime(f'[scorer]\ncheckpoints = "{filled.data}"')
    done = filled.score("--stage", "prepare", "--type", "flow")
    assert done.returncode == 2
    assert "raft_large" in done.stderr
    assert "is missing" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (filled.runs / "manifests").exists()
    left = filled.score("--stage", "prepare", "--type", "flow", "--allow-missing-models")
    assert left.returncode == 0
    assert "not prepared for want of a model: flow" in left.stdout
    assert "nothing to do" in left.stdout
    assert filled.score("--stage", "prepare", "--type", "mesh").stdout.count("nothing to do") == 1


def test_a_scorer_without_a_launcher_works_on_a_queue(filled: Lab, repository: Path) -> None:
    entries = [
        {"case": "synthetic/rigid", "world": f"runs/synthetic/rigid/{name}-m-none/1/workspace/world",
         "out": f"runs/synthetic/rigid/{name}-m-none/1"}
        for name in ("self", "late")
    ]  # fmt: skip
    queue = Queue.create(filled.root / "q", entries)
    with Worker(queue, "other") as other:
        assert other.take() == Item(0, 0)
        roots = [w for name in ("cases", "data", "runs") for w in (f"--{name}", str(filled.root / name))]
        words = [sys.executable, "-m", "scorer", "--queue", str(queue.directory), "--type", "mesh", *roots]
        done = subprocess.run(words, cwd=repository, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "1/1 completed without failures" in done.stdout
        assert sorted(queue.ended()) == [1]
    assert queue.ready() == [Item(0, 0)]
    words[words.index(str(queue.directory))] = str(filled.root)
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is no queue" in done.stderr


def test_groups_follow_from_types_as_the_stages_see_it() -> None:
    assert groups_needed([]) == list(GROUP_MODELS)
    assert groups_needed(["mesh", "dynamic_iou"]) == []
    assert groups_needed(["depth", "semantic"]) == ["semantic", "depth"]
    assert groups_needed(["uni3d"]) == ["moge"]
    for estimate in TABLE:
        assert set(estimate.metrics) <= set(GROUP_METRICS[estimate.group])
        for case in ("real/a", "synthetic/a"):
            assert estimate.needed(case) == is_estimated(estimate.group, case)
        # Whatever reads the file belongs to a type that asks for its group.
        readers = {type_of(unit).name for unit, files in ESTIMATES.items() if estimate.file in files}
        assert readers
        assert all(estimate.group in groups_needed([name]) for name in readers)
    assert {BY_KEY[key].type for keys in GROUP_METRICS.values() for key in keys} <= set(TYPE_BY_NAME)


def test_stages_that_the_checkout_does_not_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scorer").mkdir()
    with pytest.raises(UserError, match="viz is not built yet: there is no visualizer/"):
        wanted_stages("score,viz", tmp_path)
    (tmp_path / "visualizer").mkdir()
    assert wanted_stages("viz, prepare,score,,score", tmp_path) == list(STAGES.values())


def test_frames_are_counted_from_the_index(fixture_worlds: Path, tmp_path: Path) -> None:
    for video in fixture_worlds.glob("cases/*/*/reference.mp4"):
        with av.open(str(video)) as container:
            assert frame_count(video) == sum(1 for _ in container.decode(video=0))
    for content in (b"", b"\0\0\0\x08moov", b"\0\0\0\x10moov\0\0\0\xffstsz", b"\0\0\0\0moov", b"x" * 100):
        (tmp_path / str(len(content))).write_bytes(content)
        assert frame_count(tmp_path / str(len(content))) == 1
    assert frame_count(tmp_path / "absent") == 1
    (tmp_path / "link").symlink_to("/")
    assert tree_bytes(tmp_path) > 100
    assert tree_bytes(tmp_path / "absent") == 0
