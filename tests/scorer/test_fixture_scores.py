"""Every fixture world through the real program: the reference scorer's values, well inside the tolerances."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scorer_lab import strict_json

from contract.metrics import BY_KEY

ALLOW = "--allow-missing-models"
"""Models have tests of their own."""
LOOSE = 1e-3
"""A tenth of the published tolerances or less; observed differences are below 1e-6."""


@pytest.fixture(scope="module")
def scored(fixture_worlds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fixtures")
    for tree in ("cases", "data", "runs"):
        shutil.copytree(fixture_worlds / tree, root / tree)
    expected = json.loads((fixture_worlds / "expected.json").read_text())
    entries = [
        {"case": "/".join(run.split("/")[1:3]), "world": f"{run}/workspace/world", "out": run}
        for run in expected
    ]
    (root / "manifest.json").write_text(json.dumps(entries))
    roots = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(root / name))]
    command = [sys.executable, "-m", "scorer", "--manifest", str(root / "manifest.json"), *roots, ALLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "17/17 completed without failures" in done.stdout
    return root


@pytest.mark.slow
def test_every_value_of_the_reference(scored: Path, fixture_worlds: Path) -> None:
    expected: dict[str, dict[str, Any]] = json.loads((fixture_worlds / "expected.json").read_text())
    wrong = []
    for run, values in expected.items():
        reward = strict_json(scored / run / "results" / "reward.json")
        for key, value in values.items():
            found = reward.get(key)
            same = found == value if isinstance(value, str) else found == pytest.approx(value, abs=LOOSE)
            if not same:
                wrong.append((run, key, value, found))
    assert not wrong


@pytest.mark.slow
def test_every_key_has_a_reading(scored: Path, fixture_worlds: Path) -> None:
    models = ("semantic", "geophys", "uni3d")
    built = {key for key, metric in BY_KEY.items() if metric.type not in models}
    for run in json.loads((fixture_worlds / "expected.json").read_text()):
        assert set(strict_json(scored / run / "results" / "reward.json")) == built


@pytest.mark.slow
def test_detail_fields_of_the_reference(scored: Path, fixture_worlds: Path) -> None:
    """Counts and lists to the digit, measurements closely."""
    expected: dict[str, dict[str, Any]] = json.loads((fixture_worlds / "expected_detail.json").read_text())
    exact = ("dynamic_gt", "dynamic_pred", "dynamic_band_px", "mesh_components", "mesh_failures",
             "trajectory_paths", "trajectory_rows", "dynamics_frames", "dynamics_paths",
             "interpenetration_components", "interpenetration_frames", "track2d_queries", "track2d_moving",
             "track2d_trackable", "flow_frames", "flow_frame_status", "depth_frames",
             "depth_resolution")  # fmt: skip
    close = ("trajectory_h", "scene_error", "occupancy_dtw_error", "track2d_dtw_error", "emd_step_score")
    compared = 0
    for run, fields in expected.items():
        detail = strict_json(scored / run / "results" / "reward.detail.json")
        for key in exact:
            if key in fields:
                assert detail[key] == fields[key], (run, key)
                compared += 1
        for key in close:
            if fields.get(key) is not None:
                assert detail[key] == pytest.approx(fields[key], abs=1e-5, rel=1e-6), (run, key)
                compared += 1
        if "alignment" in fields:
            assert detail["alignment"]["selected"] == fields["alignment"]["selected"], run
            assert detail["alignment"]["scale"] == pytest.approx(fields["alignment"]["scale"], rel=1e-5), run
    assert compared > 150


@pytest.mark.slow
def test_a_second_scoring_finds_everything_up_to_date(scored: Path) -> None:
    roots = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(scored / name))]
    command = [sys.executable, "-m", "scorer", "--manifest", str(scored / "manifest.json"), *roots, ALLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("up to date") == 17
    assert "done" not in done.stdout
