from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from contract.metrics import TYPES
from scorer import arrays


def staged(tmp_path: Path, name: str, group: str, members: dict[str, Any]) -> Path:
    done = arrays.stage(tmp_path, name, {group: members})
    assert list(done) == [arrays.file_name(group)]
    assert list(done.values()) != list(done)
    arrays.publish(tmp_path, name, done)
    return tmp_path / arrays.file_name(group)


@pytest.mark.parametrize(
    ("name", "group", "method"),
    [
        ("mesh", "mesh", zipfile.ZIP_DEFLATED),
        ("uni3d", "uni3d_clouds", zipfile.ZIP_DEFLATED),
        ("uni3d", "uni3d", zipfile.ZIP_STORED),
        ("semantic", "embeddings_tips", zipfile.ZIP_STORED),
        ("geophys", "geophys_dinov3", zipfile.ZIP_STORED),
    ],
)
def test_npz_members_come_back(tmp_path: Path, name: str, group: str, method: int) -> None:
    members = {
        "file": np.arange(6, dtype=np.int32).reshape(2, 3),
        "names": np.array(["watertight", "manifold"]),
        "empty": np.zeros((0, 4), bool),
        "scalar": np.float32(0.5),
    }
    path = staged(tmp_path, name, group, members)
    with np.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == sorted(members)
        for key, value in members.items():
            np.testing.assert_array_equal(archive[key], value)
            assert archive[key].dtype == np.asarray(value).dtype
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {method}
    assert arrays.stage(tmp_path, name, {group: {}})  # an archive without members is one, too


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    first = staged(tmp_path, "mesh", "mesh", {"a": np.arange(9)}).read_bytes()
    assert staged(tmp_path, "mesh", "mesh", {"a": np.arange(9)}).read_bytes() == first


@pytest.mark.parametrize(("name", "group"), [("flow", "flow"), ("depth", "raster_depth")])
def test_hdf5_is_read_frame_by_frame(tmp_path: Path, name: str, group: str) -> None:
    frames = np.random.default_rng(0).normal(size=(3, 5, 7, 2)).astype(np.float16)
    members = {
        "frames": frames, "valid": frames[..., 0] > 0, "median": np.zeros(3, np.float32),
        "stride": np.int64(2), "none": np.zeros((0, 5, 7), bool), "model": np.array("raft"),
        "names": np.array(["a", "ü"]),
    }  # fmt: skip
    with h5py.File(staged(tmp_path, name, group, members)) as file:
        assert file["frames"].chunks == (1, 5, 7, 2)
        assert (file["frames"].compression, file["frames"].shuffle) == ("lzf", True)
        assert file["valid"].chunks == (1, 5, 7)
        assert file["median"].chunks is None
        np.testing.assert_array_equal(file["frames"][:], frames)
        np.testing.assert_array_equal(file["valid"][:], members["valid"])
        assert file["valid"].dtype == bool
        assert file["none"].shape == (0, 5, 7)
        assert file["stride"][()] == 2
        assert file["model"].asstr()[()] == "raft"
        assert list(file["names"].asstr()[:]) == ["a", "ü"]


def test_objects_and_foreign_groups_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Python objects"):
        arrays.stage(tmp_path, "mesh", {"mesh": {"a": np.array([None, {}], object)}})
    with pytest.raises(ValueError, match="does not belong to mesh"):
        arrays.stage(tmp_path, "mesh", {"dynamic": {"a": np.zeros(1)}})
    assert list(tmp_path.iterdir()) == []


def test_publishing_removes_what_this_scoring_did_not_write(tmp_path: Path) -> None:
    for file in ("uni3d.npz", "uni3d_clouds.npz", "mesh.npz"):
        (tmp_path / file).write_bytes(b"old")
    staged(tmp_path, "uni3d", "uni3d", {"a": np.zeros(1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mesh.npz", "uni3d.npz"]


def test_leftovers_are_swept(tmp_path: Path) -> None:
    for name in (".mesh.npz.staged", ".reward.json.abc.tmp", ".lock", "reward.json", "notes.tmp"):
        (tmp_path / name).write_bytes(b"")
    arrays.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "notes.tmp", "reward.json"]


def test_every_type_has_its_groups() -> None:
    assert set(arrays.GROUPS) == {entry.name for entry in TYPES}
    files = arrays.files_of(arrays.GROUPS)
    assert len(files) == len(set(files))
