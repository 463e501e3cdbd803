"""``score.py --sanity`` and perfect copies, through the real programs: as good as it gets on every kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from estimates import write_estimates
from scorer_lab import strict_json

from scorer.metrics.dynamic_iou import moving_masks
from world.reader import World

REPOSITORY = Path(__file__).parents[2]
KINDS = ("rigid", "grain")
"""Of the fixture worlds; the others take longer and no other way."""
COPY = "copy-none-none/1"
SIMILAR = {"dynamic_iou", "scene_3d", "trajectory_dtw", "emd_step", "occupancy_dtw"}


def hang_backdrop(path: Path) -> None:
    """A wall behind everything: pixels without geometry cost depth its full error, however good the rest."""
    with World(path) as world:
        corners = np.array([(-1, -1, 1), (2, -1, 1), (2, 2, 1), (-1, 2, 1)]) * (world.width, world.height, 1)
        rays = corners @ np.linalg.inv(world.intrinsics).T
        wall = (100 * rays @ world.extrinsic[:3, :3].T + world.extrinsic[:3, 3]).astype(np.float32)
        faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
        members = {}
        for frame in range(world.frames):
            members |= {f"vertices_{frame:04d}": wall, f"faces_{frame:04d}": faces}
    np.savez(path / "meshes" / "900.npz", **members)


@pytest.fixture
def tree(tmp_path: Path, fixture_worlds: Path) -> Path:
    """Cases, reference worlds, a real case made from a known world, and a perfect copy of each."""
    jobs = []
    known = fixture_worlds / "data" / "synthetic" / "rigid" / "world"
    for case in [*(f"synthetic/{kind}" for kind in KINDS), "real/known"]:
        source = known.parent if case.startswith("real") else fixture_worlds / "data" / case
        video = tmp_path / "cases" / case / "reference.mp4"
        video.parent.mkdir(parents=True)
        shutil.copy(source / "world" / "render.mp4", video)
        workspace = tmp_path / "runs" / case / COPY / "workspace"
        shutil.copytree(source / "world", workspace / "world")
        (workspace / "solution").mkdir()
        (workspace / "solution" / "build.sh").write_text("#!/bin/sh\n")
        (workspace.parent / "run.json").write_text(json.dumps({"state": "done"}))
        if case.startswith("real"):
            hang_backdrop(workspace / "world")
        else:
            shutil.copytree(source / "world", tmp_path / "data" / case / "world")
        jobs.append(f'[[job]]\ncase = "{case}"\nagent = "copy"\nmodel = "none"\neffort = "none"\n')
    prepared = tmp_path / "data" / "real" / "known"
    with World(tmp_path / "runs" / "real" / "known" / COPY / "workspace" / "world") as world:
        masks = np.stack(list(moving_masks(world)))
        write_estimates(prepared / "estimates", world, count=400)
    (prepared / "annotation").mkdir()
    np.savez_compressed(prepared / "annotation" / "dynamic_mask.npz", mask=masks.astype(np.uint8))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "jobs.toml").write_text("".join(jobs))
    roots = "".join(f'{name}_root = "{tmp_path / name}"\n' for name in ("cases", "data", "runs"))
    scorer = f'[scorer]\njobs = 1\ncheckpoints = "{tmp_path / "checkpoints"}"\n'
    (tmp_path / "runtime.toml").write_text(
        f'backend = "host"\n{roots}[agent.copy]\ncommand = ["true"]\n{scorer}'
    )
    return tmp_path


@pytest.mark.slow
def test_every_reference_is_as_good_as_itself(tree: Path) -> None:
    types = "dynamic_iou,scene_3d,trajectory,dynamics,occupancy,flow,track2d,depth"
    command = [
        sys.executable, "harness/runtime/score.py", "--sanity", "--type", types,
        "--jobs", str(tree / "jobs.toml"), "--runtime", str(tree / "runtime.toml"),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    places = [tree / "data" / "synthetic" / kind / "sanity" for kind in KINDS]
    places += [tree / "runs" / "synthetic" / kind / COPY for kind in KINDS]
    for place in places:
        reward = strict_json(place / "results" / "reward.json")
        for key in SIMILAR:
            assert reward[key] >= 0.999, (place, key)
        assert reward["depth_error"] == reward["flow_distribution"] == "not_applicable"
    reward = strict_json(tree / "runs" / "real" / "known" / COPY / "results" / "reward.json")
    for key in ("dynamic_iou", "flow_distribution", "track2d_dtw"):
        assert reward[key] >= 0.999, key
    assert reward["depth_error"] == pytest.approx(0, abs=0.002)  # disparity is stored in half precision
