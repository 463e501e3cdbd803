"""Reading a Mantaflow bake: the formats, the frame mapping, and every way in which one is refused."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mantaflow import LIQUID, config_bytes, liquid_world, velocity_bytes, write_bake, write_manifest

from scorer.liquid.cache import Bake, open_bake, read_config, read_velocity
from scorer.liquid.fields import grid_mesh, read_fields
from scorer.liquid.manifest import Manifest, read_manifest
from world.reader import World, WorldError

DIMS = (4, 3, 2)
WORLD = Path("/some/world")


def bake(path: Path, frames: int = 3, times: Any = None, **options: Any) -> Manifest:
    """Write a bake of ``frames`` and return the manifest that covers it."""
    velocity = np.zeros((frames, *DIMS, 3), np.float32)
    write_bake(path, velocity, [0.5 * t for t in range(frames)] if times is None else times, **options)
    return manifest(path, 0, frames - 1)


def manifest(path: Path, first: int, last: int) -> Manifest:
    return Manifest(path, first, last, 1.0, (0.0, 0.0, 0.0), (LIQUID,))


def refused(text: str) -> Any:
    """Expect a ``ValueError`` with exactly this text."""
    return pytest.raises(ValueError, match=f"^{re.escape(text)}$")


def test_configuration(tmp_path: Path) -> None:
    turned = np.eye(4)
    turned[:3, :3] = np.array([[0, -3, 0], [2, 0, 0], [0, 0, 4]])  # columns of length 2, 3, 4
    path = tmp_path / "config_0000.uni"
    content = config_bytes(DIMS, 1.25, dx=0.25, low=(0, -1, 0), high=(1, 1, 1), matrix=turned)
    path.write_bytes(gzip.compress(content))
    config = read_config(path)
    assert config.dims == DIMS
    assert config.voxel == 0.25 * 6  # the largest of 1·2, 2·3, 1·4
    assert config.time == 1.25


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(config_bytes(DIMS, 0)[:-4] + b"C02\0"),
        gzip.compress(config_bytes(DIMS, 0)[:-8] + b"C01\0"),
        gzip.compress(config_bytes(DIMS, 0)[:-4] + b"\0\0\0\0C01\0"),
        gzip.compress(config_bytes(DIMS, 0)) [:-20],
        gzip.compress(config_bytes((0, 1, 1), 0)),
        gzip.compress(config_bytes((1 << 11,) * 3, 0)),
        gzip.compress(config_bytes(DIMS, 0, dx=float("nan"))),
        gzip.compress(config_bytes(DIMS, 0, dx=-1)),
        config_bytes(DIMS, 0),
        b"",
    ],
)  # fmt: skip
def test_unsupported_configuration(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config_0000.uni"
    path.write_bytes(content)
    with refused(f"{path}: unsupported Mantaflow configuration"):
        read_config(path)


def test_velocity(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(*DIMS, 3)).astype(np.float32)
    path = tmp_path / "vel_0000.uni"
    path.write_bytes(gzip.compress(velocity_bytes(values)))
    assert np.array_equal(read_velocity(path, DIMS), values)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (gzip.compress(velocity_bytes(np.zeros((*DIMS, 3)), magic=b"MNT2")), "expected MNT3 grid"),
        (velocity_bytes(np.zeros((*DIMS, 3))), "expected MNT3 grid"),
        (gzip.compress(b""), "expected MNT3 grid"),
        (b"", "expected MNT3 grid"),
        (
            gzip.compress(velocity_bytes(np.zeros((*DIMS, 3)), size=4)),
            "unexpected grid dimensions or element size",
        ),
        (gzip.compress(velocity_bytes(np.zeros((3, 4, 2, 3)))), "unexpected grid dimensions or element size"),
        (gzip.compress(b"MNT3"), "unexpected grid dimensions or element size"),
        (gzip.compress(velocity_bytes(np.zeros((*DIMS, 3)))[:-1]), "truncated grid"),
        (gzip.compress(np.random.default_rng(0).bytes(400))[:100], "truncated grid"),
    ],
)
def test_wrong_velocity(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "vel_0000.uni"
    path.write_bytes(content)
    with refused(f"{path}: {text}"):
        read_velocity(path, DIMS)


def test_a_pipe_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "vel_0000.uni"
    os.mkfifo(path)
    with refused(f"{path}: is not a regular file"):
        read_velocity(path, DIMS)
    with refused(f"{path}: is not a regular file"):
        read_config(path)
    with refused(f"{tmp_path}/none: is missing"):
        read_config(tmp_path / "none")


def test_frames_of_a_bake(tmp_path: Path) -> None:
    opened = open_bake(bake(tmp_path, 3), WORLD, 5)
    assert opened.numbers == range(3)
    assert opened.dims == DIMS
    assert opened.times == (0.0, 0.5, 1.0)
    assert opened.velocity_path(2) == tmp_path / "data" / "vel_0002.uni"


def test_a_bake_that_starts_at_one_is_shifted(tmp_path: Path) -> None:
    bake(tmp_path, 3, first=1)
    opened = open_bake(manifest(tmp_path, 0, 2), WORLD, 3)
    assert opened.numbers == range(1, 4)
    assert opened.velocity_path(0) == tmp_path / "data" / "vel_0001.uni"
    # An explicit start is taken at its word.
    assert open_bake(manifest(tmp_path, 1, 3), WORLD, 3).numbers == range(1, 4)
    bake(tmp_path, 1, [-1.0])
    assert open_bake(manifest(tmp_path, 0, 2), WORLD, 3).numbers == range(3)


def test_the_first_frame_decides_on_vdb(tmp_path: Path) -> None:
    found = bake(tmp_path, 3)
    (tmp_path / "data" / "fluid_data_0001.vdb").touch()
    assert not open_bake(found, WORLD, 3).in_vdb
    (tmp_path / "data" / "fluid_data_0000.vdb").touch()
    opened = open_bake(found, WORLD, 3)
    assert opened.velocity_path(2) == tmp_path / "data" / "fluid_data_0002.vdb"


def test_more_cache_than_video(tmp_path: Path) -> None:
    with refused(f"{WORLD}: 3 cache frames for 2 video frames"):
        open_bake(bake(tmp_path, 3), WORLD, 2)


@pytest.mark.parametrize(
    "changed", [{"dims": (4, 3, 3)}, {"dx": 0.1001}, {"high": (0.6, 0.5, 0.5)}, {"matrix": np.eye(4) * 1.01}]
)
def test_a_grid_that_moves_or_grows(tmp_path: Path, changed: dict[str, Any]) -> None:
    def config(frame: int) -> bytes:
        return config_bytes(**({"dims": DIMS, "time": frame} | (changed if frame == 2 else {})))

    with refused(f"{WORLD}: moving or resized solver grid"):
        open_bake(bake(tmp_path, 3, config=config), WORLD, 3)


def test_a_grid_that_is_as_good_as_still(tmp_path: Path) -> None:
    def config(frame: int) -> bytes:
        return config_bytes(DIMS, frame, dx=0.1 * (1 + 5e-6 * frame))

    opened = open_bake(bake(tmp_path, 2, config=config), WORLD, 3)
    assert opened.voxel == pytest.approx(0.1)


@pytest.mark.parametrize("times", [[0.0, 0.5, 0.5], [0.0, -1.0, 2.0], [0.0, float("nan"), 1.0]])
def test_time_stands_still(tmp_path: Path, times: list[float]) -> None:
    with refused(f"{WORLD}: cache times must increase"):
        open_bake(bake(tmp_path, 3, times=times), WORLD, 3)


def opened(path: Path) -> tuple[World, Manifest, Bake]:
    world = World(path)
    found = read_manifest(world)
    return world, found, open_bake(found, path, world.frames)


def test_manifest_of_a_world(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", metres_per_unit=2.0, domain_min=[1, 2.5, -3])
    found = read_manifest(World(path))
    assert found == Manifest(path / "solver" / "cache", 0, 3, 2.0, (1.0, 2.5, -3.0), (LIQUID,))
    write_manifest(path, cache="/workspace/world/solver/cache")
    assert read_manifest(World(path)).cache == path / "solver" / "cache"
    write_manifest(path, fps=0)
    with pytest.raises(WorldError, match=r"solver/manifest\.json: fps must be"):
        read_manifest(World(path))
    write_manifest(path, cache=5)
    with pytest.raises(WorldError, match="cache must be text"):
        read_manifest(World(path))


def test_a_liquid_that_outlives_its_bake(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", frames=4)
    write_manifest(path, frames=[0, 2])
    with refused(f"{path}: liquid mesh extends past the cached timeline"):
        read_fields(*opened(path))


def test_meshes_in_cells(tmp_path: Path) -> None:
    path = liquid_world(tmp_path / "world", metres_per_unit=2.0, domain_min=[0.2, 0.4, 0.6])
    world, found, _ = opened(path)
    vertices, faces = world.object_mesh(LIQUID, 1)
    mesh = grid_mesh(world, found, 0.1, 1)
    assert mesh is not None
    np.testing.assert_allclose(mesh[0], (vertices - [0.2, 0.4, 0.6]) / 0.2 - 0.5, rtol=1e-6)
    assert mesh[0].dtype == np.float32
    assert np.array_equal(mesh[1], faces)
    both = Manifest(found.cache, 0, 3, 1.0, (0.0, 0.0, 0.0), (1, LIQUID))
    joined = grid_mesh(world, both, 0.1, 1)
    assert joined is not None
    assert len(joined[0]) == len(vertices) + 4
    assert np.array_equal(joined[1][2:], faces + 4)
    assert grid_mesh(world, Manifest(found.cache, 0, 3, 1.0, (0.0,) * 3, (7,)), 0.1, 1) is None


@pytest.mark.parametrize("scale", [1e-6, 1e-30, 1e-300])
def test_a_mesh_far_beyond_the_grid_is_not_voxelised(tmp_path: Path, scale: float) -> None:
    world, found, _ = opened(liquid_world(tmp_path / "world", metres_per_unit=scale))
    with pytest.raises(ValueError, match=r"liquid mesh of frame 0 is far larger than the solver grid"):
        grid_mesh(world, found, 0.1, 0)
