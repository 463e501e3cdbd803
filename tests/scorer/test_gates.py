from __future__ import annotations

import os
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from base_world import FPS, FRAMES, HEIGHT, WIDTH

from contract.states import INVALID_WORLD, NO_VIDEO, NO_WORLD, UNDECODABLE_VIDEO, VIDEO_MISMATCH
from scorer.gates import reference_shape, video_gate, world_gate
from scorer.messages import ReferenceFault
from world.video import probe, write_video

SHAPE = (FRAMES, HEIGHT, WIDTH, Fraction(FPS))


@pytest.fixture
def world(tmp_path: Path, base_world: Path) -> Path:
    shutil.copytree(base_world.parent, tmp_path / "workspace")
    return tmp_path / "workspace" / "world"


def gate(world: Path, *, sanity: bool = False):  # type: ignore[no-untyped-def]
    script = None if sanity else world.parent / "solution" / "build.sh"
    return world_gate(world, script, probe(world / "render.mp4"))


def test_both_gates_open_on_a_sound_world(world: Path) -> None:
    record, info = video_gate(world / "render.mp4", SHAPE)
    assert record.ok
    assert record.record() == {"ok": True, "error": None, "detail": []}
    assert info is not None
    assert (info.frames, info.height, info.width, info.fps) == SHAPE
    assert gate(world).ok


def test_no_video(world: Path) -> None:
    render = world / "render.mp4"
    render.unlink()
    record, info = video_gate(render, SHAPE)
    assert (record.cause, info) == (NO_VIDEO, None)
    assert "render.mp4" in record.detail[0]
    os.mkfifo(render)  # opening it would block
    assert video_gate(render, SHAPE)[0].cause == NO_VIDEO


def test_a_link_to_a_video_is_a_video(world: Path, base_world: Path) -> None:
    render = world / "render.mp4"
    render.unlink()
    render.symlink_to(base_world / "render.mp4")
    assert video_gate(render, SHAPE)[0].ok
    assert gate(world).cause == INVALID_WORLD


@pytest.mark.parametrize("keep", [0, 10, 700])
def test_undecodable_video(world: Path, keep: int) -> None:
    render = world / "render.mp4"
    render.write_bytes(render.read_bytes()[:keep] + b"junk" * 8)
    record, info = video_gate(render, SHAPE)
    assert (record.cause, info) == (UNDECODABLE_VIDEO, None)
    assert 0 < len(record.detail[0]) <= 2000


@pytest.mark.parametrize(
    ("frames", "height", "width", "fps"),
    [(FRAMES + 1, HEIGHT, WIDTH, FPS), (FRAMES, HEIGHT + 2, WIDTH, FPS), (FRAMES, HEIGHT, WIDTH, FPS + 1)],
)
def test_video_mismatch(world: Path, frames: int, height: int, width: int, fps: int) -> None:
    images = (np.zeros((height, width, 3), np.uint8) for _ in range(frames))
    write_video(world / "render.mp4", images, fps)
    record, info = video_gate(world / "render.mp4", SHAPE)
    assert record.cause == VIDEO_MISMATCH
    assert info is not None
    assert (info.frames, info.height, info.width, info.fps) == (frames, height, width, fps)
    assert "reference.mp4" in record.detail[0]


def test_no_world_names_everything_that_is_missing_in_order(world: Path) -> None:
    (world / "camera.json").unlink()
    (world.parent / "solution" / "build.sh").unlink()
    shutil.rmtree(world / "meshes")
    shutil.rmtree(world / "dynamics")
    record = gate(world)
    assert record.cause == NO_WORLD
    assert record.detail == ("world/camera.json", "solution/build.sh", "world/meshes/", "world/dynamics/")


def test_reference_data_needs_no_solution(world: Path) -> None:
    shutil.rmtree(world.parent / "solution")
    assert gate(world).detail == ("solution/build.sh",)
    assert gate(world, sanity=True).ok


def test_links_close_the_gate_before_the_format_is_looked_at(world: Path) -> None:
    (world / "extra").symlink_to("/etc")
    (world / "camera.json").write_text("junk")
    record = gate(world)
    assert record.cause == INVALID_WORLD
    assert len(record.detail) == 1
    assert "world/extra" in record.detail[0]


def test_every_violation_is_reported(world: Path) -> None:
    (world / "camera.json").write_text("junk")
    (world / "meshes" / "1.npz").write_bytes(b"junk")
    record = gate(world)
    assert record.cause == INVALID_WORLD
    assert any(line.startswith("camera.json") for line in record.detail)
    assert any(line.startswith("meshes/1.npz") for line in record.detail)


def test_an_unreadable_reference_is_no_fault_of_the_submission(tmp_path: Path) -> None:
    (tmp_path / "reference.mp4").write_bytes(b"junk")
    with pytest.raises(ReferenceFault):
        reference_shape(tmp_path / "reference.mp4")
    assert ReferenceFault.infrastructure
