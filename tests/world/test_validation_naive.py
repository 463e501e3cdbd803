"""Agreement with a second, plain implementation of the rules on worlds spoilt at random."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from base_world import FRAMES, bake, build_base_world, load, manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive_checker import naive_camera, naive_check, naive_lifetimes

from world.validation import check_world
from world.validation.camera import check_camera
from world.validation.dynamics import Lifetimes
from world.video import probe

Rng = np.random.Generator


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base"))


def some_array(rng: Rng) -> np.ndarray:
    """An array of any type and shape that an archive might hold by mistake."""
    shape = tuple(int(n) for n in rng.choice([0, 1, 3, 4, 5], size=int(rng.integers(1, 4))))
    dtype = rng.choice(["f4", "f8", ">f4", "i4", "i8", ">i4", "u2", "u1", "?"])
    return rng.integers(-2, 6, size=shape).astype(dtype)


def spoil_array(rng: Rng, array: np.ndarray) -> np.ndarray:
    ways: list[Callable[[], np.ndarray]] = [
        lambda: some_array(rng),
        lambda: array.astype(rng.choice(["f8", ">f4", "i8", "f2", "i4", "u2"])),
        lambda: array[: int(rng.integers(len(array) + 1))] if array.ndim else array,
        lambda: array[..., : int(rng.integers(4))] if array.ndim else array,
        lambda: array[None],
        lambda: spot(rng, array, [-1, 0, 1, 3, 4, 9]),
        lambda: spot(rng, array, [np.nan, np.inf, 0.0, -0.0]) if array.dtype.kind == "f" else array,
        lambda: np.asfortranarray(array),
    ]
    return ways[int(rng.integers(len(ways)))]()


def spot(rng: Rng, array: np.ndarray, values: list[float]) -> np.ndarray:
    """One value, or one point's values, replaced."""
    out = array.copy()
    if out.size and out.ndim:
        where = tuple(int(rng.integers(n)) for n in out.shape)
        with np.errstate(all="ignore"):
            out[where if rng.random() < 0.5 else where[:-1]] = np.array(rng.choice(values)).astype(out.dtype)
    return out


def spoil_archive(rng: Rng, path: Path) -> None:
    arrays = load(path)
    for _ in range(int(rng.integers(1, 3))):
        name = str(rng.choice(sorted(arrays))) if arrays else "pos"
        way = rng.random()
        if way < 0.65 and name in arrays:
            arrays[name] = spoil_array(rng, arrays[name])
        elif way < 0.75:
            arrays.pop(name, None)
        elif way < 0.85:
            extra = ["foo", "tets", "faces", "vertices_0001", "faces_0005", "faces_12", "Ids"]
            arrays[str(rng.choice(extra))] = some_array(rng)
        elif path.parent.name == "dynamics" and arrays.get("pos", np.zeros(0)).ndim == 3:
            pos = arrays["pos"].astype("f4", copy=True)
            rows = rng.random(pos.shape[:2]) < 0.3
            pos[rows] = np.nan
            arrays["pos"] = pos
            arrays["ids"] = rng.integers(1, 5, size=int(rng.integers(0, 3))).astype("u2")
        else:
            frame = int(rng.integers(FRAMES + 2))
            arrays[f"vertices_{frame:04d}"] = rng.normal(size=(3, 3)).astype("f4")
            arrays[f"faces_{frame:04d}"] = rng.integers(0, 3, size=(2, 3)).astype("i4")
    np.savez(path, **arrays)


def spoil_world(rng: Rng, world: Path) -> None:
    for _ in range(int(rng.integers(0, 4))):
        way = int(rng.integers(7))
        archives = sorted([*(world / "meshes").glob("*.npz"), *(world / "dynamics").glob("*.npz")])
        if way <= 2 and archives:
            spoil_archive(rng, archives[int(rng.integers(len(archives)))])
        elif way == 3 and archives:
            source = archives[int(rng.integers(len(archives)))]
            target = source.with_name(
                str(rng.choice(["01.npz", "3.npz", "10.npz", "0.npz", "x.npz", "3.NPZ"]))
            )
            shutil.copy(source, target)
        elif way == 4 and archives:
            archives[int(rng.integers(len(archives)))].unlink()
        elif way == 5:
            manifest(world, **spoil_manifest(rng))
            if rng.random() < 0.5:
                bake(world, range(int(rng.integers(2)), int(rng.integers(3, 6))))
        else:
            camera = json.loads((world / "camera.json").read_text())
            key = str(rng.choice(["intrinsics", "extrinsic"]))
            camera[key] = spot(rng, np.array(camera[key]), [0, 1, -1, 1.00003, np.nan]).tolist()
            (world / "camera.json").write_text(json.dumps(camera))


