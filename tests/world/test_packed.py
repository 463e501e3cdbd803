"""Packed worlds: round trips, and the published format against plain h5py code."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
from packed_worlds import members, naive_unpack, tree, write_series, write_small

from world.npz import Archive, write_archive
from world.packed import deflate, reading, unpack, zipwriter
from world.packed.compare import differences
from world.packed.filters import CHOICES
from world.packed.layout import PackedError
from world.packed.pack import pack_world
from world.packed.reading import open_packed
from world.packed.unpack import unpack_world
from world.packed.zipwriter import ArchiveWriter, array_header, array_size, pack

CASES = ("cloth", "fracture", "grain", "mixed", "near", "rigid", "tet")


@pytest.mark.parametrize("case", CASES)
def test_a_world_comes_back_as_it_was(fixture_worlds: Path, tmp_path: Path, case: str) -> None:
    world = fixture_worlds / "data/synthetic" / case / "world"
    pack_world(world, tmp_path / "packed.h5")
    assert list(differences(world, tmp_path / "packed.h5")) == []
    unpack_world(tmp_path / "packed.h5", tmp_path / "world")
    assert tree(tmp_path / "world") == tree(world)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_filter_for_writing_can_be_read(fixture_worlds: Path, tmp_path: Path, choice: str) -> None:
    world = fixture_worlds / "data/synthetic/mixed/world"
    pack_world(world, tmp_path / "packed.h5", choice=choice)
    unpack_world(tmp_path / "packed.h5", tmp_path / "world")
    assert tree(tmp_path / "world") == tree(world)


def test_what_is_packed_is_the_published_format(fixture_worlds: Path, tmp_path: Path) -> None:
    world = fixture_worlds / "data/synthetic/fracture/world"
    pack_world(world, tmp_path / "packed.h5")
    naive_unpack(tmp_path / "packed.h5", tmp_path / "naive")
    assert tree(tmp_path / "naive") == tree(world)


LOSSLESS = {
    "zstd": hdf5plugin.Zstd(clevel=3),
    "zstd, one chunk": {**hdf5plugin.Zstd(), "chunks": True},
    "blosc": hdf5plugin.Blosc(cname="zstd"),
    "blosc2": hdf5plugin.Blosc2(cname="lz4"),
    "bitshuffle": hdf5plugin.Bitshuffle(),
    "bzip2": hdf5plugin.BZip2(),
    "lz4": hdf5plugin.LZ4(),
    "gzip, shuffle, checksum": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "contiguous": {},
}


@pytest.mark.parametrize("options", LOSSLESS.values(), ids=LOSSLESS)
def test_however_it_was_written(tmp_path: Path, options: dict[str, object]) -> None:
    write_small(tmp_path / "packed.h5", **options)
    naive_unpack(tmp_path / "packed.h5", tmp_path / "naive")
    unpack_world(tmp_path / "packed.h5", tmp_path / "world")
    assert tree(tmp_path / "world") == tree(tmp_path / "naive")


@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
@pytest.mark.parametrize(
    "chunk", [(1, 50, 3), (3, 7, 2), (4, 50, 3), (2, 50, 1), None], ids=lambda chunk: str(chunk)
)
def test_blocks_and_chunks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, chunk: tuple[int, ...] | None
) -> None:
    for module in (reading, unpack):
        monkeypatch.setattr(module, "BLOCK", block)
    rng = np.random.default_rng(2)
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file["camera.json"] = np.frombuffer(b"{}" * 500, np.uint8)
        options = {"chunks": chunk, "compression": "gzip"} if chunk else {}
        mesh = file.create_group("meshes/1")
        mesh.create_dataset("pos", data=rng.normal(size=(11, 50, 3)).astype(np.float32), **options)
        sizes = [0, 3, 0, 200, 1, 1, 40, 0]
        flat = {at: rng.integers(0, 9, (size, 3)).astype(np.int32) for at, size in enumerate(sizes, 5)}
        write_series(mesh, "faces", flat, **({"chunks": (17, 3)} if chunk else {}))
        same = rng.normal(size=(50, 3)).astype(np.float32)
        write_series(mesh, "vertices", dict.fromkeys(range(4), same), **options)
    naive_unpack(tmp_path / "packed.h5", tmp_path / "naive")
    told: list[int] = []
    unpack_world(tmp_path / "packed.h5", tmp_path / "world", told.append)
    expected = tree(tmp_path / "naive") | {"dynamics": None}
    assert tree(tmp_path / "world") == expected
    with open_packed(tmp_path / "packed.h5") as world:
        assert sum(told) == sum(unit.raw for unit in world.units())


def test_types_shapes_and_names(tmp_path: Path) -> None:
    world = tmp_path / "world"
    for directory in ("meshes", "dynamics", "solver/cache/config"):
        (world / directory).mkdir(parents=True)
    (world / "camera.json").write_text("{}")
    (world / "empty").write_bytes(b"")
    (world / "solver/cache/config/config_0001.uni").write_bytes(bytes(range(256)))
    arrays = {
        "scalar": np.float64(1.5),
        "flags": np.array([True, False]),
        "half": np.arange(3, dtype=np.float16),
        "big": np.arange(3, dtype=">i8"),
        "none": np.zeros((0, 3), np.float32),
        "thin_0000": np.zeros((5, 0), np.float32),
        "thin_0001": np.zeros((5, 0), np.float32),
        "mixed_0000": np.zeros((2, 3), np.float32),
        "mixed_0001": np.zeros((2, 4), np.float32),
        "wide_00012": np.arange(6, dtype=np.int32).reshape(2, 3),
        "wide_00013": np.arange(9, dtype=np.int32).reshape(3, 3),
        "both": np.zeros(1, np.uint8),
        "both_0001": np.zeros(2, np.uint8),
        "deep_name_0003": np.ones((1, 3), np.uint16),
        "point_0000": np.float32(1),
    }
    write_archive(world / "meshes/1.npz", {name: np.asarray(array) for name, array in arrays.items()})
    pack_world(world, tmp_path / "packed.h5")
    assert list(differences(world, tmp_path / "packed.h5")) == []
    unpack_world(tmp_path / "packed.h5", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(world)
    with h5py.File(tmp_path / "packed.h5") as file:
        assert sorted(file["meshes/1"]) == [
            "big", "both", "both_0001", "deep_name", "flags", "half", "mixed_0000", "mixed_0001", "none",
            "point_0000", "scalar", "thin", "wide",
        ]  # fmt: skip
        assert file["meshes/1/wide"].attrs["width"] == 5


def test_column_major_arrays_come_back_row_major(tmp_path: Path) -> None:
    (tmp_path / "world/meshes").mkdir(parents=True)
    (tmp_path / "world/camera.json").write_text("{}")
    array = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3))
    np.savez(tmp_path / "world/meshes/1.npz", vertices_0000=array)
    pack_world(tmp_path / "world", tmp_path / "packed.h5")
    assert list(differences(tmp_path / "world", tmp_path / "packed.h5")) == []
    unpack_world(tmp_path / "packed.h5", tmp_path / "back")
    with Archive.open(tmp_path / "back/meshes/1.npz") as archive:
        assert not archive.header("vertices_0000").fortran
        assert np.array_equal(archive.read("vertices_0000"), array)


def test_files_packed_as_opaque_or_text(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file["camera.json"] = np.void(b"opaque\0\0")
        file["solver/text"] = np.bytes_(b"text\0".ljust(8, b"\0"))
        file["solver/raw"] = np.array([-1, 2], np.int8)
    unpack_world(tmp_path / "packed.h5", tmp_path / "world")
    assert (tmp_path / "world/camera.json").read_bytes() == b"opaque\0\0"
    assert (tmp_path / "world/solver/text").read_bytes().rstrip(b"\0") == b"text"
    assert (tmp_path / "world/solver/raw").read_bytes() == b"\xff\x02"
    assert (tmp_path / "world/meshes").is_dir()
    assert (tmp_path / "world/dynamics").is_dir()


def test_archives_beyond_32_bits_can_be_read_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipwriter, "_WIDE_FROM", 100)
    arrays = {f"a{number}": np.arange(number * 40, dtype=np.int16) for number in range(5)}
    with ArchiveWriter(tmp_path / "wide.npz") as archive:
        for number, (name, array) in enumerate(arrays.items()):
            header = array_header(array.shape, array.dtype)
            if number % 2:
                archive.add(name, pack(header, array.tobytes()))
            else:
                size = array_size(array.shape, array.dtype)
                archive.stream(name, header, [array.tobytes()[:7], array.tobytes()[7:]], size)
    with zipfile.ZipFile(tmp_path / "wide.npz") as archive:
        assert archive.testzip() is None
    with np.load(tmp_path / "wide.npz") as loaded, Archive.open(tmp_path / "wide.npz") as ours:
        for name, array in arrays.items():
            assert np.array_equal(loaded[name], array)
            assert np.array_equal(ours.read(name), array)


def test_more_members_than_a_short_directory_counts(tmp_path: Path) -> None:
    data = pack(array_header((0,), np.dtype(np.uint8)), b"")
    with ArchiveWriter(tmp_path / "many.npz") as archive:
        for number in range(70_000):
            archive.add(f"a{number}", data)
    with zipfile.ZipFile(tmp_path / "many.npz") as archive:
        assert len(archive.namelist()) == 70_000
        assert archive.read("a69999.npy") == array_header((0,), np.dtype(np.uint8))


def test_a_member_of_another_size_than_announced_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'a' got 4 bytes, not 9"), ArchiveWriter(tmp_path / "a") as archive:
        archive.stream("a", b"head", [], 9)


def test_same_world_same_bytes(fixture_worlds: Path, tmp_path: Path) -> None:
    pack_world(fixture_worlds / "data/synthetic/tet/world", tmp_path / "packed.h5")
    for name in ("a", "b"):
        unpack_world(tmp_path / "packed.h5", tmp_path / name)
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert all(
        path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
        for path in files
    )


def test_without_isal_zlib_writes_the_same_arrays(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    code = (
        "import sys; sys.modules['isal'] = None; from pathlib import Path\n"
        "from world.packed.deflate import ENGINE; from world.packed.unpack import unpack_world\n"
        "unpack_world(Path(sys.argv[1]), Path(sys.argv[2])); print(ENGINE)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "packed.h5"), str(tmp_path / "zlib")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "zlib\n"
    assert deflate.ENGINE == "isal"
    unpack_world(tmp_path / "packed.h5", tmp_path / "isal")
    assert tree(tmp_path / "zlib") == tree(tmp_path / "isal")


def test_packing_refuses_what_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    with pytest.raises(PackedError, match=r"holds no camera\.json"):
        pack_world(tmp_path / "world", tmp_path / "packed.h5")
    (tmp_path / "world/camera.json").write_text("{}")
    (tmp_path / "world/render.mp4").symlink_to("camera.json")
    with pytest.raises(PackedError, match=r"render.mp4 is neither a file nor a directory"):
        pack_world(tmp_path / "world", tmp_path / "packed.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["world"]


def test_differences_are_found(fixture_worlds: Path, tmp_path: Path) -> None:
    world = fixture_worlds / "data/synthetic/tet/world"
    pack_world(world, tmp_path / "packed.h5", choice="none")
    with h5py.File(tmp_path / "packed.h5", "r+") as file:
        name = next(iter(file["meshes/1"]))
        inner = file["meshes/1"][name]
        data = inner["stack"] if "stack" in inner else inner["flat"]
        data[0] = data[0] + 1
        file["camera.json"][0] = 0
        file["extra"] = np.zeros(1, np.uint8)
        del file["render.mp4"]
    found = list(differences(world, tmp_path / "packed.h5"))
    assert found[:3] == [
        "extra: only in the packed file",
        "render.mp4: only in the world",
        "camera.json: other bytes",
    ]
    assert found[3].startswith(f"meshes/1.npz: array {name}_0000 differs")


def test_the_worker_answers_line_by_line(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    questions = [
        {"do": "inspect", "packed": str(tmp_path / "packed.h5")},
        {"do": "inspect", "packed": str(tmp_path / "none.h5")},
        {
            "do": "unpack", "packed": str(tmp_path / "packed.h5"), "path": str(tmp_path / "1.npz"),
            "unit": {"kind": "archive", "node": "/meshes/1", "target": "meshes/1.npz", "raw": 1, "memory": 1},
        },
        {
            "do": "unpack", "packed": str(tmp_path / "packed.h5"), "path": str(tmp_path / "none/1.npz"),
            "unit": {"kind": "archive", "node": "/meshes/1", "target": "meshes/1.npz", "raw": 1, "memory": 1},
        },
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "world.packed.worker"],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    inspected, missing, unpacked, nowhere = map(json.loads, done.stdout.splitlines())
    assert {unit["target"] for unit in inspected["done"]} == {
        "camera.json", "render.mp4", "meshes/1.npz", "dynamics/ball.npz",
    }  # fmt: skip
    assert missing["error"] == "cannot be opened: No such file or directory"
    assert unpacked["done"]["size"] == (tmp_path / "1.npz").stat().st_size
    assert len(members(tmp_path / "1.npz")) == 8
    assert nowhere["errno"] == 2
