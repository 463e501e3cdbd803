"""Runs and scores as SLURM tasks, on a real cluster of one node."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness_lab import DELIVER, Lab, end, eventually

from contract.workqueue import Queue

pytest_plugins = ("slurm_engine",)
pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("no_tasks_left")]

PATIENCE_S = 300.0
TERMS = (
    '[launcher]\nengine = "slurm"\nslots = 2\npartition = "{partition}"\ngres = "gpu:1"\ncpus_per_task = 1\n'
    'setup = ["export FDCB_SETUP=done"]\nextra = {{comment = "a test"}}\n'
)


def terms(more: str = "") -> str:
    return TERMS.format(partition=partition()) + more


def jobs() -> set[str]:
    """Numbers of all jobs that have not ended."""
    done = subprocess.run(["squeue", "--noheader", "--format=%A"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def partition() -> str:
    """The first partition of the cluster that is in use."""
    done = subprocess.run(["sinfo", "--noheader", "--format=%R"], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def command(pid: int) -> bytes:
    """Command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def invocation(lab: Lab) -> tuple[Path, dict[str, Any]]:
    """Directory and record of the last launch."""
    path = sorted((lab.runs / "manifests").iterdir())[-1]
    return path, json.loads((path / "invocation.json").read_text(encoding="utf-8"))


def test_runs_are_array_tasks_with_a_device_each(lab: Lab) -> None:
    script = (
        'echo "$CUDA_VISIBLE_DEVICES" > {workspace}/device; '
        f"test -e {lab.root}/meet.{{model}} || : > {lab.root}/meet.{{model}}; "
        # Both run at the same time: each waits for the other.
        f"cd {lab.root}; for i in $(seq 600); do test -e meet.a -a -e meet.b && break; sleep 0.1; done; "
        f"cp {{workspace}}/device {lab.root}/device.{{model}}; " + DELIVER
    )
    lab.runtime(lab.shell_agent(script) + lab.shell_agent("exit 3", "bad") + terms())
    lab.jobs({"model": "a"}, {"model": "b"}, {"agent": "bad"}, {"case": "clip"})
    (lab.root / "meet.m").touch()
    done = lab.infer("--json")
    assert done.returncode == 1, done.stdout + done.stderr
    states = {(row["case"], row["agent"], row["model"]): row["state"] for row in json.loads(done.stdout)}
    assert states == {
        ("synthetic/B_01", "tester", "a"): "done", ("synthetic/B_01", "tester", "b"): "done",
        ("synthetic/B_01", "bad", "m"): "failed", ("real/clip", "tester", "m"): "done",
    }  # fmt: skip
    devices = {(lab.root / f"device.{model}").read_text().strip() for model in "ab"}
    assert devices == {"0", "1"}
    path, record = invocation(lab)
    (stage,) = record["stages"]
    assert (record["exit"], stage["items"], stage["ended"], len(stage["slurm"])) == (1, 4, 4, 1)
    text = "".join(file.read_text() for file in (path / "slurm/infer").glob("*submission*.sh"))
    assert "--gres=gpu:1" in text
    assert "export FDCB_SETUP=done" in text
    assert "--comment='a test'" in text
    # Finished runs are skipped, and nothing is submitted for them.
    lab.jobs({"model": "a"}, {"agent": "bad"})
    again = lab.infer()
    assert again.returncode == 1
    assert "SLURM job" not in again.stdout
    status = lab.infer("--status")
    assert re.search(r"tester-a-none/1 .* done", status.stdout)
    assert "ended" in status.stdout


def test_a_stop_cancels_the_tasks_and_what_they_run(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(f"touch {lab.root}/going.{{model}}; sleep 600") + terms())
    lab.jobs({"model": "a"}, {"model": "b"}, {"model": "c"})
    process = lab.start()
    try:
        assert eventually(lambda: len(list(lab.root.glob("going.*"))) == 2, PATIENCE_S)
        status = lab.infer("--status")
        assert "is at it since" in status.stdout
        assert "2 in progress, 1 waiting" in status.stdout
        assert len(re.findall(r"task \d+_\d RUNNING on ", status.stdout)) == 2
        refused = lab.infer()
        assert refused.returncode == 2
        assert "still has tasks in SLURM" in refused.stderr
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 130
    assert not jobs()
    assert lab.record(system="tester-a-none")["state"] == "interrupted"
    path, _ = invocation(lab)
    queue = Queue(path / "queue/infer")
    assert [item.returns for item in queue.ready()] == [0, 0, 0]


