"""Camera and visibility files: read as NumPy reads them, and nothing in them is ever run."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import persist_lab as lab
import pytest

from persistbench.cameras import Cameras, read_cameras, read_visibility, visibility_groups, write_cameras
from persistbench.safeload import LARGEST, load


def npy(path: Path, body: bytes) -> Path:
    """A 0-d object array whose pickle is ``body``."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
    path.write_bytes(stream.getvalue() + body)
    return path


VALUES = [
    {"cam_poses": lab.poses(3), "cam_intrinsic": lab.intrinsic(np.float32)},
    {"view_0_visibility": [0.5, 1, 0, np.float64(0.25)], "more": {"a": (1, None, "x", b"y")}},
    {"a": np.arange(6, dtype=">i2").reshape(2, 3), "b": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
    {"a": np.array([], np.float32), "b": np.array(True), "c": np.float16(2)},
    {"a": np.arange(24)[::2].reshape(3, 4).T},
]


def plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return (value.dtype.kind, value.itemsize, value.shape, value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_what_numpy_saves_is_read(value: dict, protocol: int, tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", pickle.dumps(np.array(value, dtype=object), protocol))
    assert plain(load(path)) == plain(np.load(path, allow_pickle=True).item())
    old = path.read_bytes().replace(b"numpy._core", b"numpy.core")
    if protocol < 2:  # names are not length-prefixed there: a file as NumPy 1 writes it
        path.write_bytes(old)
        assert plain(load(path)) == plain(value)


def test_plain_arrays_are_read(tmp_path: Path) -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros(0)):
        np.save(tmp_path / "a.npy", array)
        assert np.array_equal(load(tmp_path / "a.npy"), array)


class Trap:
    """Runs a function when unpickled."""

    def __init__(self, call: object, *words: object) -> None:
        self.call, self.words = call, words

    def __reduce__(self) -> tuple:
        return (self.call, self.words)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    traps = [
        Trap(exec, f"open({str(mark)!r}, 'w')"),
        Trap(getattr, "text", "upper"),
        Trap(__import__, "os"),
        Trap(np.frombuffer, b"12345678"),
        Trap(Path, "x"),
        Trap(np.dtype, "O"),
    ]
    for trap in traps:
        for value in (trap, {"cam_poses": trap}, np.array({"a": [trap]}, dtype=object)):
            path = npy(tmp_path / "a.npy", pickle.dumps(value))
            with pytest.raises(ValueError, match=r"a\.npy"):
                load(path)
    assert not mark.exists()


def test_records_of_arrays_that_lie_are_refused(tmp_path: Path) -> None:
    true = np.array({"a": np.arange(4.0)}, dtype=object)
    body = pickle.dumps(true, 2)
    assert b"K\x04\x85" in body  # the shape (4,)
    lies = [
        body.replace(b"K\x04\x85", b"K\x05\x85"),
        body.replace(b"K\x04\x85", b"J\xff\xff\xff\x7f\x85"),
        body.replace(b"K\x04\x85", b"J\xff\xff\xff\xff\x85"),
        body.replace(b"f8", b"O8"),
        body.replace(b"f8", b"V8"),
        body[:-20],
        b"",
        b"garbage",
        b"(" * 1000,
        pickle.dumps({"a": object()}),
        pickle.dumps({(1, 2): 3}),
        pickle.dumps(np.array([{}, {}], dtype=object)),
    ]
    deep: list = []
    for _ in range(60):
        deep = [deep]
    for lie in [*lies, pickle.dumps(deep)]:
        with pytest.raises(ValueError, match=r"a\.npy"):
            load(npy(tmp_path / "a.npy", lie))
    for text in (b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{}", b"PK\x03\x04"):
        (tmp_path / "a.npy").write_bytes(text)
        with pytest.raises(ValueError, match=r"a\.npy"):
            load(tmp_path / "a.npy")
    with (tmp_path / "big.npy").open("wb") as big:
        big.truncate(LARGEST + 1)
    with pytest.raises(ValueError, match="larger than"):
        load(tmp_path / "big.npy")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"cam_poses": np.zeros((3, 3, 4))}, "cam_poses"),
        ({"cam_poses": np.full((3, 4, 4), np.nan)}, "not finite"),
        ({"cam_poses": np.array(["a"])}, "a.npy"),
        ({"cam_intrinsic": np.zeros((4, 4))}, "cam_intrinsic"),
        ({"cam_intrinsic": None}, "cam_intrinsic"),
    ],
)
def test_cameras_that_are_refused(changed: dict, fault: str, tmp_path: Path) -> None:
    lab.save_dict(
        tmp_path / "a.npy", {"cam_poses": lab.poses(3), "cam_intrinsic": lab.intrinsic(), **changed}
    )
    with pytest.raises(ValueError, match=fault):
        read_cameras(tmp_path / "a.npy")


def test_cameras_survive_a_round_trip(tmp_path: Path) -> None:
    given = Cameras(lab.poses(3).astype(np.float32), lab.intrinsic(np.int64))
    write_cameras(tmp_path / "a.npy", given)
    read = read_cameras(tmp_path / "a.npy")
    assert read.poses.dtype == np.float32
    assert read.intrinsic.dtype == np.int64
    assert np.array_equal(read.poses, given.poses)


def test_visibility(tmp_path: Path) -> None:
    for value in ([0, 0.5, 1], (0, 0.5, 1), np.array([0, 0.5, 1], np.float32)):
        lab.save_dict(tmp_path / "a.npy", {"view_0_visibility": value})
        assert read_visibility(tmp_path / "a.npy").tolist() == [0, 0.5, 1]
    visible, invisible = visibility_groups(np.array([0.7, 0.71, 0.3, 0.29, np.nan]))
    assert visible.tolist() == [False, True, False, False, False]
    assert invisible.tolist() == [False, False, False, True, False]
    for value in ({}, {"view_0_visibility": []}, {"view_0_visibility": ["x"]}, {"view_0_visibility": [[1]]}):
        lab.save_dict(tmp_path / "a.npy", value)
        with pytest.raises(ValueError, match=r"a\.npy"):
            read_visibility(tmp_path / "a.npy")
