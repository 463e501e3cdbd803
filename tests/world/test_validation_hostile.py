"""Archives and trees made to break readers: a line each, no traceback, no waiting, little memory."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import socket
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from base_world import FACES, VERTICES, build_base_world, edit, load, manifest

from world.npz import Archive
from world.validation import check_world, examine

A, M1 = "dynamics/a.npz", "meshes/1.npz"
MEMORY = 48 << 20


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base"))


@pytest.fixture
def world(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base.parent, tmp_path / "workspace", symlinks=True)
    return tmp_path / "workspace" / "world"


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header(text: str, version: int = 1) -> bytes:
    data = text.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<L", len(data)) + data


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return buffer.getvalue()


def sound() -> dict[str, bytes]:
    return {"vertices_0000.npy": npy(VERTICES), "faces_0000.npy": npy(FACES)}


def mesh_with(**members: bytes) -> bytes:
    return archive(sound() | {f"{name}.npy": data for name, data in members.items()})


def huge(shape: str, descr: str = "<f4", fortran: bool = False) -> bytes:
    return header(f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/checker-was-fooled",)


def flip(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def encrypted() -> bytes:
    data = bytearray(archive(sound()))
    # The flag bit 0 of every local and central record.
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 4)
    return bytes(data)


def corrupt_deflate() -> bytes:
    data = archive(sound())
    start = 30 + len("vertices_0000.npy")
    return flip(data, start, b"\xff" * 20)


def wrong_checksum() -> bytes:
    data = archive(sound(), zipfile.ZIP_STORED)
    return data.replace(VERTICES.tobytes(), (VERTICES + 1).tobytes())


def lying_size() -> bytes:
    """The directory claims that a member unpacks to 4 GiB less 2 bytes."""
    data = bytearray(archive(sound()))
    at = data.find(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<L", 0xFFFFFFFE)
    return bytes(data)


def zeros(rows: int) -> bytes:
    """``rows`` rows of zero vertices, deflated a thousandfold."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        with out.open("vertices_0000.npy", "w", force_zip64=True) as member:
            member.write(huge(f"({rows}, 3)"))
            block = bytes(12 << 16)
            for start in range(0, rows, 1 << 16):
                member.write(block[: 12 * min(1 << 16, rows - start)])
        out.writestr("faces_0000.npy", npy(FACES))
    return buffer.getvalue()


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "empty file": lambda: b"",
    "random": lambda: bytes(range(256)) * 40,
    "plain npy": lambda: npy(VERTICES),
    "pickle file": lambda: pickle.dumps([1, 2, 3]),
    "truncated": lambda: archive(sound())[:-40],
    "half": lambda: archive(sound())[:200],
    "corrupt deflate": corrupt_deflate,
    "wrong checksum": wrong_checksum,
    "lying size": lying_size,
    "encrypted": encrypted,
    "bzip2": lambda: archive(sound(), zipfile.ZIP_BZIP2),
    "lzma": lambda: archive(sound(), zipfile.ZIP_LZMA),
    "raw member": lambda: archive(sound() | {"vertices_0001": b"hello", "faces_0001": b"hello"}),
    "empty member": lambda: mesh_with(vertices_0001=b"", faces_0001=npy(FACES)),
    "objects": lambda: mesh_with(vertices_0001=npy(np.array([Bomb()], object)), faces_0001=npy(FACES)),
    "raw pickle": lambda: mesh_with(vertices_0001=pickle.dumps(Bomb()), faces_0001=npy(FACES)),
    "absurd shape": lambda: mesh_with(vertices_0001=huge("(10000000000000, 3)"), faces_0001=npy(FACES)),
    "shape beyond integers": lambda: mesh_with(vertices_0001=huge(f"({10**30}, 3)"), faces_0001=npy(FACES)),
    "shape beyond digits": lambda: mesh_with(vertices_0001=huge(f"({'9' * 5000}, 3)"), faces_0001=npy(FACES)),
    "negative shape": lambda: mesh_with(vertices_0001=huge("(-1, 3)"), faces_0001=npy(FACES)),
    "shape of texts": lambda: mesh_with(vertices_0001=huge("('a', 3)"), faces_0001=npy(FACES)),
    "shape of booleans": lambda: mesh_with(
        vertices_0001=huge("(True, 3)") + bytes(12), faces_0001=npy(FACES)
    ),
    "code in a header": lambda: mesh_with(
        vertices_0001=header("__import__('os').abort()"), faces_0001=npy(FACES)
    ),
    "deep header": lambda: mesh_with(vertices_0001=header("(" * 3000), faces_0001=npy(FACES)),
    "long header": lambda: mesh_with(vertices_0001=header("x" * 60_000), faces_0001=npy(FACES)),
    "header beyond its end": lambda: mesh_with(
        vertices_0001=b"\x93NUMPY\x03\x00\xff\xff\xff\xff{}", faces_0001=npy(FACES)
    ),
    "unknown version": lambda: mesh_with(
        vertices_0001=b"\x93NUMPY\x09\x00" + npy(VERTICES)[8:], faces_0001=npy(FACES)
    ),
    "structured": lambda: mesh_with(
        vertices_0001=npy(np.zeros(4, [("x", "f4"), ("o", "O")])), faces_0001=npy(FACES)
    ),
    "short data": lambda: mesh_with(vertices_0001=npy(VERTICES)[:-4], faces_0001=npy(FACES)),
    "long data": lambda: mesh_with(vertices_0001=npy(VERTICES) + b"more", faces_0001=npy(FACES)),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archive_is_one_line(world: Path, name: str) -> None:
    (world / M1).write_bytes(ARCHIVES[name]())
    (world / A).write_bytes(ARCHIVES[name]())
    for scorer in (False, True):
        found = check_world(world, scorer=scorer)
        assert [item.name for item in found] == [M1, A]
        assert found[0].field == "npz"
        assert all(len(str(item).splitlines()) == 1 for item in found)
    assert not Path("/tmp/checker-was-fooled").exists()


