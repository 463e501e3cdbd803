"""Whatever cannot be read in a world, the message begins with the file's name below the world."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from base_world import VERTICES, build_base_world, edit

from world.reader import World
from world.validation import check_world


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("names") / "workspace")


def junk(name: str) -> Callable[[Path], None]:
    return lambda world: (world / name).write_bytes(b"junk") and None


def gone(name: str) -> Callable[[Path], None]:
    def spoil(world: Path) -> None:
        path = world / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def directory(name: str) -> Callable[[Path], None]:
    def spoil(world: Path) -> None:
        (world / name).unlink()
        (world / name).mkdir()

    return spoil


def pipe(name: str) -> Callable[[Path], None]:
    def spoil(world: Path) -> None:
        (world / name).unlink()
        os.mkfifo(world / name)

    return spoil


def changed(name: str, **members: np.ndarray) -> Callable[[Path], None]:
    return lambda world: edit(world / name, members)


def damaged(name: str, member: str) -> Callable[[Path], None]:
    """Flip bytes of one member's data; the archive's directory stays sound."""

    def spoil(world: Path) -> None:
        import zipfile

        path = world / name
        with zipfile.ZipFile(path) as archive:
            at = archive.getinfo(f"{member}.npy").header_offset
        data = bytearray(path.read_bytes())
        data[at + 200] ^= 0xFF
        path.write_bytes(bytes(data))

    return spoil


def solver(text: str) -> Callable[[Path], None]:
    def spoil(world: Path) -> None:
        (world / "solver").mkdir()
        (world / "solver" / "manifest.json").write_text(text)

    return spoil


def everything(world: World) -> None:
    for frame in range(world.frames):
        world.soup(frame)
    for material in world.materials:
        _ = material.pos
    _ = world.intrinsics, world.dynamic_ids


@pytest.mark.parametrize(
    ("spoil", "start"),
    [
        (gone("render.mp4"), "render.mp4: No such file"),
        (junk("render.mp4"), "render.mp4: "),
        (directory("render.mp4"), "render.mp4: "),
        (gone("camera.json"), "camera.json: No such file"),
        (directory("camera.json"), "camera.json: is a directory"),
        (pipe("camera.json"), "camera.json: is a named pipe"),
        (junk("camera.json"), "camera.json: is not JSON"),
        (gone("meshes"), "meshes: No such file"),
        (junk("meshes/1.npz"), "meshes/1.npz: is not a ZIP archive"),
        (directory("meshes/1.npz"), "meshes/1.npz: is not a regular file"),
        (pipe("meshes/2.npz"), "meshes/2.npz: is not a regular file"),
        (changed("meshes/1.npz", foo=VERTICES), "meshes/1.npz: member 'foo'"),
        (changed("meshes/1.npz", vertices_0002=VERTICES[:, :2]), "meshes/1.npz: frame 0002: vertices"),
        (changed("meshes/1.npz", vertices_0002=np.array(["x"])), "meshes/1.npz: frame 0002: vertices"),
        (damaged("meshes/2.npz", "vertices_0003"), "meshes/2.npz: "),
        (junk("dynamics/a.npz"), "dynamics/a.npz: is not a ZIP archive"),
        (directory("dynamics/a.npz"), "dynamics/a.npz: is not a regular file"),
        (changed("dynamics/a.npz", zoo=VERTICES), "dynamics/a.npz: 'zoo'"),
        (changed("dynamics/a.npz", ids=np.array([1], np.int64)), "dynamics/a.npz: ids are int64"),
        (changed("dynamics/a.npz", faces=np.full((1, 3), 9, np.int32)), "dynamics/a.npz: an index of faces"),
        (damaged("dynamics/a.npz", "pos"), "dynamics/a.npz: "),
        (solver("{"), "solver/manifest.json: is not JSON"),
        (solver("[]"), "solver/manifest.json: liquid_ids must"),
        (solver(json.dumps({"liquid_ids": [1.5]})), "solver/manifest.json: liquid_ids must"),
        (lambda world: (world / "solver").mkdir(), "solver/manifest.json: No such file"),
    ],
)
def test_the_file_is_named(sound: Path, tmp_path: Path, spoil: Callable[[Path], None], start: str) -> None:
    path = tmp_path / "world"
    shutil.copytree(sound, path)
    spoil(path)
    with World(path) as world, pytest.raises(ValueError) as caught:
        everything(world)
    text = str(caught.value)
    assert text.startswith(start)
    assert str(tmp_path) not in text
    assert "Errno" not in text
    assert "\n" not in text


def test_an_archive_that_goes_while_it_is_read(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "world"
    shutil.copytree(sound, path)
    with World(path) as world:
        (material,) = world.materials
        assert world.ids == (1, 2)
        (path / "meshes/1.npz").unlink()
        (path / "dynamics/a.npz").unlink()
        with pytest.raises(ValueError, match=r"^meshes/1\.npz: cannot be opened: No such file"):
            world.object_mesh(1, 0)
        with pytest.raises(ValueError, match=r"^dynamics/a\.npz: cannot be opened: No such file"):
            _ = material.pos


def test_every_name_that_the_gate_lets_pass_is_read(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "world"
    shutil.copytree(sound, path)
    (path / "meshes/1.npz").rename(path / "meshes/0\u0661.npz")  # an Arabic one
    (path / "meshes/2.npz").rename(path / "meshes/99999999999.npz")
    assert check_world(path, scorer=True) == []
    with World(path) as world:
        assert world.ids == (1, 99999999999)
        assert len(world.object_mesh(1, 2)[0]) == len(VERTICES)
        with pytest.raises(ValueError, match=r"^meshes: id 99999999999 is above 2147483647"):
            world.soup(0)