def spoil_manifest(rng: Rng) -> dict[str, Any]:
    values: dict[str, list[Any]] = {
        "cache": ["cache", "gone", "."],
        "fps": [24, 0, -1.5, True, "24", None, float("inf")],
        "domain_min": [[0, 0, 0], [0, 0], [0, 0, "0"], None, 3],
        "frames": [[0, 3], [1, 2], [2, 1], [-1, 2], [0, True], [0, 30000], None],
        "liquid_ids": [[1], [2], [1, 2], [9], [], ["1"], None, 1],
    }
    keys = [key for key in values if rng.random() < 0.3]
    return {key: values[key][int(rng.integers(len(values[key])))] for key in keys}


@pytest.mark.parametrize("block", range(8))
def test_same_verdict_as_the_naive_checker(base: Path, tmp_path: Path, block: int) -> None:
    render = probe(base / "render.mp4")
    seen = 0
    for seed in range(40):
        rng = np.random.default_rng([block, seed])
        world = tmp_path / str(seed) / "world"
        shutil.copytree(base, world)
        spoil_world(rng, world)
        for scorer in (False, True):
            found = [(v.name, v.field) for v in check_world(world, scorer=scorer, render=render)]
            assert found == naive_check(world, FRAMES, scorer=scorer), (block, seed, scorer)
            seen += bool(found)
        shutil.rmtree(world.parent)
    assert seen > 20


numbers = st.one_of(
    st.floats(), st.integers(), st.booleans(), st.none(), st.sampled_from(["1", "x", "nan", "1e400", ""])
)
matrices = st.one_of(
    st.recursive(numbers, lambda inner: st.lists(inner, max_size=5), max_leaves=20),
    *(st.lists(st.lists(st.floats(-2, 2), min_size=n, max_size=n), min_size=n, max_size=n) for n in (3, 4)),
    st.sampled_from([np.eye(3).tolist(), np.eye(4).tolist(), np.diag([1, -1, -1, 1]).tolist()]),
)
json_values = st.recursive(
    st.one_of(numbers, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.one_of(
        json_values,
        st.fixed_dictionaries(
            {}, optional={"intrinsics": matrices, "extrinsic": matrices, "more": json_values}
        ),
    )
)
def test_any_camera_json(tmp_path: Path, value: Any) -> None:
    """Any JSON gives a verdict, and the naive reading of a matrix gives the same one."""
    (tmp_path / "camera.json").write_text(json.dumps(value))
    found, camera = check_camera(tmp_path)
    fields = [(item.name, item.field) for item in found]
    assert fields == naive_camera(json.loads(json.dumps(value)))
    assert (camera is None) == bool(found)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_lifetimes_in_any_blocks(data: st.DataObject) -> None:
    """However the frames are cut into blocks, the verdict is that of the whole."""
    frames, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 4))
    whole = [(0.0,) * 3, (np.nan,) * 3]
    # Points that are there in part hide every other fault, so most takes have none.
    cells = whole * 5 + [(np.nan, 0.0, 1.0), (np.inf,) * 3] if data.draw(st.integers(0, 3)) == 0 else whole
    values = data.draw(st.lists(st.sampled_from(cells), min_size=frames * columns, max_size=frames * columns))
    pos = np.array(values, np.float32).reshape(frames, columns, 3)
    cuts = sorted(data.draw(st.sets(st.integers(0, frames))) | {0, frames})
    lives = Lifetimes(columns)
    for start, stop in pairwise(cuts):
        lives.add(pos[start:stop])
    fault = lives.fault()
    assert ([] if fault is None else [fault[0]]) == naive_lifetimes(pos)
