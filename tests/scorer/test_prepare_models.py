"""``python -m scorer.prepare`` with the real estimators and small random checkpoints in the official layout.

CoTracker3 and MoGe-3 are the doubles where their packages are not installed.
"""

from __future__ import annotations

import os
import shutil
from itertools import islice
from pathlib import Path

import doubles
import numpy as np
import pytest
import tiny_depth
import tiny_models
import torch
import torchvision_cpu
from estimate_layout import LAYOUT, read
from one_thread import one_thread  # noqa: F401
from prepare_lab import PrepareLab

from scorer.analytic.grid import grid_queries, inside
from scorer.estimates import depth_estimate, flow_estimate, track_estimate
from scorer.estimates_features import geophys_estimate, moge_points, semantic_estimate
from scorer.estimators.dinov3 import DINOV3
from scorer.estimators.raft import RAFT
from scorer.estimators.tipsv2 import TIPSV2
from scorer.estimators.video_depth_anything import VIDEO_DEPTH_ANYTHING
from world.npz import write_archive
from world.video import frames, write_video

FRAMES = 4
REAL, SYNTHETIC = "real/clip_rigid", "synthetic/rigid"
pytestmark = pytest.mark.skipif(
    doubles.path_for("cotracker") is None or doubles.path_for("moge") is None,
    reason="the real packages do not load the doubles' checkpoints",
)


class RealLab(PrepareLab):
    """A lab that runs the program itself, with the doubles on the path."""

    @property
    def env(self) -> dict[str, str]:
        env = dict(super().env)
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(doubles.HERE)])
        return torchvision_cpu.environment(env)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, fixture_worlds: Path) -> RealLab:
    """Prepared: the first frames of a real clip with a mask, and of a synthetic one."""
    lab = RealLab(tmp_path_factory.mktemp("prepare") / "lab", real_models=True)
    store = lab.root / "checkpoints"
    shutil.rmtree(store)
    tiny_models.make(store)
    tiny_depth.write_depth(store)
    doubles.write_cotracker(store)
    doubles.write_moge(store)
    for case in (REAL, SYNTHETIC):
        images = list(islice(frames(fixture_worlds / "cases" / case / "reference.mp4"), FRAMES))
        lab.video(case).parent.mkdir(parents=True)
        write_video(lab.video(case), images, 24)
        lab.cases.append(case)
    mask = np.zeros((FRAMES, 120, 160), np.uint8)
    mask[:, 40:100, 30:90] = 1
    annotation = lab.root / "data" / REAL / "annotation" / "dynamic_mask.npz"
    annotation.parent.mkdir(parents=True)
    write_archive(annotation, {"mask": mask})
    done = lab.prepare()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "10 computed, 0 kept, 0 failed"
    return lab


def clip(lab: RealLab, case: str) -> np.ndarray:
    return np.stack(list(frames(lab.video(case))))


CPU = torch.device("cpu")


def test_layout(lab: RealLab) -> None:
    assert lab.files(REAL) == sorted(LAYOUT)
    assert lab.files(SYNTHETIC) == [
        name for name in sorted(LAYOUT) if name.startswith(("geophys", "semantic"))
    ]
    for case in (REAL, SYNTHETIC):
        for name in lab.files(case):
            arrays = read(lab.estimates(case) / name)
            assert arrays.get("stride", 1) == 1


def test_the_scorer_reads_them(lab: RealLab) -> None:
    directory = lab.estimates(REAL)
    with flow_estimate(directory) as flow, depth_estimate(directory) as depth:
        assert flow.flow_shape == (FRAMES - 1, 120, 160, 2)
        assert (depth.shape, depth.fps, depth.stored[0]) == ((FRAMES, 120, 160), 24.0, FRAMES)
    assert track_estimate(directory).visible.any()
    assert len(moge_points(directory))
    for case in (REAL, SYNTHETIC):
        for name in ("dinov3", "tips"):
            semantic_estimate(lab.estimates(case), name).require_video(FRAMES)
        assert geophys_estimate(lab.estimates(case), "dinov3").layer == 18


