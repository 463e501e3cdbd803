"""A case's own world: what would spoil scores is refused, what does no harm is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from base_world import FRAMES, HEIGHT, WIDTH, build_base_world, edit, load

from world.validation import check_reference
from world.video import write_video

SHAPE = (FRAMES, HEIGHT, WIDTH)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("reference") / "workspace")


@pytest.fixture
def world(tmp_path: Path, sound: Path) -> Path:
    shutil.copytree(sound, tmp_path / "world")
    return tmp_path / "world"


def video(world: Path, frames: int = FRAMES, height: int = HEIGHT, width: int = WIDTH, fps: int = 24) -> None:
    write_video(world / "render.mp4", (np.zeros((height, width, 3), np.uint8) for _ in range(frames)), fps)


def faults(world: Path) -> list[str]:
    return [f"{found.name}: {found.field}" for found in check_reference(world, SHAPE).violations]


def test_a_sound_world_and_its_facts(world: Path) -> None:
    found = check_reference(world, SHAPE)
    assert found.violations == []
    assert found.render is not None
    assert found.render.shape == SHAPE


def still(world: Path) -> None:
    """Nothing moves, and the unpacker left the empty directory out."""
    shutil.rmtree(world / "dynamics")
    first = load(world / "meshes/1.npz")["vertices_0000"]
    edit(world / "meshes/1.npz", {f"vertices_{frame:04d}": first for frame in range(FRAMES)})


def linked(world: Path) -> None:
    """As a store of data sets lays its files out."""
    store = world.parent / "store"
    store.mkdir()
    for number, name in enumerate(("camera.json", "render.mp4", "meshes/1.npz", "dynamics/a.npz")):
        (world / name).rename(store / str(number))
        (world / name).symlink_to(store / str(number))


@pytest.mark.parametrize(
    "change",
    [
        still,
        linked,
        lambda world: video(world, fps=12),
        lambda world: (world / "notes.txt").write_text("by the maintainers"),
        lambda world: edit(world / "meshes/2.npz", {k: v.astype(np.float64) if k[0] == "v" else v
                                                    for k, v in load(world / "meshes/2.npz").items()}),
    ],
)  # fmt: skip
def test_what_does_no_harm(world: Path, change: Callable[[Path], object]) -> None:
    change(world)
    assert faults(world) == []


def dead(world: Path) -> None:
    pos = load(world / "dynamics/a.npz")["pos"].copy()
    pos[:, 1] = np.nan
    edit(world / "dynamics/a.npz", {"pos": pos})


def short(world: Path) -> None:
    edit(world / "dynamics/a.npz", {"pos": load(world / "dynamics/a.npz")["pos"][:-1]})


def moving_but_unlisted(world: Path) -> None:
    shutil.rmtree(world / "dynamics")


def flat(world: Path) -> None:
    for path in (world / "meshes").iterdir():
        edit(path, {f"faces_{frame:04d}": np.zeros((0, 3), np.int32) for frame in range(FRAMES)})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (dead, ["dynamics/a.npz: pos[:,1]"]),
        (short, ["dynamics/a.npz: pos"]),
        (moving_but_unlisted, ["meshes/1.npz: vertices_0001"]),
        (flat, ["meshes: faces"]),
        (lambda w: edit(w / "dynamics/a.npz", remove=("ids",)), ["dynamics/a.npz: ids"]),
        (lambda w: edit(w / "meshes/1.npz", remove=("faces_0003",)), ["meshes/1.npz: frame 0003"]),
        (lambda w: (w / "meshes/2.npz").write_bytes(b""), ["meshes/2.npz: npz"]),
        (lambda w: (w / "camera.json").unlink(), ["camera.json: path"]),
        (lambda w: (w / "render.mp4").write_bytes(b"junk"), ["render.mp4: ffprobe"]),
        (lambda w: video(w, height=HEIGHT + 2), ["render.mp4: input"]),
        (lambda w: video(w, frames=FRAMES + 1), ["render.mp4: input", "dynamics/a.npz: pos"]),
        (lambda w: shutil.rmtree(w), ["camera.json: path", "render.mp4: path", "meshes: path"]),
        (lambda w: os.mkfifo(w / "dynamics/b.npz"), ["dynamics/b.npz: npz"]),
    ],
)
def test_what_would_spoil_scores(world: Path, change: Callable[[Path], object], expected: list[str]) -> None:
    change(world)
    assert sorted(faults(world)) == sorted(expected)


def test_a_render_one_frame_short_names_both_counts(world: Path) -> None:
    video(world, frames=FRAMES - 1)
    (found,) = [str(one) for one in check_reference(world, SHAPE).violations if one.field == "input"]
    assert found == ("render.mp4: input has 3 frames of 64x48; the reference video has 4 of 64x48")