def test_tasks_of_a_launcher_that_is_gone_can_be_cancelled(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(f"touch {lab.root}/going; sleep 600") + terms())
    lab.jobs()
    process = lab.start()
    try:
        assert eventually((lab.root / "going").exists, PATIENCE_S)
    finally:
        end(process)
    assert jobs()
    assert "is gone" in lab.infer("--status").stdout
    done = lab.infer("--cancel")
    assert (done.returncode, "cancelled" in done.stdout) == (0, True), done.stdout
    assert not jobs()
    assert lab.infer("--cancel").stdout.strip() == "[RUN] nothing is going on"


@pytest.mark.parametrize("warned", [False, True])
def test_a_task_that_is_lost_is_submitted_again(lab: Lab, warned: bool) -> None:
    # The first try lasts until its task is taken away: without a warning, as when a node fails, or with
    # SLURM's signal that its time will soon be up.
    script = f"if mkdir {lab.root}/first; then sleep 600; fi; " + DELIVER
    lab.runtime(lab.shell_agent(script) + terms("resubmits = 1\n"))
    lab.jobs()
    process = lab.start()
    try:
        assert eventually((lab.root / "first").exists, PATIENCE_S)
        if warned:
            subprocess.run(["scancel", "--signal=USR2", *jobs()], check=True)
        tasks = [pid for pid in lab.processes() if b"submitit.core._submit" in command(pid)]
        assert warned or tasks
        for pid in tasks if not warned else ():
            os.kill(pid, signal.SIGKILL)
        output = process.communicate(timeout=PATIENCE_S)[0]
    finally:
        end(process)
    assert process.returncode == 0, output
    assert "submitting again" in output
    record = lab.record()
    assert (record["state"], record["attempt"]) == ("done", 2)
    path, kept = invocation(lab)
    assert len(kept["stages"][0]["slurm"]) == 2
    # What a task lets go of is no try; what it loses is one.
    assert Queue(path / "queue/infer").ended()[0].startswith(f"000000.{int(not warned)}~")


def test_scores_are_array_tasks_on_one_queue(lab: Lab, fixture_worlds: Path) -> None:
    case, names = "synthetic/rigid", ("self", "late", "frozen", "similar")
    shutil.copytree(fixture_worlds / "cases" / case, lab.cases / case)
    shutil.copytree(fixture_worlds / "data" / case, lab.data / case)
    for name in names:
        place = lab.place(case, f"{name}-m-none")
        shutil.copytree(fixture_worlds / "runs" / case / name / "1/workspace", place / "workspace")
        (place / "run.json").write_text(json.dumps({"state": "done"}), encoding="utf-8")
    lab.jobs(*({"case": case, "agent": name} for name in names))
    lab.runtime(terms() + "[scorer]\njobs = 1\n")
    shown = lab.score("--type", "mesh", "--dry-run")
    assert "sbatch --array=0-1 --job-name=4dcb-score" in shown.stdout
    done = lab.score("--type", "mesh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("[RUN] score ") == 4
    path, record = invocation(lab)
    assert (record["stages"][0]["fine"], record["stages"][0]["fault"]) == (4, None)
    for name in names:
        results = lab.place(case, f"{name}-m-none") / "results/reward.json"
        assert json.loads(results.read_text(encoding="utf-8"))["mesh_manifold"] == 1.0
    (number,) = record["stages"][0]["slurm"]
    assert all(worker.startswith(f"{number}_") for worker in Queue(path / "queue/score").workers())
    assert "ended" in lab.score("--status").stdout


def test_what_no_task_can_do_is_tried_once(lab: Lab) -> None:
    lab.runtime(lab.shell_agent(DELIVER) + terms())
    lab.jobs()
    assert lab.infer().returncode == 0
    # On the node the program refuses to start: a package of the model is missing, say.
    lab.runtime(terms() + "[scorer]\ntask_timeouts = {nonsense = 3.0}\n")
    done = lab.score("--type", "mesh")
    assert done.returncode == 2, done.stdout
    assert "refused to start" in done.stdout
    assert len(invocation(lab)[1]["stages"][0]["slurm"]) == 1