def test_flow_is_each_pairs_own(lab: RealLab) -> None:
    torchvision_cpu.usable()
    found = read(lab.estimates(REAL) / "flow.h5")
    images = clip(lab, REAL)
    raft = RAFT.load(CPU, lab.root / "checkpoints")
    alone = np.concatenate([raft.flow(images[start : start + 2]) for start in range(FRAMES - 1)])
    assert np.abs(alone).max() > 0.01
    np.testing.assert_allclose(found["flow"].astype(np.float32), alone, rtol=2e-3, atol=2e-3)
    assert found["valid"].all()
    assert (found["model"], found["iterations"]) == ("raft-large", 12)


def test_features(lab: RealLab) -> None:
    torchvision_cpu.usable()
    store = lab.root / "checkpoints"
    dinov3, tips = DINOV3.load(CPU, store), TIPSV2.load(CPU, store)
    for case in (REAL, SYNTHETIC):
        directory, images = lab.estimates(case), clip(lab, case)
        for name, model in (("dinov3", dinov3), ("tips", tips)):
            rows = np.concatenate([model.embed(image[None]) for image in images])
            found = read(directory / f"semantic_{name}.npz")["embeddings"]
            np.testing.assert_allclose(found, rows, rtol=1e-4, atol=1e-5)
        patches = np.concatenate([dinov3.patches(image[None], layer=18) for image in images])
        assert patches.shape[1:3] == (14, 14)
        mean = patches.astype(np.float64).mean(axis=(1, 2))
        found = read(directory / "geophys_dinov3.npz")["trajectory"]
        np.testing.assert_allclose(found, mean, rtol=1e-4, atol=1e-5)


def test_depth(lab: RealLab) -> None:
    found = read(lab.estimates(REAL) / "depth.h5")
    model = VIDEO_DEPTH_ANYTHING.load(CPU, lab.root / "checkpoints")
    maps = np.stack(list(model.disparity(iter(clip(lab, REAL)))))
    assert maps.max() > maps.min()
    np.testing.assert_allclose(found["disparity"].astype(np.float32), maps, rtol=2e-3, atol=1e-3)
    assert found["shape"].tolist() == [FRAMES, 120, 160]


def test_tracks_of_the_double(lab: RealLab) -> None:
    """The double moves every point by the shift of the clip's centre of brightness."""
    found = read(lab.estimates(REAL) / "tracks.npz")
    mask = np.zeros((120, 160), bool)
    mask[40:100, 30:90] = True
    queries = grid_queries(120, 160, mask=mask)
    assert (found["queries"] == queries).all()
    assert (found["on_mask"] == inside(queries[:, 1:].astype(float), mask)).all()
    weight = clip(lab, REAL).astype(np.float64).mean(axis=3)
    y, x = np.mgrid[:120, :160] + 0.5
    total = weight.sum(axis=(1, 2))
    centre = np.stack([(weight * x).sum(axis=(1, 2)) / total, (weight * y).sum(axis=(1, 2)) / total], axis=1)
    expected = queries[:, None, 1:] + (centre - centre[0])[None]
    np.testing.assert_allclose(found["tracks"], expected, atol=1e-3)
    assert found["model"] == "cotracker3-offline"
    assert found["tracking_resolution"].tolist() == [120, 160]


def test_points_of_the_double(lab: RealLab) -> None:
    """The double's depth is 2 and what red adds; unknown where a pixel is black."""
    found = read(lab.estimates(REAL) / "moge.npz")
    image = clip(lab, REAL)[0].astype(np.float64) / 255
    depth, known = 2 + image[..., 0], image.sum(axis=2) > 0
    assert (found["mask"] == known).all()
    assert np.isnan(found["points"][~known]).all()
    np.testing.assert_allclose(found["points"][known][:, 2], depth[known], rtol=1e-6)
    x = ((np.arange(160) + 0.5) / 160 - 0.5)[None] * depth
    np.testing.assert_allclose(found["points"][known][:, 0], x[known], rtol=1e-5, atol=1e-6)
    assert found["intrinsics"][0].tolist() == [1, 0, 0.5]


def test_a_second_run_loads_nothing(lab: RealLab) -> None:
    done = lab.prepare()
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 computed, 10 kept, 0 failed")
    assert "done in" not in done.stdout