def peak_of(world: Path) -> tuple[list[tuple[str, str]], int]:
    tracemalloc.start()
    try:
        found = [(item.name, item.field) for item in check_world(world)]
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bomb_is_refused_unopened(world: Path) -> None:
    """A header of 100 million rows in a member that claims to unpack to them."""
    rows = 100_000_000
    data = bytearray(
        archive({"vertices_0000.npy": huge(f"({rows}, 3)") + bytes(10**6), "faces_0000.npy": npy(FACES)})
    )
    at = data.find(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<L", len(huge(f"({rows}, 3)")) + 12 * rows)
    (world / M1).write_bytes(bytes(data))
    found, peak = peak_of(world)
    assert found == [(M1, "npz")]
    assert peak < MEMORY
    assert "refused" in check_world(world)[0].text


def test_many_zeros_are_looked_through_in_blocks(world: Path) -> None:
    """120 MB of vertices from 120 kB: sound, and never in memory as a whole."""
    (world / M1).write_bytes(zeros(10_000_000))
    found, peak = peak_of(world)
    assert found == []
    assert peak < MEMORY


def test_long_takes_are_looked_through_in_blocks(world: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        with out.open("pos.npy", "w") as member:
            member.write(huge("(4, 2500000, 3)"))
            for _ in range(4):
                member.write(bytes(12 * 2_500_000))
        out.writestr("ids.npy", npy(np.array([1], np.uint16)))
    (world / A).write_bytes(buffer.getvalue())
    found, peak = peak_of(world)
    assert found == []
    # One frame is 30 MB; its masks and the counts of lives come on top.
    assert peak < 4 * MEMORY


def test_overlapping_members_are_refused(world: Path) -> None:
    """The quine-like bomb: many directory entries that share one packed member."""
    data = bytearray(archive(sound()))
    start = data.find(b"PK\x01\x02")
    entry_length = 46 + len("vertices_0000.npy")
    entry = bytes(data[start : start + entry_length])
    end = data.find(b"PK\x05\x06")
    entries = [entry.replace(b"vertices_0000", f"vertices_{i:04d}".encode()) for i in range(1, 5000)]
    directory = bytes(data[start:end]) + b"".join(entries)
    count = 2 + len(entries)
    record = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), start, 0)
    (world / M1).write_bytes(bytes(data[:start]) + directory + record)
    found = check_world(world)
    assert [(item.name, item.field) for item in found] == [(M1, "npz")]
    assert "overlap" in found[0].text


def test_many_small_bombs_are_refused_together(world: Path) -> None:
    """No single member is large, but all of them together would take minutes."""
    zeros_once = huge("(10000000, 3)") + bytes(12 * 10**7)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("vertices_0000.npy", zeros_once)
    data = buffer.getvalue()
    start = data.find(b"PK\x01\x02")
    local, entry = data[:start], data[start : start + 46 + 17]
    count = 40
    entries = b"".join(
        entry[:42] + struct.pack("<L", i * len(local)) + f"vertices_{i:04d}.npy".encode()
        for i in range(count)
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), count * len(local), 0)
    (world / M1).write_bytes(local * count + entries + end)
    (found,) = check_world(world)
    assert (found.field, "refused" in found.text) == ("npz", True)


