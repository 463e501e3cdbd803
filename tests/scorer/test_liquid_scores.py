"""``python -m scorer`` on a world whose only moving matter is a liquid without identity."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mantaflow import liquid_world
from scorer_lab import strict_json
from vdb_helper import built_helper

from scorer.liquid import helper, store
from scorer.registry import BUILT

CASE = "synthetic/drop"
TYPES = [name for name in ("dynamic_iou", "trajectory", "dynamics", "occupancy") if name in BUILT]
KEYS = {"trajectory": "trajectory_dtw", "dynamics": "emd_step", "occupancy": "occupancy_dtw"}


def score(
    root: Path,
    world: Path,
    run: str,
    *,
    program: Path | None = None,
    types: Sequence[str] = TYPES,
    fine: bool = True,
) -> dict[str, Any]:
    """Score a copy of ``world`` as a run; its rewards. fine : whether nothing is to fail."""
    workspace = root / run / "workspace"
    shutil.copytree(world, workspace / "world")
    (workspace / "solution").mkdir()
    build = workspace / "solution" / "build.sh"
    build.write_text("#!/bin/sh\n")
    build.chmod(0o755)
    manifest = root / "manifest.json"
    manifest.write_text(json.dumps([{"case": CASE, "world": f"{run}/workspace/world", "out": run}]))
    roots = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(root / name))]
    env = {**os.environ, helper.VARIABLE: str(program or built_helper()), store.VARIABLE: str(root / "cache")}
    command = [sys.executable, "-m", "scorer", "--manifest", str(manifest), *roots, "--type", ",".join(types)]
    cwd = Path(__file__).parents[2]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == (0 if fine else 1), done.stderr
    reward: dict[str, Any] = strict_json(root / run / "results" / "reward.json")
    return reward


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = liquid_world(tmp_path / "data" / CASE / "world", frames=6)
    video = tmp_path / "cases" / CASE / "reference.mp4"
    video.parent.mkdir(parents=True)
    shutil.copy(path / "render.mp4", video)
    return path


def test_itself_and_worse(tmp_path: Path, reference: Path) -> None:
    itself = score(tmp_path, reference, f"runs/{CASE}/itself/1")
    assert itself["dynamic_iou"] == 1
    keys = [KEYS[name] for name in TYPES if name in KEYS]
    for key in keys:
        assert itself[key] == pytest.approx(1, abs=1e-3), key
    still = liquid_world(tmp_path / "still", frames=6, speed=1e-3)
    # A delivered file of tracks, perfect ones, changes nothing.
    forged = np.stack([np.full((8, 3), 1.0 + 0.02 * t, np.float32) for t in range(6)])
    np.savez(still / "solver" / "tracers.npz", pos=forged, ids=np.array([5], np.uint16))
    worse = score(tmp_path, still, f"runs/{CASE}/still/1")
    for key in keys:
        assert worse[key] is not None, key
        assert worse[key] < itself[key], key
    assert len(list((tmp_path / "cache" / "tracers").glob("*.npz"))) == (2 if keys else 0)


@pytest.mark.parametrize("file", ["config/config_0002.uni", "data/vel_0003.uni"])
def test_an_unreadable_bake_is_an_error_of_all_that_asks_what_moves(
    tmp_path: Path, reference: Path, file: str
) -> None:
    spoiled = liquid_world(tmp_path / "spoiled", frames=6)
    (spoiled / "solver" / "cache" / file).write_bytes(b"junk")
    run = f"runs/{CASE}/spoiled/1"
    types = ("dynamic_iou", "scene_3d", "trajectory", "occupancy", "mesh", "interpenetration")
    reward = score(tmp_path, spoiled, run, types=types, fine=False)
    assert {key for key, value in reward.items() if value == "error"} == {
        "dynamic_iou", "scene_3d", "trajectory_dtw", "occupancy_dtw",
    }  # fmt: skip
    detail = strict_json(tmp_path / run / "results" / "reward.detail.json")
    assert detail["causes"]["dynamic_iou"] == detail["causes"]["scene_3d"] == "metric_failure"
    for name in ("dynamic_iou_failure", "registration_failure"):
        assert detail[name].startswith(f"WorldError: solver/cache/{file}: ")


def test_without_the_helper_nothing_counts_as_worst(tmp_path: Path, reference: Path) -> None:
    run = f"runs/{CASE}/lost/1"
    reward = score(tmp_path, reference, run, program=tmp_path / "none", fine=False)
    assert reward == {}
    detail = (tmp_path / run / "results" / "reward.detail.json").read_text()
    assert "scripts/build_vdb.sh" in detail
