"""Archives against NumPy's reader, and archives made to harm."""

from __future__ import annotations

import io
import os
import pickle
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from world.npz import Archive, ArchiveError, write_archive

DTYPES = st.sampled_from(["<f4", "<f8", "<i4", "<i8", "<u2", "|u1", "|b1", ">f4", "<U5"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)
PLAIN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def packed(path: Path, member: bytes, *, method: int = zipfile.ZIP_DEFLATED, name: str = "x.npy") -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, member)
    return path


def read_all(path: Path) -> dict[str, np.ndarray]:
    with Archive.open(path) as archive:
        return {name: archive.read(name) for name in archive.names}


@PLAIN
@given(arrays=st.dictionaries(
    st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
    DTYPES.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), SHAPES)),
    min_size=1, max_size=4,
), compress=st.booleans())  # fmt: skip
def test_reads_what_numpy_writes(tmp_path: Path, arrays: dict[str, Any], compress: bool) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compress else np.savez)(path, allow_pickle=False, **arrays)
    read = read_all(path)
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        assert read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()


def test_numpy_reads_what_we_write(tmp_path: Path) -> None:
    arrays = {"a": np.arange(12.0).reshape(3, 4), "b": np.asfortranarray(np.eye(3)), "c": np.float32(2)}
    for compress in (True, False):
        write_archive(tmp_path / "a.npz", arrays, compress=compress)
        with np.load(tmp_path / "a.npz") as read:
            assert list(read) == list(arrays)
            assert all(np.array_equal(read[name], arrays[name]) for name in arrays)


def test_same_arrays_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_archive(tmp_path / name, {"x": np.arange(10)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_in_any_order(tmp_path: Path, save: Any) -> None:
    pos = np.random.default_rng(0).random((40, 500, 3)).astype(np.float32)
    save(tmp_path / "a.npz", pos=pos)
    with Archive.open(tmp_path / "a.npz") as archive:
        for start, stop in ((0, 1), (1, 7), (30, 40), (5, 6), (40, 40), (0, 40)):
            assert np.array_equal(archive.rows("pos", start, stop), pos[start:stop])
        for start, stop in ((-1, 2), (3, 2), (0, 41)):
            with pytest.raises(ArchiveError, match="no rows"):
                archive.rows("pos", start, stop)


def test_arrays_are_read_only(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        read_all(tmp_path / "a.npz")["x"][0] = 1


def test_limit(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(5000))
    with Archive.open(tmp_path / "a.npz") as archive, pytest.raises(ArchiveError, match="at most"):
        archive.read("x", limit=1000)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (header("(10000000000000, 3)"), "declares shape"),
        (header("(1" + "0" * 400 + ", 3)"), "declares shape"),
        (header("(-1, 3)"), "declares the shape"),
        (header("(True,)") + bytes(4), "declares the shape"),
        (header("(1,)", "'|O'") + bytes(8), "pickled"),
        (header("(1,)", "[('a', '<f4')]") + bytes(4), "no plain number type"),
        (header("(1,)", "('<f4', (2,))") + bytes(8), "number type|unreadable header|declares"),
        (header("(" * 900 + ")" * 900), "unreadable header"),
        (header("(2,)") + bytes(4), "declares shape"),
        (header("(1,)") + bytes(8), "declares shape"),
        (b"\x93NUMPY\x01\x00\xff\xff" + bytes(60), "header of 65535 bytes"),
        (b"\x93NUMPY\x09\x00" + bytes(60), "not an array"),
        (b"hello, this is no array at all", "not an array"),
        (b"", "not an array"),
        (pickle.dumps(list(range(10))), "not an array"),
    ],
)
def test_bad_members(tmp_path: Path, member: bytes, message: str) -> None:
    packed(tmp_path / "a.npz", member)
    with pytest.raises(ArchiveError, match=message):
        read_all(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (os.urandom(500), "not a ZIP"),
        (b"\x93NUMPY\x01\x00", "not a ZIP"),
        (b"PK\x05\x06", "ZIP"),
    ],
)
def test_not_an_archive(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ArchiveError, match=message):
        read_all(tmp_path / "a.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unknown_compression(tmp_path: Path, method: int) -> None:
    packed(tmp_path / "a.npz", header("(0,)"), method=method)
    with pytest.raises(ArchiveError, match="only stored and deflated"):
        read_all(tmp_path / "a.npz")


def test_encrypted_member(tmp_path: Path) -> None:
    data = bytearray(packed(tmp_path / "a.npz", header("(0,)")).read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ArchiveError, match="encrypted"):
        read_all(tmp_path / "a.npz")


def test_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    """1.5 GiB of zeros in 1.5 MiB."""
    size = 3 << 29
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as stream:
            stream.write(header(f"({size},)", "'|u1'"))
            for _ in range(size >> 20):
                stream.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Archive.open(tmp_path / "a.npz") as archive, pytest.raises(ArchiveError, match="refused"):
        archive.read("x", limit=1 << 40)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header("(0,)"))
        archive.writestr("x.npy", header("(0,)"))
    with pytest.raises(ArchiveError, match="two members"):
        read_all(tmp_path / "a.npz")


