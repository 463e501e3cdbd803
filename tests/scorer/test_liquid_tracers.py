"""Tracers from a whole world: values, where they are kept, and what is never believed."""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mantaflow import LIQUID, ball, config_bytes, liquid_world, velocity_bytes, write_manifest
from vdb_helper import built_helper

from scorer.child import is_infrastructure
from scorer.liquid import fields, helper, store, tracers
from scorer.liquid.store import CacheUnavailable, cache_directory
from scorer.liquid.tracers import extract, materials_of
from world.reader import World
from world.validation import check_world
from world.writer import WorldWriter


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "tracers"


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helper.VARIABLE, str(built_helper()))


def tree(path: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below ``path``."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def test_a_drop_that_moves(tmp_path: Path, place: Path) -> None:
    path = liquid_world(tmp_path / "world", frames=5)
    assert check_world(path, scorer=True) == []
    before = tree(path)
    pos, ids = tracers.tracers(World(path))
    assert ids == (LIQUID,)
    assert pos.dtype == np.float32
    assert pos.shape == (5, 552, 3)
    np.testing.assert_allclose(np.diff(pos, axis=0), np.broadcast_to([0.02, 0, 0], (4, 552, 3)), atol=1e-6)
    # One in each cell whose centre lies in the drop.
    assert np.linalg.norm(pos[0] - (1.2, 1.0, 0.8), axis=1).max() < 0.5 + 0.1 * 3**0.5 / 2
    assert len(np.unique(np.floor(pos[0] / np.float32(0.1)), axis=0)) == 552
    assert tree(path) == before
    assert [file.suffix for file in place.iterdir()] == [".npz"]


def test_scale_and_place_of_the_domain(tmp_path: Path) -> None:
    """Twice the size in the world, elsewhere, in units of half the size: the same tracers, twice as large."""
    first = liquid_world(tmp_path / "first", frames=3)
    second = shutil.copytree(first, tmp_path / "second")
    with World(first) as world:
        drops = [world.object_mesh(LIQUID, frame) for frame in range(3)]
    corner = np.array([-3.0, 1.0, 0.5])
    members: dict[str, Any] = {}
    for frame, (vertices, faces) in enumerate(drops):
        members[f"vertices_{frame:04d}"] = (vertices * 2 + corner).astype(np.float32)
        members[f"faces_{frame:04d}"] = faces
    np.savez(second / "meshes" / f"{LIQUID}.npz", **members)
    write_manifest(second, frames=[0, 2], metres_per_unit=2.0, domain_min=corner.tolist())
    pos, _ = tracers.tracers(World(first))
    other, _ = tracers.tracers(World(second))
    np.testing.assert_allclose(other, pos * 2 + corner, atol=2e-6)


def test_materials_of_a_world(tmp_path: Path) -> None:
    world = World(liquid_world(tmp_path / "world", frames=3, archive=True))
    body, liquid = materials_of(world)
    assert body is world.materials[0]
    assert (liquid.name, liquid.ids, liquid.faces, liquid.tets) == ("tracers", (LIQUID,), None, None)
    assert (liquid.frames, liquid.columns) == (3, 552)
    assert np.array_equal(liquid.at(2), liquid.pos[2])
    assert materials_of(world)[1] is liquid
    assert world.dynamic_ids == (LIQUID, 9)
    assert not liquid.pos.flags.writeable


def test_a_world_without_such_a_liquid(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helper.VARIABLE, str(tmp_path / "none"))  # no helper is needed
    path = liquid_world(tmp_path / "world", frames=3, archive=True)
    with World(path) as world:
        pos = np.stack([world.object_mesh(LIQUID, frame)[0] for frame in range(3)])
    np.savez(path / "dynamics" / "tracked.npz", pos=pos, ids=np.array([LIQUID], np.uint16))
    world = World(path)
    assert [material.name for material in materials_of(world)] == ["body", "tracked"]
    assert tracers.tracers(world)[0].shape == (3, 0, 3)
    shutil.rmtree(path / "solver")
    assert [material.name for material in materials_of(World(path))] == ["body", "tracked"]
    assert not place.exists()


def test_frames_past_the_bake_are_empty(tmp_path: Path) -> None:
    pos, _ = tracers.tracers(World(liquid_world(tmp_path / "world", frames=5, cached=3)))
    assert pos.shape == (5, 552, 3)
    assert np.isfinite(pos[:3]).all()
    assert np.isnan(pos[3:]).all()


def test_delivered_tracers_are_not_believed(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", frames=3)
    expected, _ = tracers.tracers(World(path))
    forged = np.zeros((3, 7, 3), np.float32)
    np.savez(path / "solver" / "tracers.npz", pos=forged, ids=np.array([LIQUID], np.uint16))
    before = tree(path)
    pos, _ = tracers.tracers(World(path))
    assert np.array_equal(pos, expected)
    assert tree(path) == before


def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The worlds that are extracted from now on."""
    done: list[Path] = []
    read: Callable[..., Any] = fields.read_fields

    def counted(world: World, *rest: Any) -> Any:
        done.append(world.path)
        return read(world, *rest)

    monkeypatch.setattr(tracers, "read_fields", counted)
    return done


def test_extracted_once_for_the_same_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = builds(monkeypatch)
    path = liquid_world(tmp_path / "world", frames=3)
    copy = shutil.copytree(path, tmp_path / "elsewhere")
    for world in (path, copy, path):
        tracers.tracers(World(world))
    assert done == [path]
    changes: list[Callable[[], object]] = [
        lambda: (copy / "solver/cache/config/config_0002.uni").write_bytes(
            gzip.compress(config_bytes((24, 20, 16), 0.21))
        ),
        lambda: (copy / "solver/cache/data/vel_0001.uni").write_bytes(
            gzip.compress(velocity_bytes(np.ones((24, 20, 16, 3))))
        ),
        lambda: write_manifest(copy, frames=[0, 2], domain_min=[0.01, 0, 0]),
        lambda: shrink(copy),
    ]
    for count, change in enumerate(changes, 2):
        change()
        tracers.tracers(World(copy))
        assert len(done) == count
    (copy / "solver/cache/mesh/lod.txt").write_text("not read")
    (copy / "solution.txt").write_text("not read")
    tracers.tracers(World(copy))
    assert len(done) == 1 + len(changes)


def shrink(world: Path) -> None:
    members: dict[str, Any] = {}
    for frame in range(3):
        members[f"vertices_{frame:04d}"], members[f"faces_{frame:04d}"] = ball(0.4, (1.2, 1.0, 0.8))
    np.savez(world / "meshes" / f"{LIQUID}.npz", **members)


def test_a_damaged_entry_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = builds(monkeypatch)
    path = liquid_world(tmp_path / "world", frames=3)
    entry = extract(World(path))
    whole = entry.read_bytes()
    np.savez(tmp_path / "other.npz", pos=np.zeros((4, 1, 3), np.float32), ids=np.array([LIQUID], np.uint16))
    flipped = bytearray(whole)
    flipped[5000] ^= 1
    for content in (b"", whole[:-100], bytes(flipped), (tmp_path / "other.npz").read_bytes()):
        entry.write_bytes(content)
        assert extract(World(path)) == entry
        assert entry.read_bytes() == whole
    assert len(done) == 5


def test_two_at_once_extract_once(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = builds(monkeypatch)
    path = liquid_world(tmp_path / "world", frames=3)
    found: list[np.ndarray] = []
    work = [threading.Thread(target=lambda: found.append(tracers.tracers(World(path))[0])) for _ in range(3)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert done == [path]
    assert len(found) == 3
    assert all(np.array_equal(one, found[0]) for one in found)
    assert [file.suffix for file in place.iterdir()] == [".npz"]


def test_a_failure_leaves_nothing(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    path = liquid_world(tmp_path / "world", frames=3)
    velocity = np.zeros((24, 20, 16, 3))
    velocity[3, 4, 5, 1] = np.inf
    (path / "solver/cache/data/vel_0002.uni").write_bytes(gzip.compress(velocity_bytes(velocity)))
    with pytest.raises(
        ValueError, match=r"^solver/cache/data/vel_0002\.uni: frame 2: non-finite velocity$"
    ) as caught:
        tracers.tracers(World(path))
    assert not is_infrastructure(caught.value)
    (path / "solver/cache/data/vel_0002.uni").unlink()
    with pytest.raises(ValueError, match=r"^solver/cache/data/vel_0002\.uni: is missing$"):
        tracers.tracers(World(path))
    assert not any(file.suffix == ".npz" for file in place.iterdir())
    assert not any(scratch.iterdir())


def test_a_liquid_that_is_never_there(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", frames=2, domain_min=[50, 0, 0])
    with pytest.raises(ValueError, match=r"^no cell centre is ever inside the liquid$"):
        tracers.tracers(World(path))


def test_a_missing_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = liquid_world(tmp_path / "world", frames=2)
    monkeypatch.setenv(helper.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(helper.HelperUnavailable, match=r"scripts/build_vdb\.sh") as caught:
        tracers.tracers(World(path))
    assert is_infrastructure(caught.value)


def test_velocities_in_vdb(tmp_path: Path, repository: Path) -> None:
    """A small grid whose velocities lie in VDB files; the first of them decides."""
    source = repository / "tests" / "fixtures" / "vdb"
    path = tmp_path / "world"
    drop = ball(0.15, (0.25, 0.2, 0.15))
    with WorldWriter(
        path, frames=2, height=16, width=16, fps=24, intrinsics=np.eye(3), extrinsic=np.eye(4)
    ) as out:
        out.mesh(LIQUID, [drop[0]] * 2, [drop[1]] * 2)
        out.render([np.zeros((16, 16, 3), np.uint8)] * 2)
    cache = path / "solver" / "cache"
    for name in ("config", "data"):
        (cache / name).mkdir(parents=True)
    for frame in range(2):
        content = gzip.compress(config_bytes((5, 4, 3), 1e-3 * frame))
        (cache / "config" / f"config_{frame:04d}.uni").write_bytes(content)
        shutil.copy(source / "velocity.vdb", cache / "data" / f"fluid_data_{frame:04d}.vdb")
    write_manifest(path, frames=[0, 1])
    pos, _ = tracers.tracers(World(path))
    step = (pos[1] - pos[0]) / 0.1 / 1e-3  # in cells per unit of solver time
    # The fixture's velocity is (x + 10y, z, −1) at the faces' low corners.
    at = pos[0] / 0.1
    inside = ((at > 0.5) & (at < (4, 3, 2))).all(axis=1)
    assert inside.any()
    expected = np.stack([at[:, 0] + 10 * (at[:, 1] - 0.5), at[:, 2] - 0.5, np.full(len(at), -1)], axis=1)
    np.testing.assert_allclose(step[inside], expected[inside], atol=0.05)
    shutil.copy(source / "infinite.vdb", cache / "data" / "fluid_data_0001.vdb")
    with pytest.raises(
        ValueError, match=r"^solver/cache/data/fluid_data_0001\.vdb: frame 1: non-finite velocity$"
    ):
        tracers.tracers(World(path))
    shutil.copy(source / "scalar.vdb", cache / "data" / "fluid_data_0001.vdb")
    with pytest.raises(ValueError, match=r"fluid_data_0001\.vdb: velocity must be a Vec3S grid$"):
        tracers.tracers(World(path))
    (cache / "data" / "fluid_data_0001.vdb").unlink()
    os.mkfifo(cache / "data" / "fluid_data_0001.vdb")
    with pytest.raises(ValueError, match=r"fluid_data_0001\.vdb: is not a regular file$"):
        tracers.tracers(World(path))


def test_where_entries_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory() == tmp_path / "cache" / "tracers"
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv(store.VARIABLE, str(blocked))
    with pytest.raises(CacheUnavailable, match=store.VARIABLE) as caught:
        cache_directory()
    assert is_infrastructure(caught.value)
    monkeypatch.delenv(store.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "xdg" / "4dcodebench" / "tracers"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_directory() == tmp_path / "home" / ".cache" / "4dcodebench" / "tracers"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    fallback = tmp_path / "tmp" / f"4dcodebench-{os.getuid()}-tracers"
    assert cache_directory() == fallback
    fallback.chmod(0o777)  # somebody else could have put something there
    assert cache_directory().name.startswith("4dcodebench-tracers-")


def test_the_oldest_entries_go(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEEP_BYTES", 2500)

    def write(path: Path) -> None:
        path.write_bytes(bytes(1000))

    for age, name in enumerate("abc"):
        made = store.kept(name, lambda path: True, write)
        os.utime(made, (age, age))
    assert sorted(path.stem for path in place.iterdir()) == ["b", "c"]
    store.kept("b", lambda path: True, write)  # used: now c is the oldest
    store.kept("d", lambda path: True, write)
    assert sorted(path.stem for path in place.iterdir()) == ["b", "d"]


def test_worlds_are_not_kept_alive(tmp_path: Path) -> None:
    world = World(liquid_world(tmp_path / "world", frames=2))
    materials_of(world)
    count = len(tracers._known)
    del world
    gc.collect()
    assert len(tracers._known) == count - 1


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "scorer.liquid", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)


def test_command(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", frames=3)
    done = command(path, "--out", tmp_path / "tracers.npz", "--scratch", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"columns": 552, "frames": 3}
    with np.load(tmp_path / "tracers.npz") as archive:
        assert archive["pos"].shape == (3, 552, 3)
        assert archive["ids"].tolist() == [LIQUID]
    write_manifest(path, frames=[0, 7])
    done = command(path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: solver/manifest.json: cache")
    assert done.stderr.count("\n") == 1
