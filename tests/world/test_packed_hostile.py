"""Packed worlds that are broken or mean harm: each is refused in one line that says where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
from packed_worlds import write_series, write_small

from world.packed import filters, reading
from world.packed.layout import PackedError
from world.packed.reading import open_packed
from world.packed.unpack import unpack_world

Change = Callable[[h5py.File], None]
ONE = np.zeros((1, 3), np.float32)


def fault(path: Path, target: Path) -> str:
    """What is said of the file; also that nothing was written outside the target."""
    with pytest.raises(PackedError) as caught:
        unpack_world(path, target)
    text = str(caught.value)
    assert "\n" not in text
    return text


def soft(file: h5py.File) -> None:
    file["solver/link"] = h5py.SoftLink("/camera.json")


def external_link(file: h5py.File) -> None:
    file["meshes/2"] = h5py.ExternalLink("/etc/passwd", "/")


def external_storage(file: h5py.File) -> None:
    file.create_dataset("solver/secret", (16,), np.uint8, external=[("/etc/passwd", 0, 16)])


def external_array(file: h5py.File) -> None:
    file.create_dataset("meshes/1/extra", (16,), np.uint8, external=[("/etc/passwd", 0, 16)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), np.uint8)
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
    file.create_virtual_dataset("solver/virtual", layout)


def second_name(file: h5py.File) -> None:
    file["meshes/2"] = file["meshes/1"]


def cycle(file: h5py.File) -> None:
    file["solver/a/b"] = np.zeros(1, np.uint8)
    file["solver/a/up"] = file["solver"]


def text(file: h5py.File) -> None:
    file["solver/text"] = "of variable length"


def objects(file: h5py.File) -> None:
    file["meshes/1"].create_dataset("x", data=["a", "bc"], dtype=h5py.string_dtype())


def reference(file: h5py.File) -> None:
    file["meshes/1"].create_dataset("x", data=[file.ref], dtype=h5py.ref_dtype)


def compound(file: h5py.File) -> None:
    file["meshes/1/x"] = np.zeros(3, [("a", "i4")])


def named_type(file: h5py.File) -> None:
    file["meshes/type"] = np.dtype("f4")


def null(file: h5py.File) -> None:
    file["meshes/1/x"] = h5py.Empty("f4")


def number(file: h5py.File) -> None:
    file["solver/x"] = 5


def floats(file: h5py.File) -> None:
    file["solver/x"] = np.zeros(4, np.float32)


def upwards(file: h5py.File) -> None:
    file["solver/../evil"] = np.zeros(1, np.uint8)


def backslash(file: h5py.File) -> None:
    file["solver/a\\b"] = np.zeros(1, np.uint8)


def newline(file: h5py.File) -> None:
    file["solver/a\nerror: b"] = np.zeros(1, np.uint8)


def long_name(file: h5py.File) -> None:
    file["solver/" + "x" * 300] = np.zeros(1, np.uint8)


def deep(file: h5py.File) -> None:
    file["/".join(["solver"] + ["d"] * 40 + ["x"])] = np.zeros(1, np.uint8)


def no_camera(file: h5py.File) -> None:
    del file["camera.json"]


def twice(file: h5py.File) -> None:
    file["meshes/1.npz"] = np.zeros(1, np.uint8)


def file_and_directory(file: h5py.File) -> None:
    file["meshes/1.npz/x/y"] = np.zeros(1, np.uint8)


def colliding(file: h5py.File) -> None:
    file["meshes/1/faces_0000"] = ONE


def half_series(file: h5py.File) -> None:
    del file["meshes/1/faces/frames"]


def both_forms(file: h5py.File) -> None:
    file["meshes/1/faces/flat"] = ONE


def repeated_frame(file: h5py.File) -> None:
    file["meshes/1/faces/frames"][:] = [0, 0, 1, 2]


def negative_frame(file: h5py.File) -> None:
    file["meshes/1/faces/frames"][:] = [-1, 0, 1, 2]


def wide_frame(file: h5py.File) -> None:
    file["meshes/1/faces/frames"][:] = [0, 1, 2, 10_000]


def too_few(file: h5py.File) -> None:
    del file["meshes/1/faces/frames"]
    file["meshes/1/faces/frames"] = np.arange(3)


def width_text(file: h5py.File) -> None:
    file["meshes/1/faces"].attrs["width"] = "4"


def width_large(file: h5py.File) -> None:
    file["meshes/1/faces"].attrs["width"] = 10**9


def lengths(file: h5py.File) -> None:
    write_series(file["meshes/1"], "uneven", {0: ONE, 1: np.zeros((2, 3), np.float32)})
    file["meshes/1/uneven/lengths"][:] = [1, 1]


def negative_length(file: h5py.File) -> None:
    write_series(file["meshes/1"], "uneven", {0: ONE, 1: np.zeros((2, 3), np.float32)})
    file["meshes/1/uneven/lengths"][:] = [4, -1]


def huge_row(file: h5py.File) -> None:
    file["meshes/1"].create_dataset("x", (2, 1 << 40), np.uint8, chunks=(1, 1 << 20))


def huge_stack(file: h5py.File) -> None:
    inner = file["meshes/1"].create_group("x")
    inner["frames"] = np.arange(2)
    inner.create_dataset("stack", (2, 30_000_000, 3), np.float32, chunks=(1, 1000, 3))


def huge_flat_frame(file: h5py.File) -> None:
    inner = file["meshes/1"].create_group("x")
    inner["frames"], inner["lengths"] = np.arange(2), np.array([1 << 40, 1])
    inner.create_dataset("flat", ((1 << 40) + 1, 3), np.float32, chunks=(1000, 3))


def huge_rows(file: h5py.File) -> None:
    file["meshes/1"].create_dataset("x", (1 << 50, 3), np.float32, chunks=(1000, 3))


def huge_chunk(file: h5py.File) -> None:
    file["meshes/1"].create_dataset(
        "x", (300, 1 << 20, 3), np.float32, chunks=(300, 1 << 20, 3), compression=1
    )


def long_list(file: h5py.File) -> None:
    inner = file["meshes/1"].create_group("x")
    inner.create_dataset("frames", (1 << 40,), np.int64, chunks=(1000,))
    inner["stack"] = ONE


def many_frames(file: h5py.File) -> None:
    for name in "ab":
        inner = file["meshes/1"].create_group(name)
        inner.attrs["width"] = 6
        inner["frames"] = np.arange(15_000)
        inner.create_dataset("stack", (15_000, 1), np.uint8, chunks=(1000, 1))


def series_of_series(file: h5py.File) -> None:
    file["meshes/1/faces/frames2/x"] = ONE


REFUSED: list[tuple[Change, str]] = [
    (soft, "/solver/link is a link, which is never followed"),
    (external_link, "/meshes/2 is a link, which is never followed"),
    (external_storage, "/solver/secret keeps its data in other files"),
    (external_array, "/meshes/1/extra keeps its data in other files"),
    (virtual, "/solver/virtual keeps its data in other files"),
    (second_name, "another node under a second name"),
    (cycle, "another node under a second name|/solver/a/up"),
    (text, "/solver/text holds object"),
    (objects, "/meshes/1/x holds object"),
    (reference, "/meshes/1/x holds object"),
    (compound, "/meshes/1/x holds"),
    (named_type, "/meshes/type is neither a group nor a dataset"),
    (null, "/meshes/1/x holds no array"),
    (number, "/solver/x holds a number"),
    (floats, "/solver/x holds"),
    (upwards, "'..', which is no file name"),
    (backslash, "which is no file name"),
    (newline, "which is no file name"),
    (long_name, "a name of 300 bytes"),
    (deep, "nested too deeply"),
    (no_camera, "holds no camera.json"),
    (twice, "holds meshes/1.npz twice"),
    (file_and_directory, "/meshes/1.npz/x"),
    (colliding, "two arrays named 'faces_0000'"),
    (half_series, "/meshes/1/faces holds stack; expected frames with stack"),
    (both_forms, "/meshes/1/faces holds flat, frames, stack"),
    (repeated_frame, "/meshes/1/faces/frames are not different numbers"),
    (negative_frame, "/meshes/1/faces/frames holds a negative number"),
    (wide_frame, "of at most 4 digits"),
    (too_few, "holds 4 frames, not 3"),
    (width_text, "attribute width is no whole number"),
    (width_large, "attribute width is 1000000000"),
    (lengths, "give 2 frames and 2 rows, not 2 and 3"),
    (negative_length, "holds a negative number"),
    (huge_row, "at most 268435456 are read"),
    (huge_stack, "at most 268435456 are read"),
    (huge_flat_frame, "at most 268435456 are read"),
    (huge_rows, "claims to unpack"),
    (huge_chunk, "a chunk of .* at most 536870912 are read"),
    (long_list, "expected a list of at most"),
    (many_frames, "more than 20100 arrays"),
    (series_of_series, "/meshes/1/faces holds"),
]


@pytest.mark.parametrize(("change", "expected"), REFUSED, ids=[change.__name__ for change, _ in REFUSED])
def test_refused(tmp_path: Path, change: Change, expected: str) -> None:
    write_small(tmp_path / "packed.h5")
    with h5py.File(tmp_path / "packed.h5", "r+") as file:
        change(file)
    with pytest.raises(PackedError, match=expected):
        unpack_world(tmp_path / "packed.h5", tmp_path / "inside/world")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed.h5"]


def test_too_many_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_NODES", 20)
    write_small(tmp_path / "packed.h5")
    with h5py.File(tmp_path / "packed.h5", "r+") as file:
        for name in range(20):
            file[f"solver/{name}"] = np.zeros(1, np.uint8)
    assert "more than 20 nodes" in fault(tmp_path / "packed.h5", tmp_path / "world")


@pytest.mark.parametrize("content", [b"", b"text", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_no_hdf5_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "packed.h5").write_bytes(content)
    assert "is no HDF5 file, or is damaged" in fault(tmp_path / "packed.h5", tmp_path / "world")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "packed.h5")
    assert "no regular file" in fault(tmp_path / "packed.h5", tmp_path / "world")


def test_a_file_that_ends_early_at_any_place(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5", **hdf5plugin.Zstd())
    content = (tmp_path / "packed.h5").read_bytes()
    for at in range(0, len(content) - 1, 211):
        (tmp_path / "cut.h5").write_bytes(content[:at])
        fault(tmp_path / "cut.h5", tmp_path / f"world{at}")


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5", **hdf5plugin.Zstd(), chunks=True)
    with h5py.File(tmp_path / "packed.h5") as file:
        chunk = file["meshes/1/vertices/stack"].id.get_chunk_info(0)
    with (tmp_path / "packed.h5").open("r+b") as stream:
        stream.seek(chunk.byte_offset + 4)
        stream.write(b"\xff" * (chunk.size - 4))
    text = fault(tmp_path / "packed.h5", tmp_path / "world")
    assert "/meshes/1/vertices/stack: rows 0 to 3 cannot be unpacked: the file is damaged there" in text


def test_any_damage_is_a_fault_or_goes_unnoticed_but_never_a_crash(tmp_path: Path) -> None:
    """One worker process reads them all: it has to live."""
    write_small(tmp_path / "packed.h5", **hdf5plugin.Zstd())
    content = bytearray((tmp_path / "packed.h5").read_bytes())
    rng = np.random.default_rng(3)
    questions = []
    for number in range(60):
        bad = bytearray(content)
        for at in rng.integers(0, len(bad), 3):
            bad[at] ^= 1 << int(rng.integers(8))
        path = tmp_path / f"{number}.h5"
        path.write_bytes(bad)
        questions.append({"do": "inspect", "packed": str(path)})
    done = subprocess.run(
        [sys.executable, "-m", "world.packed.worker"],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, -6, -11), done.stderr
    assert len(answers) == 60 or done.returncode < 0
    assert all(("done" in answer) != ("error" in answer) for answer in answers)


def test_a_filter_that_is_not_installed_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small(tmp_path / "packed.h5", **hdf5plugin.Zstd())
    monkeypatch.setattr("h5py.h5z.filter_avail", lambda code: code != 32015)
    text = fault(tmp_path / "packed.h5", tmp_path / "world")
    assert text == (
        "/dynamics/ball/pos is stored with HDF5 filter 32015 (Zstandard), which this installation cannot "
        "undo; install hdf5plugin: pip install 'fourdcodebench[data]'"
    )
    assert not (tmp_path / "world").exists()


def test_without_hdf5plugin_the_message_is_the_same(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5", **hdf5plugin.Zstd())
    code = (
        "import sys; sys.modules['hdf5plugin'] = None; from pathlib import Path\n"
        "from world.packed.unpack import unpack_world; unpack_world(*map(Path, sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "packed.h5"), str(tmp_path / "world")]
    environment = os.environ | {"HDF5_PLUGIN_PATH": str(tmp_path / "none")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert "HDF5 filter 32015 (Zstandard)" in done.stderr
    assert "install hdf5plugin" in done.stderr


def test_an_unknown_filter_is_named_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small(tmp_path / "packed.h5", compression="lzf")
    monkeypatch.setattr("h5py.h5z.filter_avail", lambda code: code != 32000)
    monkeypatch.setattr(filters, "_KNOWN", {})
    assert "filter 32000 (lzf)" in fault(tmp_path / "packed.h5", tmp_path / "world")


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small(tmp_path / "packed.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "h5py is not installed" in fault(tmp_path / "packed.h5", tmp_path / "world")


def test_a_worker_ends_with_whoever_asked(tmp_path: Path) -> None:
    """Its input closed and nobody to hear of progress: a later run must not meet it still writing."""
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file["camera.json"] = np.zeros(1, np.uint8)
        noise = np.random.default_rng(0).integers(0, 255, (40, 1 << 20), np.uint8)
        file["meshes/1/x"] = noise
    unit = {"kind": "archive", "node": "/meshes/1", "target": "meshes/1.npz", "raw": 1, "memory": 1}
    question = {
        "do": "unpack",
        "packed": str(tmp_path / "packed.h5"),
        "path": str(tmp_path / "x"),
        "unit": unit,
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "world.packed.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(question) + "\n")
    worker.stdin.flush()
    worker.stdout.close()
    worker.stdin.close()
    end = time.monotonic() + 120
    while worker.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_only_what_is_asked_for_is_open(tmp_path: Path) -> None:
    write_small(tmp_path / "packed.h5")
    with open_packed(tmp_path / "packed.h5") as world:
        assert len(world.units()) == 4
        with pytest.raises(PackedError, match="/meshes/9"):
            world.parts("/meshes/9")
        with pytest.raises(PackedError, match="/none"):
            list(world.content("/none"))