def test_pipe_directory_and_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.npz").mkdir()
    for name in ("pipe.npz", "folder.npz", "none.npz", "x" * 300, "a\0b"):
        with pytest.raises(ArchiveError):
            Archive.open(tmp_path / name)


def test_truncated_and_flipped(tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "good.npz", pos=np.random.default_rng(0).random((50, 40, 3)), ids=np.arange(3)
    )
    good = (tmp_path / "good.npz").read_bytes()
    rng = np.random.default_rng(1)
    path = tmp_path / "bad.npz"
    for cut in rng.integers(0, len(good), 40):
        path.write_bytes(good[:cut])
        with pytest.raises(ArchiveError):
            read_all(path)
    for _ in range(400):
        data = bytearray(good)
        for at in rng.integers(0, len(good), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        path.write_bytes(data)
        try:
            read = read_all(path)
        except ArchiveError:
            continue
        # What is read in spite of the damage was not part of the data (a date, a flag that nobody reads).
        assert {array.tobytes() for array in read.values()} <= {
            array.tobytes() for array in read_all(tmp_path / "good.npz").values()
        }


@PLAIN
@given(st.binary(max_size=300))
def test_arbitrary_members_never_crash(tmp_path: Path, data: bytes) -> None:
    for member in (data, b"\x93NUMPY\x01\x00" + data, header("(1,)")[:-20] + data):
        packed(tmp_path / "a.npz", member)
        try:
            read_all(tmp_path / "a.npz")
        except ArchiveError as error:
            assert "\n" not in str(error)


def test_zip64_records(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.arange(5))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        with archive.open(zipfile.ZipInfo("x.npy"), "w", force_zip64=True) as stream:
            stream.write(buffer.getvalue())
    assert np.array_equal(read_all(tmp_path / "a.npz")["x"], np.arange(5))


@pytest.mark.parametrize(
    "text",
    [
        "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}",
        '{"descr": "<f4", "fortran_order": False, "shape": (2, 3,)}',
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,3), }",
        "  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    ],
)
def test_unusual_headers_are_read_as_numpy_reads_them(tmp_path: Path, text: str) -> None:
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(24)
    packed(tmp_path / "a.npz", member)
    with np.load(tmp_path / "a.npz") as archive:
        expected = archive["x"]
    assert np.array_equal(read_all(tmp_path / "a.npz")["x"], expected)


@PLAIN
@given(st.text("{}'(),: 0123456789<f4|OuiTrueFalse_descrshapefortran_order[]\n-", max_size=60), st.booleans())
def test_headers_are_judged_as_numpy_judges_them(tmp_path: Path, text: str, inside: bool) -> None:
    """Never more lenient than NumPy, and the same answer where both read it."""
    if inside:
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({text}), }}"
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    packed(tmp_path / "a.npz", member)
    try:
        ours = read_all(tmp_path / "a.npz")["x"]
    except ArchiveError:
        return
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["x"].shape == ours.shape


def test_numpys_headers_never_reach_pythons_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11's parser fails at random when several threads use it."""

    def refuse(*_: object) -> None:
        raise AssertionError

    arrays = {
        "a": np.zeros((2, 3), "f4"),
        "b": np.zeros(4, ">i2"),
        "c": np.float64(1),
        "d": np.zeros((0, 3), "i4"),
    }
    np.savez(
        tmp_path / "a.npz", **arrays, e=np.asfortranarray(np.eye(3)), f=np.array(["ab"]), g=np.zeros(1, "?")
    )
    expected = dict(np.load(tmp_path / "a.npz"))
    monkeypatch.setattr("ast.literal_eval", refuse)
    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", refuse)
    read = read_all(tmp_path / "a.npz")
    assert all(np.array_equal(read[name], expected[name]) for name in expected)
    assert {name: array.dtype for name, array in read.items()} == {n: a.dtype for n, a in expected.items()}
