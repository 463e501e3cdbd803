"""The published verdicts on the base world, for the agent's checker (P) and the scorer (S)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from base_world import EXTRINSIC, FACES, INTRINSICS, VERTICES, bake, build_base_world, edit, load, manifest

from world.validation import check_world

A, M1 = "dynamics/a.npz", "meshes/1.npz"
MANIFEST = "solver/manifest.json"
STATIC = (M1, "vertices_0001")
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base"))


@pytest.fixture
def world(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base.parent, tmp_path / "workspace", symlinks=True)
    return tmp_path / "workspace" / "world"


def pairs(world: Path, *, scorer: bool) -> Pairs:
    found = check_world(world, scorer=scorer)
    assert all("\n" not in str(item) and item.text for item in found)
    return [(item.name, item.field) for item in found]


def camera(world: Path, **changes: object) -> None:
    value = {"intrinsics": INTRINSICS, "extrinsic": EXTRINSIC} | changes
    (world / "camera.json").write_text(json.dumps(value))


def audio_only(world: Path) -> None:
    with av.open(str(world / "render.mp4"), "w") as out:
        stream = out.add_stream("aac", rate=44100)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)


def stray(world: Path) -> None:
    for name in ("0.npz", "readme.txt", "3.NPZ", ".DS_Store", "+3.npz"):
        (world / "meshes" / name).write_bytes(b"x")


def odd_ids(world: Path) -> None:
    for name in ("70000.npz", "0003.npz", "\u0664.npz"):
        shutil.copy(world / "meshes" / "2.npz", world / "meshes" / name)


def only(world: Path, **arrays: np.ndarray) -> None:
    np.savez(world / M1, **arrays)


def cast(world: Path, key: str, dtype: str) -> None:
    edit(
        world / M1,
        {name: array.astype(dtype) for name, array in load(world / M1).items() if name.startswith(key)},
    )


def flat_empty(world: Path) -> None:
    empty = {"vertices_0000": np.zeros(0, np.float32), "faces_0000": np.zeros(0, np.int32)}
    edit(world / M1, empty)


def no_triangles(world: Path) -> None:
    for mesh in (1, 2):
        path = world / "meshes" / f"{mesh}.npz"
        edit(path, {name: np.zeros((0, 3), np.int32) for name in load(path) if name.startswith("faces")})


def without_dynamics(world: Path, **changes: object) -> None:
    """A liquid: nothing tracks mesh 1, the manifest names it."""
    (world / A).unlink()
    manifest(world, **changes)


def bare_solver(world: Path) -> None:
    (world / A).unlink()
    (world / "solver").mkdir()


def empty_manifest(world: Path) -> None:
    without_dynamics(world)
    (world / MANIFEST).write_text("{}")


def baked(world: Path, frames: range) -> None:
    without_dynamics(world)
    bake(world, frames)


SEVEN = ("cache", "fps", "time_scale", "metres_per_unit", "domain_min", "frames", "liquid_ids")
NONE: Pairs = []
FIXTURES: list[tuple[str, Callable[[Path], object], Pairs, Pairs | None]] = [
    ("base", lambda w: None, NONE, None),
    ("no camera", lambda w: (w / "camera.json").unlink(), [("camera.json", "path")], None),
    ("camera list", lambda w: (w / "camera.json").write_text("[]"), [("camera.json", "json")], None),
    (
        "camera without keys",
        lambda w: (w / "camera.json").write_text("{}"),
        [("camera.json", "intrinsics"), ("camera.json", "extrinsic")],
        None,
    ),
    (
        "NaN intrinsics",
        lambda w: camera(w, intrinsics=[[float("nan"), 0, 32], [0, 60, 24], [0, 0, 1]]),
        [("camera.json", "intrinsics")],
        None,
    ),
    (
        "mirror",
        lambda w: camera(w, extrinsic=[[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, -5], [0, 0, 0, 1]]),
        [("camera.json", "extrinsic")],
        None,
    ),
    ("audio only", audio_only, [("render.mp4", "ffprobe")], None),
    ("no meshes", lambda w: shutil.rmtree(w / "meshes"), [("meshes", "path"), (A, "ids")], None),
    ("no dynamics", lambda w: shutil.rmtree(w / "dynamics"), [("dynamics", "path")], None),
    ("id twice", lambda w: shutil.copy(w / M1, w / "meshes" / "01.npz"), [(M1, "id")], None),
    (
        "stray entries",
        stray,
        [(f"meshes/{name}", "name") for name in ("+3.npz", ".DS_Store", "0.npz", "3.NPZ", "readme.txt")],
        None,
    ),
    ("odd ids", odd_ids, NONE, None),
    ("random bytes", lambda w: (w / M1).write_bytes(bytes(range(256)) * 9), [(M1, "npz")], None),
    ("foreign member", lambda w: edit(w / M1, {"foo": VERTICES}), [(M1, "foo")], None),
    ("unpaired", lambda w: only(w, vertices_0000=VERTICES, faces_0001=FACES), [(M1, "frame 0000")], None),
    (
        "gap",
        lambda w: only(w, vertices_0000=VERTICES, faces_0000=FACES, vertices_0002=VERTICES, faces_0002=FACES),
        [(M1, "frames")],
        None,
    ),
    (
        "late",
        lambda w: edit(w / M1, {"vertices_0004": VERTICES, "faces_0004": FACES}),
        [(M1, "frame 0004")],
        None,
    ),
    ("float64", lambda w: cast(w, "vertices", "<f8"), [(M1, "vertices_0000")], NONE),
    ("big-endian", lambda w: cast(w, "vertices", ">f4"), [(M1, "vertices_0000")], NONE),
    ("int64 faces", lambda w: cast(w, "faces", "<i8"), [(M1, "faces_0000")], None),
    ("1-D empty", flat_empty, [(M1, "vertices_0000")], None),
    ("no triangles", no_triangles, NONE, [("meshes", "faces")]),
    ("dynamics members", lambda w: edit(w / A, {"zoo": FACES, "abc": FACES}), [(A, "abc")], None),
    (
        "pos and ids types",
        lambda w: edit(w / A, {"pos": load(w / A)["pos"].astype("f8"), "ids": np.array([1])}),
        [(A, "pos"), (A, "ids")],
        None,
    ),
    (
        "undeclared ids",
        lambda w: edit(w / A, {"ids": np.array([9, 7, 1], np.uint16)}),
        [(A, "ids")],
        None,
    ),
    ("nothing tracked", lambda w: (w / A).unlink(), [STATIC], None),
    ("solver without manifest", bare_solver, [(MANIFEST, "path"), STATIC], None),
    ("empty manifest", empty_manifest, [(MANIFEST, key) for key in (*SEVEN, "liquid_ids")] + [STATIC], None),
    ("empty cache", without_dynamics, NONE, [(MANIFEST, "cache")]),
    ("baked from 0", lambda w: baked(w, range(4)), NONE, None),
    ("baked from 1", lambda w: baked(w, range(1, 5)), NONE, None),
    ("cache /tmp", lambda w: without_dynamics(w, cache="/tmp"), NONE, [(MANIFEST, "cache")]),
    ("cache ../..", lambda w: without_dynamics(w, cache="../.."), NONE, [(MANIFEST, "cache")]),
]


@pytest.mark.parametrize(
    ("spoil", "public", "scorer"), [row[1:] for row in FIXTURES], ids=[row[0] for row in FIXTURES]
)
def test_published_verdict(
    world: Path, spoil: Callable[[Path], object], public: Pairs, scorer: Pairs | None
) -> None:
    spoil(world)
    assert pairs(world, scorer=False) == public
    assert pairs(world, scorer=True) == (public if scorer is None else scorer)


def test_missing_records_are_named_with_the_shift_to_frame_one(world: Path) -> None:
    without_dynamics(world)
    (found,) = check_world(world, scorer=True)
    assert "0001" in found.text
    assert "3 more" in found.text


def test_undeclared_id_named_is_the_smallest(world: Path) -> None:
    edit(world / A, {"ids": np.array([9, 7, 1], np.uint16)})
    (found,) = check_world(world)
    assert "lists 7" in found.text
    assert "1 more" in found.text


@pytest.mark.parametrize(("scale", "count"), [(1.00004, 0), (1.00006, 1)])
def test_rotation_tolerance(world: Path, scale: float, count: int) -> None:
    matrix = np.array(EXTRINSIC)
    matrix[:3, :3] *= scale
    camera(world, extrinsic=matrix.tolist())
    assert len(check_world(world)) == count


def test_fixture_worlds_are_sound(fixture_worlds: Path) -> None:
    worlds = sorted((fixture_worlds / "data").rglob("world"))
    assert worlds
    for world in worlds:
        for scorer in (False, True):
            assert check_world(world, scorer=scorer) == [], world
