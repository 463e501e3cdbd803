from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scorer.digest import combined, digest, digests_of, gate_inputs, type_inputs
from scorer.manifest import Entry


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "a").write_bytes(b"one")
    (tmp_path / "tree" / "below" / "b").write_bytes(b"two")
    return tmp_path / "tree"


def test_only_names_kinds_and_bytes_count(tree: Path, tmp_path: Path) -> None:
    before = digest(tree)
    os.utime(tree / "a", (1, 1))
    (tree / "a").chmod(0o600)
    shutil.copytree(tree, tmp_path / "copy")
    assert digest(tree) == digest(tmp_path / "copy") == before


@pytest.mark.parametrize("change", ["bytes", "name", "new", "empty", "link", "pipe", "gone"])
def test_every_change_is_seen(tree: Path, change: str) -> None:
    before = digest(tree)
    if change == "bytes":
        (tree / "below" / "b").write_bytes(b"twp")
    elif change == "name":
        (tree / "a").rename(tree / "c")
    elif change == "new":
        (tree / "c").write_bytes(b"")
    elif change == "empty":
        (tree / "c").mkdir()
    elif change == "link":
        (tree / "a").rename(tree.parent / "a")
        (tree / "a").symlink_to(tree.parent / "a")
    elif change == "pipe":
        os.mkfifo(tree / "c")
    else:
        shutil.rmtree(tree / "below")
    assert digest(tree) != before


def test_contents_do_not_run_into_each_other(tmp_path: Path) -> None:
    for name, parts in (("x", {"a": b"bc", "d": b""}), ("y", {"a": b"b", "cd": b""})):
        (tmp_path / name).mkdir()
        for file, data in parts.items():
            (tmp_path / name / file).write_bytes(data)
    assert digest(tmp_path / "x") != digest(tmp_path / "y")


def test_odd_nodes_neither_block_nor_raise(tree: Path, tmp_path: Path) -> None:
    (tree / "loop").symlink_to(tree)
    (tree / "self").symlink_to("self")
    (tree / "zero").symlink_to("/dev/zero")
    os.mkfifo(tree / "pipe")
    (tree / os.fsdecode(b"\xff\xfe")).write_bytes(b"")
    assert digest(tree) == digest(tree)
    assert digest(tree / "pipe") is not None
    assert digest(tmp_path / "absent") is None
    assert digest(tree / "a" / "below_a_file") is None


def test_a_linked_file_counts_with_its_bytes(tree: Path) -> None:
    (tree / "link").symlink_to("a")
    before = digest(tree / "link")
    (tree / "a").write_bytes(b"other")
    assert digest(tree / "link") != before


def test_what_each_type_rests_on(tmp_path: Path) -> None:
    entry = Entry(
        "synthetic/x", tmp_path / "w" / "world", tmp_path, tmp_path / "reference.mp4", tmp_path / "data"
    )
    gates = set(gate_inputs(entry))
    assert set(type_inputs(entry, "mesh")) == gates
    assert set(type_inputs(entry, "dynamic_iou")) == gates | {"reference", "annotation"}
    assert set(type_inputs(entry, "flow")) == gates | {"flow.h5"}
    assert set(type_inputs(entry, "scene_3d")) == gates | {"reference"}
    assert set(type_inputs(entry, "semantic")) == {
        "video", "render", "semantic_dinov3.npz", "semantic_tips.npz"
    }  # fmt: skip

    def now(name: str) -> str:
        inputs = type_inputs(entry, name)
        return combined(inputs, digests_of(inputs.values()))

    first = now("mesh")
    entry.build_script.parent.mkdir(parents=True)
    entry.build_script.write_text("echo one")
    second = now("mesh")
    assert second != first
    entry.build_script.write_text("echo two")  # only its presence matters
    assert now("mesh") == second
    entry.video.write_bytes(b"video")
    assert now("mesh") != second
