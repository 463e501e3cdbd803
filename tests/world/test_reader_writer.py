"""Worlds written and read back, lazily and within bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import clips
import numpy as np
import pytest

from contract.names import faces_key, vertices_key
from world import reader
from world.camera import look_at, project, read_camera, to_camera, write_camera
from world.npz import write_archive
from world.reader import World, WorldError
from world.writer import WorldWriter

K = np.array([[60.0, 0, 32], [0, 60, 24], [0, 0, 1]])
E = look_at((0, -5, 2), (0, 0, 0))
POINTS = np.array([(-1, -1, 0), (1, -1, 0), (0, 1, 0), (0, 0, 1)], np.float32)
FACES = np.array([(0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0)], np.int32)
F = 6


def write(path: Path, **changes: object) -> Path:
    arguments: dict[str, object] = dict(frames=F, height=48, width=64, fps=24, intrinsics=K, extrinsic=E)
    with WorldWriter(path, **(arguments | changes)) as world:  # type: ignore[arg-type]
        moving = [POINTS + np.float32(0.1 * t) for t in range(F)]
        world.mesh(1, moving, FACES)
        world.mesh(10, [POINTS * 2] * 2, [FACES, FACES[:1]], first=3)
        world.mesh(2, [POINTS[:0]] * F, [FACES[:0]] * F)
        world.dynamics("body", np.stack(moving), [1], faces=FACES)
        world.render(clips.moving_square(F))
    return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(write(tmp_path / "world"))


def test_facts(world: World) -> None:
    assert world.shape == (F, 48, 64)
    assert world.fps == 24
    assert np.array_equal(world.intrinsics, K)
    assert np.allclose(world.extrinsic, E)
    assert world.ids == (1, 2, 10)
    assert world.dynamic_ids == (1,)
    assert world.lifetime(10) == range(3, 5)


def test_parts_and_soup(world: World) -> None:
    assert [number for number, _, _ in world.parts(0)] == [1]
    assert [number for number, _, _ in world.parts(3)] == [1, 10]
    vertices, faces, owner = world.soup(4)
    assert vertices.dtype == np.float32
    assert faces.dtype == np.int32
    assert owner.tolist() == [1] * 4 + [10]
    assert np.array_equal(vertices[faces[4]], POINTS[FACES[0]] * 2)
    assert world.soup(5)[2].tolist() == [1] * 4
    vertices, faces = world.object_mesh(10, 0)
    assert vertices.shape == faces.shape == (0, 3)
    assert world.object_mesh(99, 0)[0].shape == (0, 3)


def test_materials(world: World) -> None:
    (material,) = world.materials
    assert (material.name, material.ids, material.frames, material.columns) == ("body", (1,), F, 4)
    assert material.faces is not None
    assert material.tets is None
    assert np.array_equal(material.at(3), POINTS + np.float32(0.3))


def test_the_cache_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CACHE_BYTES", 250)
    monkeypatch.setattr(reader, "_OPEN_ARCHIVES", 1)
    for _ in range(2):
        for frame in range(F):
            assert np.array_equal(world.object_mesh(1, frame)[0], POINTS + np.float32(0.1 * frame))
            world.object_mesh(10, frame)
            assert world._cached_bytes <= 250
            assert len(world._open) <= 1
    world.close()
    assert world._cached_bytes == 0


def test_positions_can_be_spilled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world.materials.SPILL_BYTES", 10)
    monkeypatch.setattr("world.materials.READ_LIMIT", 100)
    (material,) = world.materials
    assert isinstance(material.pos, np.memmap)
    assert np.array_equal(material.pos, np.stack([POINTS + np.float32(0.1 * t) for t in range(F)]))


def test_writing_is_repeatable_and_replaces(tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write(tmp_path / "world").rglob("*") if path.is_file()}
    second = {path.name: path.read_bytes() for path in write(tmp_path / "world").rglob("*") if path.is_file()}
    assert first == second
    assert os.listdir(tmp_path) == ["world"]


def test_a_failed_writer_leaves_the_old_world(tmp_path: Path) -> None:
    write(tmp_path / "world")
    for damage in ("render", "boom"):
        with (
            pytest.raises((ValueError, RuntimeError)),
            WorldWriter(
                tmp_path / "world", frames=2, height=48, width=64, fps=24, intrinsics=K, extrinsic=E
            ) as out,
        ):
            out.mesh(1, [POINTS] * 2, FACES)
            if damage == "boom":
                raise RuntimeError
    assert World(tmp_path / "world").frames == F
    assert os.listdir(tmp_path) == ["world"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.mesh(0, [POINTS], FACES), "mesh id 0"),
        (lambda w: w.mesh(70000, [POINTS], FACES), "mesh id 70000"),
        (lambda w: (w.mesh(3, [POINTS], FACES), w.mesh(3, [POINTS], FACES)), "there already"),
        (lambda w: w.mesh(3, [POINTS] * 7, FACES), "frames 0 to 6"),
        (lambda w: w.mesh(3, [POINTS], FACES, first=6), "frames 6 to 6"),
        (lambda w: w.mesh(3, [], FACES), "frames"),
        (lambda w: w.mesh(3, [POINTS * np.nan], FACES), "finite"),
        (lambda w: w.mesh(3, [POINTS], FACES + 1), "outside the 4 points"),
        (lambda w: w.mesh(3, [POINTS], FACES.astype(float)), "integers"),
        (lambda w: w.mesh(3, [POINTS] * 2, [FACES]), "2 frames of vertices, 1 of faces"),
        (lambda w: w.dynamics("a", np.zeros((F, 2, 3)), [9]), "no mesh for ids"),
        (lambda w: w.dynamics("a", np.zeros((2, 2, 3)), [1]), "expected"),
        (lambda w: w.dynamics("a", np.full((F, 2, 3), np.inf), [1]), "neither finite nor NaN"),
        (lambda w: w.dynamics("a", np.full((F, 2, 3), np.nan), [1]), "contiguous interval"),
        (lambda w: w.render(clips.moving_square(F - 1)), "5 frames, expected 6"),
        (lambda w: w.render(clips.moving_square(F, 50, 64)), "expected"),
    ],
)
def test_writer_refuses(tmp_path: Path, call: object, message: str) -> None:
    with (
        pytest.raises(ValueError, match=message),
        WorldWriter(
            tmp_path / "world", frames=F, height=48, width=64, fps=24, intrinsics=K, extrinsic=E
        ) as out,
    ):
        out.mesh(1, [POINTS] * F, FACES)
        call(out)  # type: ignore[operator]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("1.npz", {"foo": POINTS}, "foo"),
        ("1.npz", {vertices_key(0): POINTS}, "same frames"),
        (
            "1.npz",
            {vertices_key(f): POINTS for f in (0, 2)} | {faces_key(f): FACES for f in (0, 2)},
            "contiguous",
        ),
        ("x.npz", {vertices_key(0): POINTS, faces_key(0): FACES}, "not the name"),
        ("01.npz", {vertices_key(0): POINTS, faces_key(0): FACES}, "an id twice"),
    ],
)
def test_reader_refuses(tmp_path: Path, name: str, arrays: dict[str, np.ndarray], message: str) -> None:
    path = write(tmp_path / "world")
    write_archive(path / "meshes" / name, arrays)
    with pytest.raises(WorldError, match=message):
        World(path).ids  # noqa: B018


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (POINTS[:, :2], FACES, "expected float32"),
        (POINTS * np.float32(np.nan), FACES, "finite"),
        (POINTS, FACES.astype(np.int64), "expected int32"),
        (POINTS, FACES + 1, "outside"),
        (POINTS, FACES - 1, "outside"),
    ],
)
def test_reader_refuses_bad_meshes(
    tmp_path: Path, vertices: np.ndarray, faces: np.ndarray, message: str
) -> None:
    path = write(tmp_path / "world")
    write_archive(path / "meshes/1.npz", {vertices_key(0): vertices, faces_key(0): faces})
    with pytest.raises(WorldError, match=message):
        World(path).object_mesh(1, 0)


def test_wide_vertices_are_cast(tmp_path: Path) -> None:
    path = write(tmp_path / "world")
    write_archive(path / "meshes/1.npz", {vertices_key(0): POINTS.astype(">f8"), faces_key(0): FACES})
    vertices, _ = World(path).object_mesh(1, 0)
    assert vertices.dtype == np.float32
    assert np.array_equal(vertices, POINTS)


def test_liquid_ids_count_as_dynamic(tmp_path: Path) -> None:
    path = write(tmp_path / "world")
    (path / "solver").mkdir()
    (path / "solver/manifest.json").write_text(json.dumps({"liquid_ids": [10, 10]}))
    assert World(path).dynamic_ids == (1, 10)
    # The checker lets true pass as 1 and only advises against it; a world that passes must be scored.
    (path / "solver/manifest.json").write_text(json.dumps({"liquid_ids": [10, True]}))
    assert World(path).liquid_ids == (1, 10)
    for wrong in ([], 5, ["1"], [1.0], None):
        (path / "solver/manifest.json").write_text(json.dumps({"liquid_ids": wrong}))
        with pytest.raises(WorldError, match=r"^solver/manifest\.json: liquid_ids must be"):
            World(path).dynamic_ids  # noqa: B018


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000, '{"intrinsics": 1, "extrinsic": 2}', "\xff"])
def test_bad_cameras(tmp_path: Path, text: str) -> None:
    (tmp_path / "camera.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"camera\.json"):
        read_camera(tmp_path / "camera.json")


def test_camera_round_trip_and_conventions(tmp_path: Path) -> None:
    write_camera(tmp_path / "camera.json", K, E)
    intrinsics, extrinsic = read_camera(tmp_path / "camera.json")
    assert np.array_equal(intrinsics, K)
    assert np.array_equal(extrinsic, E)
    # The target is at the principal point, up is up in the image, right is right.
    image, depth = project([(0, 0, 0), (0, 0, 1), (1, 0, 0)], K, E)
    assert np.allclose(image[0], (32, 24))
    assert depth[0] == pytest.approx(np.sqrt(29))
    assert image[1, 1] < 24
    assert image[2, 0] > 32
    assert np.allclose(E[:3, :3].T @ E[:3, :3], np.eye(3))
    assert np.linalg.det(E[:3, :3]) == pytest.approx(1)
    assert np.allclose(to_camera([(0, -5, 2)], E), 0)


def test_look_straight_up_is_refused() -> None:
    with pytest.raises(ValueError, match="parallel"):
        look_at((0, 0, 0), (0, 0, 5))


def test_fixture_worlds_open(fixture_worlds: Path) -> None:
    paths = sorted(fixture_worlds.glob("data/synthetic/*/world")) + sorted(
        fixture_worlds.glob("runs/*/*/*/1/*/world")
    )
    assert len(paths) > 15
    for path in paths:
        with World(path) as world:
            assert world.soup(0)[1].size > 0
            assert all(material.pos.shape[0] == world.frames for material in world.materials)
