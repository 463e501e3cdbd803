"""Index, meshes, transcripts of every program, vendored files: each by itself."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_lab import RIGID, add_run

import viewer.index
from viewer.geometry import NoGeometry, Shape, describe, pack, read_shape, stamp
from viewer.index import Index
from viewer.series import read_series
from viewer.transcripts.formats import parts_of
from viewer.trees import Trees
from world.npz import write_archive
from world.reader import World

Chunks = dict[int, np.ndarray[Any, Any]]


def settled(path: Path) -> None:
    """Age what was just written, so that its times can be told from those of the next change."""
    for place, _, names in os.walk(path):
        for name in [".", *names]:
            os.utime(Path(place, name), ns=(10**18, 10**18))


def states(index: Index) -> dict[str, str]:
    return {name: entry.row[8] for name, entry in index.snapshot(0).entries.items()}


def test_the_index_follows_every_change(tmp_path: Path) -> None:
    index = Index(tmp_path)
    assert states(index) == {}
    add_run(tmp_path, "real/a/s/.1.staging-k1/run", {"state": "running", "run_id": "k1"})
    assert states(index) == {"real/a/s/1": "running"}
    (tmp_path / "real/a/s/.1.staging-k1/run").rename(tmp_path / "real/a/s/1")
    add_run(tmp_path, "real/a/s/1", {"state": "done", "run_id": "k1"})
    assert states(index) == {"real/a/s/1": "done"}
    # What a swap has thrown out keeps its own id and is no run that goes on.
    add_run(tmp_path, "real/a/s/.1.staging-k2/run", {"state": "done", "run_id": "k1"})
    assert states(index) == {"real/a/s/1": "done"}
    add_run(tmp_path, "real/a/s/1", {"state": "done"}, {"dynamic_iou": 0.5})
    assert index.snapshot(0).entries["real/a/s/1"].run.reward == {"dynamic_iou": 0.5}
    add_run(tmp_path, "other/a/s/1")
    (tmp_path / "real/a/s/1/run.json").unlink()
    (tmp_path / "real/a/s/1/results/reward.json").unlink()
    assert states(index) == {}
    assert "real/a/s/1" in index.snapshot(0).gone


def test_what_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add_run(tmp_path, f"real/c{number}/s/1", {}, {"dynamic_iou": 0.1})
    settled(tmp_path)
    index, read = Index(tmp_path), []
    plain = viewer.index.read_run
    monkeypatch.setattr(viewer.index, "read_run", lambda *given: (read.append(given[1].id), plain(*given))[1])
    before = index.snapshot(0)
    assert len(read) == 5
    assert index.snapshot(0) is before
    add_run(tmp_path, "real/c3/s/1", {"state": "failed"}, {"dynamic_iou": 0.1})
    assert index.snapshot(0).entries["real/c3/s/1"].version == before.version + 1
    assert read[5:] == ["real/c3/s/1"]


def test_a_file_rewritten_in_the_tick_of_its_reading_is_noticed(tmp_path: Path) -> None:
    run = add_run(tmp_path, "real/a/s/1", {"state": "AAAA"})
    index = Index(tmp_path)
    assert states(index) == {"real/a/s/1": "AAAA"}
    kept = (run / "run.json").stat()
    (run / "run.json").write_text((run / "run.json").read_text().replace("AAAA", "BBBB"))
    os.utime(run / "run.json", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert states(index) == {"real/a/s/1": "BBBB"}


def decode(packet: bytes) -> Chunks:
    """The reader of the packet's description, written anew: chunk number → positions in metres, or faces."""
    magic, version, count = struct.unpack_from("<4sII", packet)
    assert (magic, version) == (b"4DMP", 1)
    at, found = 12, {}
    for _ in range(count):
        number, faces, rows, width = struct.unpack_from("<IIII", packet, at)
        at += 16
        low, step = (0.0, 1.0)
        if not faces:
            (*numbers,) = struct.unpack_from("<6f", packet, at)
            low, step, at = np.array(numbers[:3]), np.array(numbers[3:]), at + 24
        values = np.frombuffer(packet, "<u2" if width == 2 else "<u4", rows * 3, at).reshape(rows, 3)
        at += -(-values.nbytes // 4) * 4
        found[number] = values if faces else low + values * step
    assert at == len(packet)
    return found


def shape_of(root: Path, *parts: str) -> Shape:
    return read_shape(root, parts, stamp(root, parts))


def test_packets_hold_every_frame_of_a_world(trees: Trees) -> None:
    parts = (*RIGID.split("/"), "world")
    shape = shape_of(trees.data, *parts)
    base = decode(pack(shape, sorted(shape.base)))
    with World(trees.data.joinpath(*parts)) as world:
        assert shape.frames == world.frames
        for number in range(shape.packets):
            held = base | decode(pack(shape, shape.packet(number)))
            for frame in range(number * shape.step, min((number + 1) * shape.step, shape.frames)):
                for owner in world.ids:
                    vertices, faces = world.object_mesh(owner, frame)
                    place = frame - shape.archives[owner].frames.start
                    if not 0 <= place < len(shape.positions[owner]):
                        assert len(faces) == 0
                        continue
                    found = held[shape.positions[owner][place]]
                    span = np.ptp(vertices, axis=0) if len(vertices) else np.zeros(3)
                    np.testing.assert_allclose(
                        found, vertices, atol=float(span.max(initial=0)) / 65_535 + 1e-6
                    )
                    np.testing.assert_array_equal(held[shape.faces[owner][place]], faces)


def test_what_stays_travels_once(tmp_path: Path) -> None:
    (tmp_path / "meshes").mkdir()
    faces = np.array([[0, 1, 2]], np.int32)
    still = np.eye(3, dtype=np.float32)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for frame in range(60):
        arrays |= {f"vertices_{frame:04d}": still, f"faces_{frame:04d}": faces}
    write_archive(tmp_path / "meshes/1.npz", arrays)
    moving = {f"vertices_{frame:04d}": rng.random((3, 3), np.float32) for frame in range(10, 40)}
    write_archive(
        tmp_path / "meshes/2.npz", {**moving, **{f"faces_{frame:04d}": faces for frame in range(10, 40)}}
    )
    empty = {"vertices_0005": np.zeros((0, 3), np.float32), "faces_0005": np.zeros((0, 3), np.int32)}
    write_archive(tmp_path / "meshes/3.npz", empty)
    shape = shape_of(tmp_path)
    assert (shape.frames, shape.step, shape.packets) == (60, 24, 3)
    # The still object's two arrays, and the moving one's faces.
    assert len(shape.base) == 3
    assert [len(shape.packet(number)) for number in range(3)] == [14 + 2, 16, 0]
    record = describe(tmp_path, (), shape)
    assert record["objects"][0] == {"id": 1, "first": 0, "positions": [[0, 60]], "faces": [[1, 60]]}
    assert record["camera"] is None


def test_meshes_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    (tmp_path / "meshes").mkdir()
    with pytest.raises(NoGeometry, match="no mesh archive"):
        shape_of(tmp_path)
    (tmp_path / "meshes/1.npz").write_bytes(b"PK nothing")
    with pytest.raises(NoGeometry, match=r"meshes/1\.npz"):
        shape_of(tmp_path)
    write_archive(
        tmp_path / "meshes/1.npz",
        {"vertices_0000": np.zeros((1, 3), np.float32), "faces_0000": np.ones((1, 3), np.int32)},
    )
    shape = shape_of(tmp_path)
    with pytest.raises(NoGeometry, match="outside the 1 vertices"):
        pack(shape, [0, 1])


def test_dynamic_iou_over_time_is_that_of_the_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    gt, pred, band = (rng.random((3, 4, 12)) < share for share in (0.5, 0.5, 0.2))
    gt[2] = pred[2] = False
    packed = {name: np.packbits(mask, axis=-1) for name, mask in (("gt", gt), ("pred", pred), ("band", band))}
    (tmp_path / "results").mkdir()
    write_archive(tmp_path / "results/dynamic.npz", packed)
    write_archive(
        tmp_path / "results/interpenetration.npz",
        {"buried": np.array([0.0, 1.0, 0.5]), "components_per_frame": np.array([2, 0, 1])},
    )
    iou, buried = read_series(tmp_path, (), {"depth_per_frame": "x", "flow_per_frame": [None]})
    expected = [float((gt & pred & ~band)[k].sum() / ((gt | pred) & ~band)[k].sum()) for k in range(2)]
    assert iou["values"] == [*(round(value, 6) for value in expected), None]
    assert buried["values"] == [0.5, None, 0.5]


CALLS = [{"name": "view", "args": {"path": "a"}}]
RUN = [{"name": "run", "arguments": '{"x": 1}'}]
SAID = [{"type": "output_text", "text": "hi"}]


def codex(kind: str, **members: object) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **members}}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (codex("message", role="assistant", content=SAID), [("assistant", "", "hi")]),
        (codex("function_call", name="sh", arguments='{"command": "ls"}'), [("call", "sh", "command: ls")]),
        (codex("function_call_output", output='{"output": "a\\nb", "x": {}}'), [("result", "", "a\nb")]),
        (codex("reasoning", summary=[{"text": "hm"}]), [("thinking", "", "hm")]),
        (
            {"type": "PLANNER_RESPONSE", "content": "next", "tool_calls": CALLS},
            [("assistant", "", "next"), ("call", "view", "path: a")],
        ),
        ({"type": "USER_INPUT", "content": "do"}, [("user", "", "do")]),
        ({"type": "task", "task": "do it"}, [("user", "task", "do it")]),
        ({"type": "step", "step": 3, "input_tokens": 5}, [("event", "turn 3", "")]),
        (
            {"type": "assistant", "turn": 1, "message": {"content": "so", "tool_calls": RUN}},
            [("assistant", "", "so"), ("call", "run", "x: 1")],
        ),
        ({"type": "tool", "message": {"name": "run", "content": ["out"]}}, [("result", "run", "out")]),
        ({"role": "user", "content": "hello"}, [("user", "", "hello")]),
        ({"role": "tool", "content": "42"}, [("result", "", "42")]),
        ({"event": "odd", "n": 1}, [("event", "odd", '{\n  "event": "odd",\n  "n": 1\n}')]),
    ],
)  # fmt: skip
def test_transcripts_of_every_program(line: dict[str, Any], parts: list[tuple[str, str, str]]) -> None:
    assert [(part.role, part.title, part.text) for part in parts_of(line)] == parts


