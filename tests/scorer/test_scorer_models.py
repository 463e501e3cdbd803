"""The model passes of the whole program, with models that behave as each test asks."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from scorer_lab import CASE, RUN, Lab, eventually

from contract.checkpoint_store import NOTE
from contract.checkpoints import DINOV3, TIPSV2, UNI3D

DIE = "os.kill(os.getpid(), signal.SIGKILL)"
GEOPHYS, SEMANTIC = "geophys_dinov3", ("semantic_dinov3", "semantic_tips")
RUNS = tuple(f"runs/{CASE}/toy-model-high/{trial}" for trial in (1, 2, 3))
ALLOW = "--allow-missing-models"


def world(lab: Lab, run: str = RUN) -> Path:
    return lab.root / run / "workspace" / "world"


def results(lab: Lab, run: str = RUN) -> list[str]:
    return sorted(path.name for path in (lab.root / run / "results").iterdir())


@pytest.fixture
def three(lab: Lab) -> Lab:
    """Three worlds of one case."""
    for run in RUNS:
        lab.add_run(run)
    return lab


def test_each_model_is_loaded_once_for_all_worlds(three: Lab) -> None:
    for unit in (*SEMANTIC, GEOPHYS, "uni3d"):
        three.model(unit)
    three.metric("mesh")
    done = three.score()
    assert done.returncode == 0
    passes = [word for unit in (*SEMANTIC, GEOPHYS, "uni3d") for word in (f"load:{unit}", *[unit] * 3)]
    assert three.calls == [*["mesh", "clouds"] * 3, *passes]
    for run in RUNS:
        reward = three.reward(run)
        assert (reward["semantic_dinov3"], reward["semantic_tips"], reward[GEOPHYS]) == (0.75, 0.75, 0.5)
        assert (reward["uni3d_point_scene"], reward["uni3d_moge_scene"]) == (0.75, "not_applicable")
        assert {"embeddings_dinov3.npz", "geophys_dinov3.npz", "uni3d.npz", "uni3d_clouds.npz"} < set(
            results(three, run)
        )
    assert done.stdout.splitlines()[-1] == "3/3 completed without failures"
    assert done.stdout.count("loading model") == 4
    stamp = three.detail()["scorer"]["types"][GEOPHYS]
    assert stamp["note"] == NOTE
    assert len(stamp["model"]) == 64
    again = three.score()
    assert again.stdout.count("up to date") == 3
    assert "loading" not in again.stdout
    assert three.calls == [*["mesh", "clouds"] * 3, *passes]


@pytest.mark.parametrize(
    ("body", "text", "loads"),
    [
        (DIE, "worker exited without a result (SIGKILL)", 3),  # tried twice, then loaded for the next world
        ("import torch\nraise torch.OutOfMemoryError('CUDA out of memory')", "MemoryError: CUDA out of", 2),
        ("raise RuntimeError('CUDA error: an illegal memory access')", "DeviceFault: CUDA error", 2),
        ("time.sleep(600)", "timeout after 6s", 2),
        (
            "from scorer.estimates import EstimateError\nraise EstimateError('of old')",
            "EstimateError: of old",
            1,
        ),
        ("raise ValueError('bad frames')", None, 1),
        ("return Measurement({GEOPHYS + '_score': float('nan')})", None, 1),
    ],
)
def test_a_world_that_breaks_its_worker_costs_only_itself(
    three: Lab, body: str, text: str | None, loads: int
) -> None:
    body = body.replace("GEOPHYS", repr(GEOPHYS)).replace("\n", "\n    ")
    three.model(GEOPHYS, f"if '/2/' in str(subject.render):\n    {body}\nreturn fine")
    done = three.score("--timeout", "geophys=6")
    assert [three.reward(run).get(GEOPHYS) for run in RUNS] == [0.5, None if text else "error", 0.5]
    assert three.calls.count(f"load:{GEOPHYS}") == loads
    assert done.stdout.splitlines()[-1].startswith("3/3" if "nan" in body else "2/3")
    if text is not None:
        assert three.detail(RUNS[1])["infrastructure"][GEOPHYS].startswith(text)
    assert "geophys_dinov3.npz" not in results(three, RUNS[1])
    count = len(three.calls)
    three.score("--timeout", "geophys=6")
    assert (len(three.calls) == count) == (text is None)  # only faults of the machine are tried again


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ("raise OSError('broken file')", "model load failed: OSError: broken file"),
        ("time.sleep(600)", "model load failed: timeout after 4s"),
        (DIE, "model load failed: worker exited without a result (SIGKILL)"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_no_worlds_fault(three: Lab, load: str, text: str) -> None:
    three.model(SEMANTIC[0], load=load)
    three.model(SEMANTIC[1])
    done = three.score("--timeout", "model_load=4")
    assert done.returncode == 1
    for run in RUNS:
        assert three.detail(run)["infrastructure"] == {SEMANTIC[0]: text}
        assert three.reward(run) == {SEMANTIC[1]: 0.75}
    tries = 2 if load == DIE else 1
    assert three.calls.count(f"load:{SEMANTIC[0]}") == tries  # not once for every world
    three.model(SEMANTIC[0])
    assert three.score().returncode == 0
    assert "infrastructure" not in three.detail()
    assert three.calls.count(SEMANTIC[1]) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_scorer_that_is_stopped_in_a_pass_goes_on_there(three: Lab, number: signal.Signals) -> None:
    flag = three.root / "once"
    three.model(
        GEOPHYS,
        f"flag = Path({str(flag)!r})\nif '/2/' in str(subject.render) and not flag.exists():\n"
        "    flag.touch()\n    time.sleep(600)\nreturn fine",
    )
    three.model("uni3d")
    process = three.start()
    assert eventually(flag.exists, 60)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert three.reward(RUNS[0])[GEOPHYS] == 0.5
    assert GEOPHYS not in three.reward(RUNS[1])
    assert three.score().returncode == 0
    loaded = f"load:{GEOPHYS}"
    calls = ["clouds"] * 3 + [loaded, GEOPHYS, GEOPHYS] + [loaded, GEOPHYS, GEOPHYS]
    assert three.calls == [*calls, "load:uni3d", *["uni3d"] * 3]


def test_what_a_reading_rests_on(lab: Lab) -> None:
    for unit in (*SEMANTIC, "uni3d"):
        lab.model(unit)
    lab.add_run()
    lab.score()
    count = len(lab.calls)

    def new(*flags: str) -> list[str]:
        nonlocal count
        lab.score(*flags)
        count, before = len(lab.calls), count
        return [word for word in lab.calls[before:] if not word.startswith("load:")]

    assert new() == []
    lab.add_checkpoint(TIPSV2, b"other weights")
    assert new() == ["semantic_tips"]
    (lab.root / "data" / CASE / "estimates" / "semantic_dinov3.npz").write_bytes(b"prepared anew")
    assert new() == ["semantic_dinov3"]
    lab.add_checkpoint(UNI3D, b"other weights")
    assert new() == ["uni3d"]  # the clouds rest on no model
    assert new("--type", "uni3d", "--redo") == ["clouds", "uni3d"]
    (lab.root / RUN / "results" / "uni3d_clouds.npz").unlink()
    assert new() == []
    (lab.root / RUN / "results" / "uni3d.npz").unlink()
    assert new() == ["clouds", "uni3d"]
    (lab.root / "data" / CASE / "estimates" / "moge.npz").write_bytes(b"of no use on a synthetic case")
    assert new() == []


def test_clouds_that_fail_are_the_types_failure(lab: Lab) -> None:
    lab.model("uni3d")
    lab.metric("mesh")
    lab.add_run()
    path = lab.root / "metrics" / "lab_models.py"
    path.write_text(path.read_text().replace('    log("clouds")', "    raise ValueError('no covered pixel')"))
    done = lab.score()
    assert done.returncode == 1
    assert lab.reward()["uni3d_point_scene"] == "error"
    assert lab.detail()["causes"]["uni3d_point_scene"] == "empty_first_frame"
    assert lab.detail()["uni3d_failure"] == "ValueError: no covered pixel"
    assert lab.calls == ["mesh"]
    assert "loading" not in done.stdout
    assert lab.score().returncode == 1  # up to date, and still a failure
    assert lab.calls == ["mesh"]


def test_a_case_that_nobody_has_prepared_loads_no_model(lab: Lab) -> None:
    for unit in SEMANTIC:
        lab.model(unit, estimate=False)
    lab.add_run()
    assert lab.score().returncode == 0
    assert lab.calls == []
    assert lab.reward() == dict.fromkeys(SEMANTIC, "uncomputable")
    assert lab.detail()["causes"] == dict.fromkeys(SEMANTIC, "reference_empty")


def test_a_worlds_closed_gate_keeps_its_models_away(lab: Lab) -> None:
    lab.model(GEOPHYS)
    lab.add_run()
    (world(lab) / "render.mp4").unlink()
    assert lab.score().returncode == 1
    assert lab.reward() == {GEOPHYS: "error"}
    assert lab.calls == []


def missing_checkpoint(lab: Lab) -> str:
    (lab.store / DINOV3 / "model.safetensors").unlink()
    return f"scripts/download_checkpoints.py {lab.store} --only {DINOV3}"


def missing_package(lab: Lab) -> str:
    lab.model(GEOPHYS, requires=("numpy", "no_such_package"))
    return "package no_such_package is not installed; run: pip install"


@pytest.mark.parametrize("take", [missing_checkpoint, missing_package])
def test_a_missing_model_is_one_line_before_anything_starts(lab: Lab, take) -> None:  # type: ignore[no-untyped-def]
    lab.model(GEOPHYS)
    lab.metric("mesh")
    out = lab.add_run()
    text = take(lab)
    done = lab.score()
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {GEOPHYS}: ")
    assert text in lines[0]
    assert ALLOW in lines[0]
    assert not (out / "results").exists()
    assert lab.score("--type", "mesh").returncode == 0  # which needs none

    done = lab.score(ALLOW)
    assert done.returncode == 0
    assert set(lab.detail()["skipped"]) == {GEOPHYS}
    assert text in lab.detail()["skipped"][GEOPHYS]
    assert GEOPHYS not in lab.reward()
    assert lab.reward()["mesh_watertight"] == 0.5
    assert done.stdout.splitlines()[-1].startswith(f"left out for want of a model: {GEOPHYS}: ")
    assert text in done.stdout.splitlines()[-1]


def test_what_is_left_out_keeps_its_reading_until_it_is_measured_again(lab: Lab) -> None:
    for unit in (*SEMANTIC, GEOPHYS):
        lab.model(unit)
    lab.add_run()
    lab.score()
    before = lab.detail()
    missing_checkpoint(lab)
    assert lab.score(ALLOW, "--redo").returncode == 0
    assert set(lab.detail()["skipped"]) == {SEMANTIC[0], GEOPHYS}
    assert lab.reward() == {SEMANTIC[0]: 0.75, SEMANTIC[1]: 0.75, GEOPHYS: 0.5}
    assert lab.detail()["scorer"]["types"][GEOPHYS] == before["scorer"]["types"][GEOPHYS]
    assert "geophys_dinov3.npz" in results(lab)

    lab.add_checkpoint(DINOV3)
    lab.score("--type", "geophys")
    assert set(lab.detail()["skipped"]) == {SEMANTIC[0]}  # which this scoring was not about
    count = len(lab.calls)
    assert lab.score().returncode == 0
    assert "skipped" not in lab.detail()
    assert lab.reward()[SEMANTIC[0]] == 0.75
    assert len(lab.calls) == count  # up to date all along


def test_a_wrong_checkpoint_is_told_from_the_published_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.model(GEOPHYS)
    lab.add_run()
    monkeypatch.setattr(Lab, "env", property(lambda self: unverified_off(self)))
    done = lab.score()
    assert done.returncode == 2
    assert "has SHA-256" in done.stderr


def unverified_off(lab: Lab) -> dict[str, str]:
    import os

    repository = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(lab.root / "metrics"), repository])}
