"""Steps before a metric: done once, each under its deadline, and their failures where they belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from scorer_lab import CASE, Lab


def reference(lab: Lab) -> Path:
    path = lab.root / "data" / CASE / "world"
    shutil.copytree(lab.world, path)
    return path


@pytest.fixture
def compared(lab: Lab) -> Lab:
    """Two metrics that rest on the registration, and one that does not."""
    lab.metric("scene_3d")
    lab.metric("occupancy")
    lab.metric("mesh")
    lab.add_run()
    return lab


def test_the_alignment_is_recorded(compared: Lab) -> None:
    reference(compared)
    compared.metric("scene_3d", "scene.registration; return fine")
    assert compared.score("--type", "scene_3d,mesh").returncode == 0
    assert compared.reward()["scene_3d"] == 0.5
    alignment = compared.detail()["alignment"]
    assert alignment["scale"] == pytest.approx(1.0)
    assert alignment["residual"] == pytest.approx(0.0, abs=1e-6)


def test_a_failed_step_is_an_error_of_every_type_that_needs_it(compared: Lab) -> None:
    world = reference(compared)
    camera = json.loads((world / "camera.json").read_text())
    away = json.loads(json.dumps(camera))
    away["extrinsic"][2][3] += 1000.0  # behind everything
    (world / "camera.json").write_text(json.dumps(away))
    done = compared.score()
    assert done.returncode == 1
    assert compared.reward() | {"mesh_watertight": 0} == {
        "scene_3d": "error", "occupancy_dtw": "error", "mesh_watertight": 0,
        "mesh_manifold": "uncomputable", "mesh_clean_faces": "uncomputable",
        "mesh_no_self_intersection": "uncomputable",
    }  # fmt: skip
    detail = compared.detail()
    assert detail["causes"]["scene_3d"] == detail["causes"]["occupancy_dtw"] == "empty_first_frame"
    assert "no covered pixel" in detail["registration_failure"]
    assert detail["scene_3d_failure"] == detail["occupancy_failure"] == detail["registration_failure"]
    assert compared.calls == ["mesh"]
    assert "scene_3d: registration: ValueError" in done.stderr

    (world / "camera.json").write_text(json.dumps(camera))
    assert compared.score("--type", "scene_3d,mesh").returncode == 0
    assert "registration_failure" not in compared.detail()
    assert compared.reward()["scene_3d"] == 0.5


def test_a_step_has_its_own_deadline(compared: Lab) -> None:
    reference(compared)
    done = compared.score("--type", "scene_3d,mesh", "--timeout", "registration=0.001")
    assert done.returncode == 1
    assert compared.reward()["scene_3d"] == "error"
    assert compared.detail()["registration_failure"] == "timeout after 0.001s"
    assert compared.reward()["mesh_watertight"] == 0.5


def test_a_broken_reference_world_is_the_operators_fault(compared: Lab) -> None:
    (reference(compared) / "meshes" / "1.npz").write_bytes(b"junk")
    compared.metric("dynamic_iou")
    done = compared.score()
    assert done.returncode == 1
    assert "scene_3d" not in compared.reward()
    assert "dynamic_iou" not in compared.reward()
    assert compared.reward()["mesh_watertight"] == 0.5
    noted = compared.detail()["infrastructure"]
    assert set(noted) == {"scene_3d", "occupancy", "dynamic_iou"}
    assert "not a ZIP archive" in noted["scene_3d"]
    assert compared.calls == ["mesh"]


def test_without_a_reference_world_nothing_is_prepared(compared: Lab) -> None:
    compared.metric("scene_3d", "return Measurement({}, vouched=frozenset())")
    assert compared.score("--type", "scene_3d").returncode == 0
    assert compared.reward() == {"scene_3d": "uncomputable"}
    assert compared.detail()["causes"] == {"scene_3d": "no_pairing"}


def test_more_time_for_a_step_is_another_chance(compared: Lab) -> None:
    reference(compared)
    assert compared.score("--type", "scene_3d", "--timeout", "registration=0.001").returncode == 1
    assert compared.reward()["scene_3d"] == "error"
    assert compared.score("--type", "scene_3d").returncode == 0
    assert compared.reward()["scene_3d"] == 0.5


def test_a_reference_liquid_that_cannot_be_followed_is_the_operators_fault(compared: Lab) -> None:
    world = reference(compared)
    (world / "dynamics" / "a.npz").unlink()
    cache = world / "solver" / "cache" / "config"
    cache.mkdir(parents=True)
    for frame in range(4):
        (cache / f"config_{frame:04}.uni").write_bytes(b"")
    manifest = {"cache": "cache", "fps": 24, "time_scale": 1, "metres_per_unit": 1, "domain_min": [0, 0, 0]}
    (world / "solver/manifest.json").write_text(json.dumps(manifest | {"frames": [0, 3], "liquid_ids": [1]}))
    compared.score("--type", "occupancy,mesh")
    assert "occupancy_dtw" not in compared.reward()
    assert "config_0000.uni" in compared.detail()["infrastructure"]["occupancy"]
    assert compared.reward()["mesh_watertight"] == 0.5
