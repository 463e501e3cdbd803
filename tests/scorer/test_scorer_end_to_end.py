"""``python -m scorer`` with the real metrics: fixture worlds, and worlds that mean no good."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from base_world import VERTICES, edit
from scorer_lab import CASE, Lab, strict_json

from contract.states import STATES


def score(root: Path, entries: list[dict[str, str]], *flags: str) -> subprocess.CompletedProcess[str]:
    manifest = root / "manifest.json"
    manifest.write_text(json.dumps(entries))
    roots = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(root / name))]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "scorer", "--manifest", str(manifest), *roots, *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_fixture_worlds_get_the_reference_values(tmp_path: Path, fixture_worlds: Path) -> None:
    runs = ["runs/real/clip_rigid/late/1", "runs/synthetic/mixed/nocloth/1"]
    entries = []
    for run in runs:
        case = "/".join(run.split("/")[1:3])
        for tree in (f"cases/{case}", f"data/{case}", run):
            shutil.copytree(fixture_worlds / tree, tmp_path / tree)
        entries.append({"case": case, "world": f"{run}/workspace/world", "out": run})
    done = score(tmp_path, entries, "--jobs", "2", "--type", "dynamic_iou,mesh")
    assert done.returncode == 0, done.stderr
    expected = json.loads((fixture_worlds / "expected.json").read_text())
    for run in runs:
        reward = strict_json(tmp_path / run / "results" / "reward.json")
        assert len(reward) == 5
        for key in reward.keys() & expected[run].keys():
            tolerance = 0.002 if key == "dynamic_iou" else 1e-4
            assert reward[key] == pytest.approx(expected[run][key], abs=tolerance)


def bomb(world: Path) -> None:
    with zipfile.ZipFile(world / "meshes" / "1.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vertices_0000.npy", b"\0" * 50_000_000)


def pickled(world: Path) -> None:
    with zipfile.ZipFile(world / "meshes" / "1.npz", "w") as archive:
        archive.writestr("vertices_0000.npy", pickle.dumps(["boom"]))


def not_finite(world: Path) -> None:
    edit(world / "meshes" / "1.npz", {"vertices_0001": np.full_like(VERTICES, np.nan)})


def truncated(world: Path) -> None:
    path = world / "meshes" / "1.npz"
    path.write_bytes(path.read_bytes()[:200])


def far_away(world: Path) -> None:
    for path in (world / "meshes").iterdir():
        edit(path, {f"vertices_{frame:04d}": VERTICES * np.float32(1e30) for frame in range(4)})


def a_pipe(world: Path) -> None:
    (world / "camera.json").unlink()
    os.mkfifo(world / "camera.json")


def a_pipe_of_meshes(world: Path) -> None:
    os.mkfifo(world / "meshes" / "7.npz")


def deep_json(world: Path) -> None:
    (world / "camera.json").write_text("[" * 200_000)


def no_meshes(world: Path) -> None:
    for path in (world / "meshes").iterdir():
        path.unlink()


@pytest.mark.slow
def test_hostile_worlds_get_states_and_no_traceback(lab: Lab) -> None:
    shutil.copytree(lab.world, lab.root / "data" / CASE / "world")
    spoilers: list[Callable[[Path], None]] = [
        bomb, pickled, not_finite, truncated, far_away, a_pipe, a_pipe_of_meshes, deep_json, no_meshes
    ]  # fmt: skip
    runs = {f"runs/{CASE}/{spoil.__name__}/1": spoil for spoil in spoilers}
    for run, spoil in runs.items():
        spoil(lab.add_run(run) / "workspace" / "world")
    sound = f"runs/{CASE}/sound/1"
    lab.add_run(sound)
    done = score(lab.root, lab.entries, "--jobs", "2", "--task-timeout", "120", "--type", "dynamic_iou,mesh")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert "infrastructure" not in done.stderr
    for run in runs:
        reward = strict_json(lab.root / run / "results" / "reward.json")
        strict_json(lab.root / run / "results" / "reward.detail.json")
        assert len(reward) == 5
        assert all(value in STATES or 0 <= value <= 1 for value in reward.values())
        if runs[run] is not far_away:
            assert set(reward.values()) == {"error"}, run
    assert lab.reward(sound)["dynamic_iou"] == 1.0
    assert lab.reward(sound)["mesh_watertight"] == 1.0
