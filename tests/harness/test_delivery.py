"""Collecting a delivery: regular files, within bounds, and a note for everything else."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.record import dumps
from harness.runtime import delivery as delivery_module
from harness.runtime import hardlinks
from harness.runtime.delivery import Bounds, Delivery, collect, is_delivered
from harness.runtime.sessions import tidy_session


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "world" / "meshes").mkdir(parents=True)
    (place / "solution").mkdir()
    (place / "world" / "camera.json").write_text("{}", encoding="utf-8")
    (place / "world" / "meshes" / "1.npz").write_bytes(b"mesh")
    (place / "solution" / "build.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    return place


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def gather(workspace: Path, bounds: Bounds | None = None) -> tuple[Delivery, dict[str, bytes]]:
    target = workspace.parent / "collected"
    delivery = collect(workspace, target, bounds or Bounds())
    json.loads(dumps(delivery.record()))  # whatever the names are, the record can be written
    assert not any(p.is_symlink() or not (p.is_dir() or p.is_file()) for p in target.rglob("*"))
    return delivery, files(target)


def test_a_plain_delivery_arrives_whole(workspace: Path) -> None:
    (workspace / "solution" / "build.sh").chmod(0o4755)
    (workspace / "tmp").mkdir()
    (workspace / "tmp" / "scratch").write_text("x", encoding="utf-8")
    delivery, got = gather(workspace)
    assert got == {
        "solution/build.sh": b"#!/bin/sh\n", "world/camera.json": b"{}", "world/meshes/1.npz": b"mesh",
    }  # fmt: skip
    assert (delivery.artifacts, delivery.files, delivery.bytes) == (["solution", "world"], 3, 16)
    assert (delivery.skipped, delivery.links, delivery.cut) == ([], [], "")
    assert is_delivered(workspace.parent / "collected")
    assert (workspace.parent / "collected/solution/build.sh").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("kept", [(), ("world",), ("solution",)])
def test_what_is_missing_is_not_delivered(tmp_path: Path, kept: tuple[str, ...]) -> None:
    for name in kept:
        (tmp_path / "workspace" / name).mkdir(parents=True)
    delivery, _ = gather(tmp_path / "workspace")
    assert delivery.artifacts == sorted(kept)
    assert not is_delivered(tmp_path / "collected")


def test_links_are_neither_followed_nor_copied(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("SECRET", encoding="utf-8")
    (workspace / "world" / "hop").symlink_to(secret)
    (workspace / "world" / "meshes" / "2.npz").symlink_to(secret / "key")
    (workspace / "world" / "loop").symlink_to(".")
    (workspace / "solution" / "gone").symlink_to("/nowhere")
    delivery, got = gather(workspace)
    assert b"SECRET" not in b"".join(got.values())
    assert delivery.links == ["solution/gone", "world/hop", "world/loop", "world/meshes/2.npz"]
    assert delivery.record()["symlinks_dropped"] == delivery.links
    assert (secret / "key").read_text(encoding="utf-8") == "SECRET"


@pytest.mark.parametrize("name", ["world", "solution"])
def test_a_link_in_place_of_a_directory_is_dropped(workspace: Path, tmp_path: Path, name: str) -> None:
    (workspace / name).rename(tmp_path / "elsewhere")
    (workspace / name).symlink_to(tmp_path / "elsewhere")
    delivery, _ = gather(workspace)
    assert delivery.links == [name]
    assert name not in delivery.artifacts
    assert not is_delivered(tmp_path / "collected")


def test_a_build_script_that_is_a_link_is_no_delivery(workspace: Path, tmp_path: Path) -> None:
    (workspace / "solution" / "build.sh").rename(workspace / "solution" / "real.sh")
    (workspace / "solution" / "build.sh").symlink_to("real.sh")
    _, got = gather(workspace)
    assert "solution/real.sh" in got
    assert not is_delivered(tmp_path / "collected")


def test_pipes_sockets_and_a_file_for_a_directory_stay_behind(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / "world").mkdir(parents=True)
    os.mkfifo(workspace / "world" / "1.npz")
    (workspace / "world" / "after").write_text("kept", encoding="utf-8")
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(workspace / "world")  # the path of a socket must be short
    try:
        server.bind("sock")
    finally:
        os.chdir(here)
        server.close()
    (workspace / "solution").write_text("a file", encoding="utf-8")
    delivery, got = gather(workspace)
    assert got == {"world/after": b"kept"}
    assert delivery.skipped == [
        {"path": "solution", "why": "a file where a directory is expected"},
        {"path": "world/1.npz", "why": "named pipe"},
        {"path": "world/sock", "why": "socket"},
    ]


def test_devices_stay_behind(tmp_path: Path) -> None:
    (tmp_path / "w" / "world").mkdir(parents=True)
    try:
        os.mknod(tmp_path / "w" / "world" / "null", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices can be made by root only")
    delivery, got = gather(tmp_path / "w")
    assert got == {}
    assert delivery.skipped == [{"path": "world/null", "why": "device"}]


@pytest.mark.parametrize(
    "name",
    ["line\nbreak", "\x1b[31mred", "ümläut", "-rf", " ", "*", b"\xff\xfe".decode("utf-8", "surrogateescape")],
)
def test_odd_names_are_kept_and_recorded(workspace: Path, name: str) -> None:
    (workspace / "world" / name).write_bytes(b"odd")
    (workspace / "world" / f"{name}-link").symlink_to("x")
    delivery, got = gather(workspace)
    assert got[f"world/{name}"] == b"odd"
    assert len(delivery.links) == 1


def test_a_sparse_file_counts_in_full_and_costs_nothing(workspace: Path) -> None:
    with (workspace / "world" / "huge").open("wb") as stream:
        stream.truncate(10 << 30)
    delivery, got = gather(workspace)
    assert "world/huge" not in got
    assert delivery.skipped == [
        {"path": "world/huge", "why": f"{10 << 30} bytes, more than the {8 << 30} allowed for one file"}
    ]
    assert got["world/meshes/1.npz"] == b"mesh"


def test_a_sparse_file_with_a_second_name_is_copied_with_its_holes(workspace: Path) -> None:
    path = workspace / "world" / "cache"
    with path.open("wb") as stream:
        stream.truncate(64 << 20)
        stream.seek(32 << 20)
        stream.write(b"data")
    os.link(path, workspace / "outside")
    delivery = collect(workspace, workspace.parent / "collected")
    copy = workspace.parent / "collected/world/cache"
    assert delivery.skipped == []
    assert copy.stat().st_size == 64 << 20
    assert copy.stat().st_blocks * 512 < 1 << 20
    with copy.open("rb") as stream:
        stream.seek(32 << 20)
        assert stream.read(4) == b"data"
    assert copy.stat().st_nlink == 1
    assert (workspace / "outside").exists()


def test_a_file_with_a_name_outside_the_workspace_stays_behind(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("SECRET", encoding="utf-8")
    secret.chmod(0o600)
    os.link(secret, workspace / "world" / "key")
    os.link(secret, workspace / "world" / "meshes" / "2.npz")
    os.link(secret, workspace / "scratch")
    delivery, got = gather(workspace)
    assert b"SECRET" not in b"".join(got.values())
    why = "a hard link to a file that has a name outside"
    assert delivery.skipped == [
        {"path": "world/key", "why": why},
        {"path": "world/meshes/2.npz", "why": why},
    ]
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text(encoding="utf-8") == "SECRET"


def test_hard_links_within_the_workspace_become_files_of_their_own(workspace: Path) -> None:
    first = workspace / "world" / "meshes" / "1.npz"
    for name in ("world/copy", "solution/copy", "scratch"):
        os.link(first, workspace / name)
    delivery, got = gather(workspace)
    assert delivery.skipped == []
    assert got["world/copy"] == got["solution/copy"] == got["world/meshes/1.npz"] == b"mesh"
    collected = workspace.parent / "collected"
    assert (collected / "world/copy").stat().st_ino != (collected / "solution/copy").stat().st_ino


def test_names_are_counted_only_within_bounds(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the walk ends early, what it has not seen counts as outside: never the other way round.
    monkeypatch.setattr(hardlinks, "MAX_WALK", 0)
    os.link(workspace / "world/meshes/1.npz", workspace / "world/copy")
    delivery, _ = gather(workspace)
    assert [entry["path"] for entry in delivery.skipped] == ["world/copy", "world/meshes/1.npz"]


def test_a_session_loses_files_with_a_name_outside(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    (tmp_path / "key").write_text("SECRET", encoding="utf-8")
    os.link(tmp_path / "key", session / "key")
    (session / "a").write_text("a", encoding="utf-8")
    os.link(session / "a", session / "b")
    assert tidy_session(session, Bounds()) == (["key"], "")
    assert sorted(path.name for path in session.iterdir()) == ["a", "b"]
    assert (tmp_path / "key").read_text(encoding="utf-8") == "SECRET"


def test_bounds_on_the_whole_are_kept_and_named(workspace: Path) -> None:
    for number in range(2, 30):
        (workspace / "world" / "meshes" / f"{number}.npz").write_bytes(b"1234567890")
    delivery, got = gather(workspace, Bounds(max_total_bytes=100))
    assert sum(map(len, got.values())) <= 100
    assert delivery.left_out == 28 - 8
    assert all("would exceed 100 bytes" in note["why"] for note in delivery.skipped)


def test_a_flood_of_files_is_cut_with_a_note_and_the_solution_is_safe(workspace: Path) -> None:
    flood = workspace / "world" / "cache"
    flood.mkdir()
    for number in range(500):
        (flood / f"{number:04d}").touch()
    delivery, got = gather(workspace, Bounds(max_files=100))
    assert {"solution/build.sh", "world/camera.json", "world/meshes/1.npz"} <= set(got)
    assert delivery.files <= 100
    assert "200 entries" in delivery.cut
    assert "world/cache" in delivery.cut


def test_notes_are_bounded(workspace: Path) -> None:
    for number in range(400):
        (workspace / "world" / f"l{number}").symlink_to("x")
        os.mkfifo(workspace / "world" / f"p{number}")
    delivery, _ = gather(workspace)
    assert (len(delivery.links), len(delivery.skipped), delivery.left_out) == (200, 200, 800)


def test_a_deep_tree_is_cut(workspace: Path) -> None:
    deep = workspace / "world"
    for _ in range(100):
        deep = deep / "d"
    deep.mkdir(parents=True)
    delivery, got = gather(workspace)
    assert [note["why"] for note in delivery.skipped] == ["more than 64 levels deep"]
    assert got["world/camera.json"] == b"{}"


def test_unreadable_files_and_directories_of_ours_are_opened_up(workspace: Path) -> None:
    (workspace / "world" / "camera.json").chmod(0)
    (workspace / "world" / "meshes").chmod(0)
    (workspace / "solution").chmod(0o300)
    _, got = gather(workspace)
    assert set(got) == {"solution/build.sh", "world/camera.json", "world/meshes/1.npz"}


def test_a_session_keeps_regular_files_only(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "keep.jsonl").write_text("{}", encoding="utf-8")
    (tmp_path / "a" / "dir-link").symlink_to("b")
    (tmp_path / "a" / "b" / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "a" / "pipe")
    assert sorted(tidy_session(tmp_path, Bounds())[0]) == ["a/b/link", "a/dir-link", "a/pipe"]
    assert files(tmp_path) == {"a/keep.jsonl": b"{}"}


NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=8
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES.filter(lambda n: n not in (".", "..")), st.binary(max_size=20), max_size=8))
def test_any_set_of_names_arrives(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes]
) -> None:
    workspace = tmp_path_factory.mktemp("any") / "workspace"
    (workspace / "world").mkdir(parents=True)
    for name, data in content.items():
        (workspace / "world" / name).write_bytes(data)
    expected = files(workspace)
    _, got = gather(workspace)
    assert got == expected


@pytest.mark.parametrize("steps", range(0, 9, 2))
def test_a_collection_that_was_killed_is_continued(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Killed after some files: the second collection ends with all of them, counted once."""
    for number in range(2, 6):
        (workspace / "world" / "meshes" / f"{number}.npz").write_bytes(b"12345")
    os.link(workspace / "world" / "meshes" / "5.npz", workspace / "second-name")  # copied, not moved
    expected = {k: v for k, v in files(workspace).items() if k != "second-name"}

    class Killed(BaseException):
        pass

    left = iter(range(steps))
    real = delivery_module._move

    def move(*arguments: object) -> None:
        if next(left, None) is None:
            raise Killed
        real(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(delivery_module, "_move", move)
        with suppress(Killed):
            collect(workspace, workspace.parent / "collected")
    delivery, got = gather(workspace)
    assert got == expected
    assert (delivery.files, delivery.bytes) == (len(expected), sum(map(len, expected.values())))
    assert delivery.artifacts == ["solution", "world"]
