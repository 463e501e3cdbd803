"""Whole worlds by every metric with a reference world: the best score for themselves, less for worse ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from scorer.metrics import dynamic_iou, dynamics, occupancy, scene_3d, trajectory
from scorer.scene import Scene

METRICS = {
    "dynamic_iou": dynamic_iou,
    "scene_score": scene_3d,
    "trajectory_dtw_score": trajectory,
    "emd_step_score": dynamics,
    "occupancy_dtw_score": occupancy,
}
Spoil = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _fewer_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand paths show the same in a fraction of the time."""
    monkeypatch.setattr(import_module("scorer.geometry.sampling.paths"), "ROWS", 1024)


def scores(fixture_worlds: Path, kind: str, world: Path | None = None) -> dict[str, float]:
    case = f"synthetic/{kind}"
    reference = fixture_worlds / "data" / case / "world"
    scene = Scene(
        case=case,
        world_path=world or reference,
        reference_path=reference,
        annotation_path=None,
        estimates_path=fixture_worlds / "none",
        video_path=fixture_worlds / "cases" / case / "reference.mp4",
    )
    return {key: metric.measure(scene).detail[key] for key, metric in METRICS.items()}


def change(path: Path, members: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> None:
    with np.load(path) as archive:
        held = {name: archive[name] for name in archive.files}
    np.savez(path, **members(held))


def noise(amount: float) -> Spoil:
    def add(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        g = np.random.default_rng(0)
        return {
            name: (array + amount * g.normal(size=array.shape)).astype(np.float32)
            if name.startswith(("vertices_", "pos"))
            else array
            for name, array in held.items()
        }

    def spoil(world: Path) -> None:
        for path in sorted((world / "meshes").iterdir()) + sorted((world / "dynamics").iterdir()):
            change(path, add)

    return spoil


def delay(frames: int) -> Spoil:
    def late(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "pos" in held:
            order = np.maximum(np.arange(len(held["pos"])) - frames, 0)
            return held | {"pos": held["pos"][order]}
        return {name: held[f"{name[:-4]}{max(int(name[-4:]) - frames, 0):04d}"] for name in held}

    def spoil(world: Path) -> None:
        for path in sorted((world / "meshes").iterdir()) + sorted((world / "dynamics").iterdir()):
            change(path, late)

    return spoil


def drop(*objects: tuple[int, str]) -> Spoil:
    def spoil(world: Path) -> None:
        for number, name in objects:
            (world / "meshes" / f"{number}.npz").unlink()
            (world / "dynamics" / f"{name}.npz").unlink()

    return spoil


@pytest.mark.parametrize("kind", ["cloth", "tet"])
def test_a_world_is_as_good_as_itself(fixture_worlds: Path, kind: str) -> None:
    """Rigid, granular and liquid ones: test_sanity, test_liquid_scores."""
    assert min(scores(fixture_worlds, kind).values()) >= 0.999


CLOTH, GRAINS = (7, "cloth"), (4, "grains")


@pytest.mark.parametrize(
    ("kind", "spoilers", "blind"),
    [
        ("cloth", [noise(0.02), noise(0.1)], set()),
        ("cloth", [delay(3), delay(8)], {"scene_score"}),
        ("mixed", [drop(CLOTH), drop(CLOTH, GRAINS)], set()),
    ],
    ids=["noise", "delay", "dropped objects"],
)
def test_scores_fall(
    fixture_worlds: Path, tmp_path: Path, kind: str, spoilers: list[Spoil], blind: set[str]
) -> None:
    found = []
    for number, spoil in enumerate(spoilers):
        world = tmp_path / str(number)
        shutil.copytree(fixture_worlds / "data" / "synthetic" / kind / "world", world)
        spoil(world)
        found.append(scores(fixture_worlds, kind, world))
    for key in METRICS:
        row = [1.0, *(each[key] for each in found)]
        if key in blind:
            assert min(row) > 0.999, key
        else:
            assert all(better > worse for better, worse in pairwise(row)), (key, row)