def test_vendored_files_are_as_published(repository: Path) -> None:
    folder = repository / "viewer/static/vendor"
    listed = dict(
        re.findall(
            r"\| (\S+\.(?:js|css)) \| [a-z]+ [0-9.]+ \| ([0-9a-f]{64}) \|",
            (folder / "VERSIONS.md").read_text(),
        )
    )
    there = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".js", ".css")
    }
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_app_needs_no_other_host_and_parses_no_markup(repository: Path) -> None:
    for path in [
        *(repository / "viewer/static").glob("*.*"),
        *(repository / "viewer/static/js").glob("*.js"),
    ]:
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/)", text), path
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path


def test_the_server_shadows_no_module(repository: Path) -> None:
    """``python viewer/server.py`` puts that directory first on the path."""
    names = {path.stem for path in (repository / "viewer").iterdir() if path.suffix == ".py" or path.is_dir()}
    rooms = {"contract", "world", "report", "scorer", "harness", "checker"}
    assert not names & (
        set(sys.stdlib_module_names)
        | rooms
        | {"starlette", "uvicorn", "anyio", "h11", "click", "numpy", "av", "idna"}
    )


def test_nothing_heavy_is_loaded() -> None:
    heavy = {"torch", "scipy", "numba", "cv2", "h5py", "scorer"}
    code = f"import sys, viewer.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