def test_too_many_members(world: Path) -> None:
    (world / M1).write_bytes(archive({f"m{i}.npy": b"" for i in range(20_200)}, zipfile.ZIP_STORED))
    (found,) = check_world(world)
    assert (found.field, "20200" in found.text or "20100" in found.text) == ("npz", True)


def test_duplicate_members(world: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("vertices_0000.npy", npy(VERTICES))
        with pytest.warns(UserWarning, match="Duplicate"):
            out.writestr("vertices_0000.npy", npy(VERTICES + 1))
    (world / M1).write_bytes(buffer.getvalue())
    assert [item.field for item in check_world(world)] == ["npz"]


def test_pipes_sockets_and_directories_do_not_block(world: Path, tmp_path: Path) -> None:
    for path in (world / M1, world / A, world / "camera.json", world / "render.mp4"):
        path.unlink()
        os.mkfifo(path)
    (world / "meshes" / "3.npz").mkdir()
    short = Path("/tmp") / f"checker-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short))
        shutil.move(short, world / "meshes" / "4.npz")
        (world / "dynamics" / "b.npz").symlink_to("/dev/zero")
        manifest(world)
        (world / "solver" / "manifest.json").unlink()
        os.mkfifo(world / "solver" / "manifest.json")
        found = examine(world, links=False)
    assert [(item.name, item.field) for item in found.violations] == [
        ("camera.json", "json"),
        ("render.mp4", "ffprobe"),
        (M1, "npz"),
        ("meshes/3.npz", "npz"),
        ("meshes/4.npz", "npz"),
        (A, "npz"),
        ("dynamics/b.npz", "npz"),
    ]
    assert "pipe" in found.violations[2].text
    assert "socket" in found.violations[4].text


def test_links_that_lead_in_circles_or_nowhere(world: Path) -> None:
    (world / M1).unlink()
    (world / M1).symlink_to("1.npz")
    (world / A).unlink()
    (world / A).symlink_to("gone.npz")
    (world / "solver").symlink_to("gone")
    found = [(item.name, item.field) for item in check_world(world)]
    expected = [("world/solver", ""), ("world/dynamics/a.npz", ""), ("world/meshes/1.npz", "")]
    assert found == [*expected, (M1, "npz"), (A, "npz")]


def test_names_that_are_not_text(world: Path) -> None:
    name = os.fsencode(world / "meshes") + b"/\xff\n9.npz"
    Path(os.fsdecode(name)).write_bytes(b"")
    (found,) = check_world(world)
    assert found.field == "name"
    line = str(found)
    assert line.isprintable()
    line.encode("utf-8")


def test_huge_json_is_not_read(world: Path) -> None:
    with (world / "camera.json").open("wb") as stream:
        stream.truncate(1 << 33)
    found, peak = peak_of(world)
    assert found == [("camera.json", "json")]
    assert peak < MEMORY


def test_unreadable_directories(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without the right to list them (root may list all, so the failure is staged)."""

    def refuse(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    found = [(item.name, item.field) for item in check_world(world)]
    assert found == [("meshes", "path"), ("dynamics", "path")]


@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes_never_escape(world: Path, seed: int) -> None:
    """Flip, cut and repeat bytes anywhere in the archives: whatever comes, it comes as violations."""
    rng = np.random.default_rng(seed)
    edit(world / A, load(world / A))
    originals = {path: (world / path).read_bytes() for path in (M1, A, "camera.json")}
    for _ in range(25):
        for path, data in originals.items():
            spoilt = bytearray(data)
            for _ in range(int(rng.integers(1, 6))):
                spoilt[int(rng.integers(len(spoilt)))] = int(rng.integers(256))
            if rng.random() < 0.2:
                del spoilt[int(rng.integers(len(spoilt))) :]
            (world / path).write_bytes(bytes(spoilt))
        for scorer in (False, True):
            for item in examine(world, scorer=scorer).violations:
                assert item.text


def test_blocks_see_every_byte(tmp_path: Path) -> None:
    """The block reader returns what NumPy wrote, however the blocks fall."""
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(1000, 3)).astype("f4"),
        "b": np.asfortranarray(rng.normal(size=(10, 7, 3))),
        "c": np.zeros((0, 3), "i4"),
        "d": np.float32(2),
        "e": np.zeros((5, 0), "u2"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        with Archive.open(tmp_path / "x.npz") as opened:
            for size in (1, 100, 4096, 1 << 20):
                for name, array in arrays.items():
                    blocks = list(opened.blocks(name, size=size))
                    joined = np.concatenate(blocks) if array.ndim else blocks[0]
                    np.testing.assert_array_equal(joined, array)
                    assert joined.dtype == array.dtype
