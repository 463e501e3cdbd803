"""The whole program, with metrics that behave as each test asks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scorer_lab import CASE, RUN, Lab, alive, eventually

from scorer.registry import BUILT
from world.video import write_video

DIE = "os.kill(os.getpid(), signal.SIGKILL)"
SEMANTIC = ("semantic_dinov3", "semantic_tips")
MESH = ("mesh_watertight", "mesh_manifold", "mesh_clean_faces", "mesh_no_self_intersection")


def world(lab: Lab, run: str = RUN) -> Path:
    return lab.root / run / "workspace" / "world"


def test_a_sound_world(lab: Lab) -> None:
    lab.metric("dynamic_iou")
    lab.metric("interpenetration")
    lab.add_run()
    done = lab.score()
    assert done.returncode == 0
    name = world(lab)
    assert done.stdout.splitlines() == [
        "1 world(s), types ['dynamic_iou', 'interpenetration']",
        f"{name}: ok",
        f"{name}: dynamic_iou: done",
        f"{name}: interpenetration: done",
        "1/1 completed without failures",
    ]
    assert done.stderr == ""
    assert lab.reward() == {"dynamic_iou": 0.5, "interpenetration": 0.5}
    detail = lab.detail()
    assert detail["dimensions"] == [4, 48, 64, 24.0]
    assert detail["reference"] is None
    assert detail["checkpoints"] == "/checkpoints"
    assert detail["scorer"]["types"]["dynamic_iou"]["arrays"] == ["dynamic.npz"]
    files = sorted(path.name for path in (lab.root / RUN / "results").iterdir())
    assert files == [".lock", "dynamic.npz", "interpenetration.npz", "reward.detail.json", "reward.json"]


@pytest.mark.parametrize(
    ("body", "reading", "text"),
    [
        ("raise ValueError('no covered pixel')", "error", "ValueError: no covered pixel"),
        ("time.sleep(600)", "error", "timeout after 3s"),
        (DIE, None, "worker exited without a result (SIGKILL)"),
        ("raise MemoryError('no room')", None, "MemoryError: no room"),
        ("raise OSError(errno.ENOSPC, 'full')", None, "OSError: [Errno 28] full"),
        ("return Measurement({'dynamic_iou': float('nan')})", "error", None),
        ("return Measurement({'dynamic_iou': object()})", "error", "TypeError: a detail value"),
        ("return Measurement({'status': 1})", "error", "ValueError: detail key 'status' does not belong"),
        ("return fine.nothing", "error", "AttributeError: "),
        ("return Measurement({}, vouched=frozenset())", "uncomputable", None),
    ],
)
def test_what_happens_to_one_metric_stays_with_it(
    lab: Lab, body: str, reading: str | None, text: str | None
) -> None:
    lab.metric("dynamic_iou", body)
    lab.metric("interpenetration")
    lab.metric("mesh", f"return Measurement(dict.fromkeys({MESH}, 1.0))")
    out = lab.add_run()
    (out / "results").mkdir()
    (out / "results" / "dynamic.npz").write_bytes(b"of an earlier scoring")
    done = lab.score("--timeout", "dynamic_iou=3")
    assert lab.reward().get("dynamic_iou") == reading
    assert lab.reward() | {"dynamic_iou": 0} == {
        "dynamic_iou": 0,
        "interpenetration": 0.5,
        **dict.fromkeys(MESH, 1.0),
    }
    assert lab.detail()["status"] == "ok"
    assert f"{world(lab)}: mesh: done" in done.stdout
    assert not (out / "results" / "dynamic.npz").exists()
    assert done.returncode == (0 if text is None else 1)
    if text is not None:
        assert text in done.stderr
        where = (
            lab.detail()["infrastructure"]["dynamic_iou"]
            if reading is None
            else lab.detail()["dynamic_iou_failure"]
        )
        assert where.startswith(text)

    calls = lab.calls
    again = lab.score("--timeout", "dynamic_iou=3")
    assert again.returncode == done.returncode
    expected = [] if reading is not None else ["dynamic_iou"] * (2 if body == DIE else 1)
    assert lab.calls == calls + expected  # a fault of the machine is tried again, a reading is not


def test_a_worker_lost_once_costs_nothing(lab: Lab) -> None:
    flag = lab.root / "died"
    lab.metric(
        "mesh", f"flag = Path({str(flag)!r})\nif not flag.exists():\n    flag.touch()\n    {DIE}\nreturn fine"
    )
    lab.add_run()
    assert lab.score().returncode == 0
    assert lab.reward()["mesh_watertight"] == 0.5


def test_more_time_gives_a_timed_out_metric_another_chance(lab: Lab) -> None:
    lab.metric("mesh", "time.sleep(4)\nreturn fine")
    lab.add_run()
    lab.score("--timeout", "mesh=2")
    assert lab.reward()["mesh_watertight"] == "error"
    assert lab.score("--timeout", "mesh=2").returncode == 1
    assert lab.calls == ["mesh"]
    assert lab.score("--task-timeout", "60").returncode == 0
    assert lab.reward()["mesh_watertight"] == 0.5


def test_up_to_date_until_inputs_change(lab: Lab) -> None:
    lab.metric("mesh")
    lab.metric("interpenetration")
    out = lab.add_run()
    lab.score("--type", "mesh")
    done = lab.score()
    assert f"{world(lab)}: mesh: up to date" in done.stdout
    assert lab.calls == ["mesh", "interpenetration"]
    before = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    done = lab.score()
    assert f"{world(lab)}: up to date\n" in done.stdout
    assert done.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()} == before
    lab.score("--redo", "--type", "mesh")
    assert lab.calls == ["mesh", "interpenetration", "mesh"]
    camera = world(lab) / "camera.json"
    camera.write_text(camera.read_text() + "\n")
    lab.score()
    assert lab.calls[3:] == ["interpenetration", "mesh"]


def test_a_type_keeps_what_others_wrote(lab: Lab) -> None:
    lab.metric("mesh")
    lab.metric("dynamic_iou")
    lab.add_run()
    lab.score()
    before = lab.detail()
    lab.score("--type", "mesh", "--redo")
    assert lab.reward()["dynamic_iou"] == 0.5
    assert lab.detail()["scorer"]["types"]["dynamic_iou"] == before["scorer"]["types"]["dynamic_iou"]


def test_several_worlds_at_once(lab: Lab) -> None:
    lab.metric("mesh")
    runs = [f"runs/{CASE}/toy-model-high/{trial}" for trial in range(1, 6)]
    for run in runs:
        lab.add_run(run)
    (world(lab, runs[2]) / "render.mp4").unlink()
    done = lab.score("--jobs", "3")
    assert done.returncode == 1
    assert done.stdout.endswith("4/5 completed without failures\n")
    assert [lab.reward(run)["mesh_watertight"] for run in runs] == [0.5, 0.5, "error", 0.5, 0.5]


def spoil(path: Path, how: str) -> None:
    if how == "no_video":
        (path / "render.mp4").unlink()
    elif how == "undecodable_video":
        (path / "render.mp4").write_bytes(b"junk" * 100)
    elif how == "video_mismatch":
        write_video(path / "render.mp4", (np.zeros((48, 64, 3), np.uint8) for _ in range(5)), 24)
    elif how == "no_world":
        shutil.rmtree(path / "dynamics")
    elif how == "invalid_world":
        (path / "meshes" / "1.npz").write_bytes(b"junk")


@pytest.mark.parametrize(
    "how", ["no_video", "undecodable_video", "video_mismatch", "no_world", "invalid_world"]
)
def test_closed_gates(lab: Lab, how: str) -> None:
    for name in ("mesh", "dynamic_iou", "flow"):
        lab.metric(name)
    for unit in SEMANTIC:
        lab.model(unit)
    lab.add_run()
    spoil(world(lab), how)
    done = lab.score()
    assert done.returncode == 1
    assert f"{world(lab)}: gate_failure ({how})" in done.stdout
    assert f"{world(lab)}: {how}: " in done.stderr
    reward, detail = lab.reward(), lab.detail()
    render_only = how in ("no_world", "invalid_world")
    refused = {"dynamic_iou", *MESH} | (set() if render_only else set(SEMANTIC))
    assert {key for key, value in reward.items() if value == "error"} == refused
    assert reward["flow_distribution"] == "not_applicable"
    assert reward["semantic_tips"] == (0.75 if render_only else "error")
    assert detail["causes"] == dict.fromkeys(refused, how)
    assert detail["status"] == "gate_failure"
    assert detail["gate_failure"].startswith(f"{how}: ")
    assert (detail["world_gate"] is None) == (not render_only)
    assert (detail["dimensions"] is None) == (how in ("no_video", "undecodable_video"))
    passes = [word for unit in SEMANTIC for word in (f"load:{unit}", unit)]
    assert lab.calls == (passes if render_only else [])
    again = lab.score()
    assert (again.returncode, lab.reward(), lab.detail()) == (1, reward, detail)
    assert f"{world(lab)}: up to date" in again.stdout


def test_a_mended_world_is_scored(lab: Lab) -> None:
    lab.metric("mesh")
    lab.add_run()
    render = world(lab) / "render.mp4"
    good = render.read_bytes()
    render.unlink()
    lab.score()
    render.write_bytes(good)
    assert lab.score().returncode == 0
    assert lab.reward()["mesh_watertight"] == 0.5
    assert "gate_failure" not in lab.detail()
    assert lab.detail()["causes"] == {
        "mesh_manifold": "no_pairing",
        "mesh_clean_faces": "no_pairing",
        "mesh_no_self_intersection": "no_pairing",
    }


def test_reference_data_is_scored_without_a_solution(lab: Lab) -> None:
    lab.metric("mesh")
    shutil.copytree(lab.world, lab.root / "data" / CASE / "world")
    lab.entries.append({"case": CASE, "world": f"data/{CASE}/world", "out": f"data/{CASE}/sanity"})
    assert lab.score().returncode == 0
    assert lab.reward(f"data/{CASE}/sanity")["mesh_watertight"] == 0.5
    assert lab.detail(f"data/{CASE}/sanity")["reference"] == str(lab.root / "data" / CASE / "world")


def test_types_that_cannot_be_scored_on_the_case_never_run(lab: Lab) -> None:
    case = "real/internet_01_purple_granular_sand"
    lab.add_case(case)
    lab.add_run(f"runs/{case}/toy/1", case)
    lab.metric("dynamic_iou")
    lab.metric("scene_3d")
    assert lab.score().returncode == 0
    assert lab.reward(f"runs/{case}/toy/1") == {"dynamic_iou": "excluded", "scene_3d": "not_applicable"}
    assert lab.detail(f"runs/{case}/toy/1")["causes"] == {"dynamic_iou": "transparent"}
    assert lab.detail(f"runs/{case}/toy/1")["status"] == "ok"
    assert lab.calls == []
    assert "up to date" in lab.score().stdout


def test_an_unreadable_reference_is_the_operators_fault(lab: Lab) -> None:
    lab.metric("mesh")
    lab.metric("flow")
    lab.add_run()
    (lab.root / "cases" / CASE / "reference.mp4").write_bytes(b"junk")
    done = lab.score()
    assert done.returncode == 1
    assert "gate: infrastructure: ReferenceFault" in done.stderr
    assert lab.reward() == {"flow_distribution": "not_applicable"}
    assert lab.detail()["status"] == "infrastructure"


def test_a_gate_that_takes_too_long_is_a_closed_gate(lab: Lab) -> None:
    lab.metric("mesh")
    lab.add_run()
    done = lab.score("--timeout", "gate=0.0001")
    assert done.returncode == 1
    assert lab.reward() == dict.fromkeys(MESH, "error")
    assert set(lab.detail()["causes"].values()) == {"metric_failure"}
    assert lab.detail()["gate_failure"] == "metric_failure: timeout after 0.0001s"
    assert lab.score().returncode == 0  # it is no verdict on the files, so it does not last


def test_a_results_directory_that_cannot_be_written_stays_with_its_world(lab: Lab) -> None:
    lab.metric("mesh")
    first, second = (f"runs/{CASE}/toy-model-high/{trial}" for trial in (1, 2))
    (lab.add_run(first) / "results").write_text("a file is in the way")
    lab.add_run(second)
    done = lab.score()
    assert done.returncode == 1
    assert f"{world(lab, first)}: infrastructure: " in done.stderr
    assert done.stdout.endswith("1/2 completed without failures\n")


@pytest.mark.parametrize("kill_at", range(4))
def test_killed_at_any_moment_nothing_is_lost_or_left(lab: Lab, kill_at: int) -> None:
    names = ["dynamic_iou", "interpenetration", "mesh"]
    for name in names:
        lab.metric(name, "time.sleep(0.3)\nreturn fine")
    lab.add_run()
    scorer = lab.start()
    time.sleep(random.Random(kill_at).uniform(0.2, 3.0))
    children = [
        int(pid) for pid in Path(f"/proc/{scorer.pid}/task/{scorer.pid}/children").read_text().split()
    ]
    scorer.kill()
    stdout, _ = scorer.communicate()  # ends when no process holds the output any more
    assert eventually(lambda: not any(alive(pid) for pid in children))
    results = lab.root / RUN / "results"
    finished = [name for name in names if f"{name}: done" in stdout]
    if (results / "reward.json").exists():
        lab.reward()
    if (results / "reward.detail.json").exists():
        lab.detail()
    before = len(lab.calls)
    done = lab.score()
    assert done.returncode == 0
    assert len(lab.reward()) == 6
    assert not set(finished) & set(lab.calls[before:])
    leftovers = [path.name for path in results.iterdir() if path.name.endswith((".tmp", ".staged"))]
    assert leftovers == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(lab: Lab, number: int) -> None:
    lab.metric("dynamic_iou")
    pids = lab.root / "pids"
    lab.metric("mesh", f"Path({str(pids)!r}).write_text(str(os.getpid()))\ntime.sleep(600)")
    for trial in (1, 2):
        lab.add_run(f"runs/{CASE}/toy-model-high/{trial}")
    scorer = lab.start("--jobs", "2")
    assert eventually(lambda: lab.calls.count("mesh") == 2)
    scorer.send_signal(number)
    _, stderr = scorer.communicate(timeout=60)
    assert scorer.returncode == 130
    assert stderr.splitlines() == ["interrupted; run the same command again to continue"]
    assert eventually(lambda: not alive(int(pids.read_text())))
    for trial in (1, 2):
        assert lab.reward(f"runs/{CASE}/toy-model-high/{trial}") == {"dynamic_iou": 0.5}


def test_two_scorers_on_one_world_take_turns(lab: Lab) -> None:
    for name in ("dynamic_iou", "interpenetration", "mesh"):
        lab.metric(name, "time.sleep(0.5)\nreturn fine")
    lab.add_run()
    first = lab.start()
    assert eventually(lambda: lab.calls)
    second = lab.start()
    outputs = [scorer.communicate(timeout=120) for scorer in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert lab.calls == ["dynamic_iou", "interpenetration", "mesh"]
    assert "waiting for another scorer" in outputs[1][1]
    assert f"{world(lab)}: up to date" in outputs[1][0]


def test_wrong_usage_is_one_line_and_status_2(lab: Lab) -> None:
    lab.metric("mesh")
    for flags in (["--type", "beauty"], ["--nonsense"], ["--task-timeout", "0"], ["--timeout", "x=1"]):
        done = lab.score(*flags)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    lab.entries.append({"case": "real/unknown", "world": "runs/x/world", "out": "runs/x"})
    done = lab.score()
    assert done.returncode == 2
    assert "real/unknown" in done.stderr
    assert not (lab.root / "runs" / "x").exists()


def test_no_worlds_is_no_failure(lab: Lab) -> None:
    lab.metric("mesh")
    done = lab.score()
    assert done.returncode == 0
    assert done.stdout.endswith("0/0 completed without failures\n")


def test_hostile_names_cannot_fake_lines(lab: Lab) -> None:
    lab.metric("mesh", "raise ValueError('boom\\n/fake: ok\\x1b[2J')")
    run = f"runs/{CASE}/a\n1\x1b/1"
    lab.add_run(run)
    done = lab.score()
    for line in (done.stdout + done.stderr).splitlines():
        assert line.isprintable()
        assert not line.startswith("/fake")
    assert len(done.stdout.splitlines()) == 3


def test_without_a_home_and_the_parent_loads_no_numbers(lab: Lab, tmp_path: Path) -> None:
    lab.metric(
        "mesh",
        """
        import numba

        @numba.njit(cache=True)
        def double(x):
            return 2 * x

        return Measurement({"mesh_watertight": double(0.25)})
        """,
    )
    lab.add_run()
    no = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    env = {key: value for key, value in lab.env.items() if key not in no} | {"TMPDIR": str(tmp_path)}
    head, code = "import atexit, sys; heavy = {'numpy', 'av', 'world', 'rich'}; ", lab.command()[2]
    tell = "atexit.register(lambda: print(sorted(heavy & set(sys.modules)))); "
    command = [*lab.command()[:2], head + tell + code, *lab.command()[3:]]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert lab.reward()["mesh_watertight"] == 0.5
    assert list(tmp_path.glob("4dcodebench-*-numba/**/*.nbi"))


def test_the_program_itself_offers_the_built_types() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scorer", "--help"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert f"all of {', '.join(BUILT)}" in " ".join(done.stdout.split())
