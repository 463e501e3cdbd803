"""Packed worlds written and read by plain h5py code, as independent references, and worlds of all shapes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def members(path: Path) -> dict[str, bytes]:
    """Unpacked bytes of an archive's members, by the standard library; its checksums are verified."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def tree(world: Path) -> dict[str, Any]:
    """Everything in a world: bytes of files, members of archives, None for directories."""
    return {path.relative_to(world).as_posix(): content_of(path) for path in sorted(world.rglob("*"))}


def content_of(path: Path) -> Any:
    """Of one entry of a world, as :func:`tree` gives it."""
    if path.is_dir():
        return None
    return members(path) if path.suffix == ".npz" else path.read_bytes()


def naive_unpack(packed: Path, world: Path) -> None:
    """The published format in the shortest code that reads it."""

    def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
        path, levels = world / name, name.split("/")
        if isinstance(node, h5py.Group) and len(levels) == 2 and levels[0] in ("meshes", "dynamics"):
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(f"{path}.npz", **_arrays(node))
        elif isinstance(node, h5py.Dataset) and levels[0] not in ("meshes", "dynamics"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(node[()].tobytes())

    with h5py.File(packed) as file:
        file.visititems(visit)


def _arrays(group: h5py.Group) -> dict[str, np.ndarray]:
    arrays = {}
    for name, node in group.items():
        if isinstance(node, h5py.Dataset):
            arrays[name] = node[()]
            continue
        frames, width = node["frames"][()], int(node.attrs.get("width", 4))
        if "stack" in node:
            pieces = list(node["stack"][()])
        else:
            pieces = np.split(node["flat"][()], np.cumsum(node["lengths"][()])[:-1])
        arrays |= {f"{name}_{frame:0{width}d}": piece for frame, piece in zip(frames, pieces, strict=True)}
    return arrays


def write_series(
    group: h5py.Group, name: str, frames: Mapping[int, np.ndarray], **options: Any
) -> h5py.Group:
    """A per-frame series: a stack where the frames are alike, else flat."""
    inner = group.create_group(name)
    inner["frames"] = np.array(list(frames), np.int32)
    arrays = list(frames.values())
    if len({array.shape for array in arrays}) == 1:
        inner.create_dataset("stack", data=np.stack(arrays), **options)
    else:
        inner["lengths"] = np.array([len(array) for array in arrays])
        inner.create_dataset("flat", data=np.concatenate(arrays), **options)
    return inner


def write_small(path: Path, **options: Any) -> None:
    """A packed world with one object and one material, four frames."""
    rng = np.random.default_rng(1)
    faces = np.array([[0, 1, 2]], np.int32)
    with h5py.File(path, "w") as file:
        file["camera.json"] = np.frombuffer(b"{}", np.uint8)
        file["render.mp4"] = np.frombuffer(b"video" * 100, np.uint8)
        mesh = file.create_group("meshes/1")
        points = {frame: rng.normal(size=(50, 3)).astype(np.float32) for frame in range(4)}
        write_series(mesh, "vertices", points, **options)
        write_series(mesh, "faces", dict.fromkeys(range(4), faces), **options)
        material = file.create_group("dynamics/ball")
        material.create_dataset("pos", data=np.stack(list(points.values())), **options)
        material["ids"] = np.array([1], np.uint16)
