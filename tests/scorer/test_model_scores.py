"""From a video to the scores, with tiny random checkpoints in the official layouts: prepare, then score."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scorer_lab import strict_json

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import make
from tiny_uni3d import write_uni3d
from torchvision_cpu import environment

from contract.checkpoint_store import UNVERIFIED
from contract.checkpoints import DINOV3, TIPSV2
from world.video import frames, probe, write_video

REAL, SYNTHETIC = "real/clip_rigid", "synthetic/rigid"
SELF, NEGATIVE, SYNTHETIC_SELF = f"runs/{REAL}/self/1", f"runs/{REAL}/noisy/1", f"runs/{SYNTHETIC}/self/1"
RUNS = (SELF, NEGATIVE, SYNTHETIC_SELF)
TYPES = "semantic,geophys,uni3d"


def run(root: Path, program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    trees = ("cases", "data", "checkpoints", *(["runs"] if program == "scorer" else []))
    roots = [part for name in trees for part in (f"--{name}", str(root / name))]
    command = [sys.executable, "-m", program, "--manifest", str(root / "manifest.json"), *roots, *flags]
    env = environment() | {UNVERIFIED: "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800, check=False)


@pytest.fixture(scope="module")
def scored(fixture_worlds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    entries = []
    for name in RUNS:
        case = "/".join(name.split("/")[1:3])
        for tree in (f"cases/{case}", f"data/{case}", name):
            shutil.copytree(fixture_worlds / tree, root / tree, dirs_exist_ok=True)
        entries.append({"case": case, "world": f"{name}/workspace/world", "out": name})
    (root / "manifest.json").write_text(json.dumps(entries))
    render = root / NEGATIVE / "workspace" / "world" / "render.mp4"
    write_video(render, [255 - image for image in frames(render)], probe(render).fps)
    make(root / "checkpoints", DINOV3, TIPSV2)
    write_uni3d(root / "checkpoints")
    done = run(root, "scorer.prepare", "--only", "semantic,geophys")
    assert done.returncode == 0, done.stderr
    # MoGe's package is in no registry: points as it would give them, of a wavy wall.
    rows, columns = np.mgrid[0:60, 0:80].astype(np.float32) / 40
    points = np.stack([columns, rows, 3 + np.sin(3 * columns) * np.cos(2 * rows)], axis=2)
    mask = np.ones((60, 80), bool)
    np.savez(root / "data" / REAL / "estimates" / "moge.npz", points=points.astype(np.float32), mask=mask)
    done = run(root, "scorer", "--type", TYPES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loading model") == 4
    assert done.stdout.splitlines()[-1] == "3/3 completed without failures"
    return root


def reward(root: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = strict_json(root / name / "results" / "reward.json")
    return found


@pytest.mark.slow
def test_a_video_equals_itself(scored: Path) -> None:
    for name in (SELF, SYNTHETIC_SELF):
        found = reward(scored, name)
        assert (found["semantic_dinov3"], found["semantic_tips"], found["geophys_dinov3"]) == (1.0, 1.0, 1.0)
    assert reward(scored, SYNTHETIC_SELF)["uni3d_point_scene"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_another_video_does_not(scored: Path) -> None:
    found = reward(scored, NEGATIVE)
    for key in ("semantic_dinov3", "semantic_tips", "geophys_dinov3"):
        value = found[key]
        assert isinstance(value, float)
        assert 0.0 <= value < 0.9999


@pytest.mark.slow
def test_each_kind_has_its_own_uni3d_reading(scored: Path) -> None:
    real, synthetic = reward(scored, SELF), reward(scored, SYNTHETIC_SELF)
    assert isinstance(real["uni3d_moge_scene"], float)
    assert real["uni3d_point_scene"] == synthetic["uni3d_moge_scene"] == "not_applicable"
    with np.load(scored / SELF / "results" / "uni3d.npz") as file:
        assert set(file.files) == {"submission_scene", "reference_moge_scene"}
        cosine = float(file["submission_scene"].astype(float) @ file["reference_moge_scene"].astype(float))
    detail = strict_json(scored / SELF / "results" / "reward.detail.json")
    assert detail["uni3d_moge_scene"] == pytest.approx(cosine, abs=1e-7)
    assert real["uni3d_moge_scene"] == pytest.approx((1 + cosine) / 2, abs=1e-7)
    with np.load(scored / SYNTHETIC_SELF / "results" / "uni3d_clouds.npz") as file:
        assert set(file.files) == {"submission_scene", "point_scene"}


@pytest.mark.slow
def test_arrays_and_details_are_what_the_numbers_are_made_of(scored: Path) -> None:
    results = scored / NEGATIVE / "results"
    detail = strict_json(results / "reward.detail.json")
    for name in ("dinov3", "tips"):
        key = f"semantic_{name}"
        with np.load(results / f"embeddings_{name}.npz") as ours:
            with np.load(scored / "data" / REAL / "estimates" / f"semantic_{name}.npz") as theirs:
                a, b = ours["render"].astype(float), theirs["embeddings"].astype(float)
            assert len(ours["render"]) == detail["semantic_frames"] == len(detail["semantic_per_frame"][key])
            expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            assert ours["cosine"] == pytest.approx(expected, abs=1e-6)
        assert detail[key] == pytest.approx(expected.mean(), abs=1e-6)
    assert detail["geophys_dinov3_signals"]["layer"] == 18
    with np.load(results / "geophys_dinov3.npz") as file:
        assert file["render"].shape[0] == detail["semantic_frames"]
        assert int(file["layer"]) == 18


@pytest.mark.slow
def test_a_second_scoring_finds_everything_up_to_date(scored: Path) -> None:
    done = run(scored, "scorer", "--type", TYPES)
    assert done.returncode == 0
    assert done.stdout.count("up to date") == 3
    assert "loading model" not in done.stdout


@pytest.mark.slow
def test_models_from_another_store_ask_for_new_estimates(scored: Path) -> None:
    make(scored / "checkpoints", TIPSV2, seed=1)
    done = run(scored, "scorer", "--type", "semantic")
    assert done.returncode == 1
    assert done.stderr.count("made with another checkpoint: prepare the case again") == 3
    assert done.stdout.count("loading model") == 1
    found = reward(scored, SELF)
    assert "semantic_tips" not in found  # the operator's fault: no reading
    assert found["semantic_dinov3"] == 1.0
