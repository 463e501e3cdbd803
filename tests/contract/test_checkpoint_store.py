"""The table of learned models, and the check of the store."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import checkpoint_store as store
from contract.checkpoints import (
    CHECKPOINTS,
    GROUP_MODELS,
    HTTPS,
    TYPE_MODELS,
    Checkpoint,
    CheckpointFile,
    models_of,
    path_of,
)

CONTENT = b"weights" * 100
TABLE = {
    name: Checkpoint(
        name, name, "o/r", "0" * 40,
        (CheckpointFile("w.bin", hashlib.sha256(CONTENT).hexdigest(), size), CheckpointFile("c.json", "")),
        gated=False, licence="",
    )
    for name, size in (("one", None), ("two", len(CONTENT)))
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which both models are right; the user's cache is below ``tmp_path`` too."""
    monkeypatch.setattr(store, "CHECKPOINTS", TABLE)
    monkeypatch.setattr(store, "_said", set())
    monkeypatch.delenv(store.UNVERIFIED, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "store"
    for name in TABLE:
        (root / name).mkdir(parents=True)
        (root / name / "w.bin").write_bytes(CONTENT)
        (root / name / "c.json").write_text("{}")
    return root


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the files whose contents were read."""
    names: list[str] = []
    real = store.content_hash

    def noted(path: Path) -> str:
        names.append(f"{path.parent.name}/{path.name}")
        return real(path)

    monkeypatch.setattr(store, "content_hash", noted)
    return names


def test_the_table_is_the_published_one() -> None:
    weights = {
        name: (each.revision, each.weights.path, each.weights.sha256) for name, each in CHECKPOINTS.items()
    }
    assert weights == {
        "dinov3-vitl16-pretrain-lvd1689m": (
            "ea8dc2863c51be0a264bab82070e3e8836b02d51", "model.safetensors",
            "dcb2e45127cccbf1601e5f42fef165eea275c8e5213197e8dcf3f48822718179",
        ),
        "tipsv2-l14": (
            "52847a71eb02a3082c370fbcd98cd799687bd4d0", "model.safetensors",
            "c75707eabca655e641a6c47a59dd26b347290ceadb993b34af184e7f654c5809",
        ),
        "video-depth-anything-large": (
            "7aafbcb5c6af0bac741aad2b6471894fb4761afa", "video_depth_anything_vitl.pth",
            "43df27c6b396042ba34ff7b798ab279f64d204d2e86d7a373968f8fa36d0e6fa",
        ),
        "raft-large": (
            "", "raft_large_C_T_SKHT_V2.pth",
            "ff5fadd56d26b40647388883af1547351ea17868b765c05b27231e72dd16a322",
        ),
        "cotracker3": (
            "bf55ea50d4390e1820a267f131cd6587240fb2c5", "scaled_offline.pth",
            "2670d4562ed69326dda775a26e54883925cd11b6fc9b24cb7aa9f8078bce7834",
        ),
        "moge-3-vitl": (
            "184008f877d7ad1ad4c2cd2182a9bd1f63d0e5be", "model.pt",
            "9b41b7b9f65ad80aab7ad686f5e9cc0d1fd33f1964022618dfbcd52fc1fb7925",
        ),
        "uni3d-l": (
            "3d8233b76aa350d72f6213ecd2123c2026b42355", "model.pt",
            "540a3cafac52c251cbda1844d109bc598f142b4f5a2118db87cd722b01800c20",
        ),
    }  # fmt: skip


def test_the_table_is_consistent() -> None:
    for name, each in CHECKPOINTS.items():
        assert each.name == each.directory == name
        assert re.fullmatch(r"[0-9a-f]{64}", each.weights.sha256)
        assert bool(each.url) == (each.source == HTTPS) != bool(each.repo)
        assert path_of(name).parts == (name, each.weights.path)
    assert {name for each in (*GROUP_MODELS.values(), *TYPE_MODELS.values()) for name in each} == set(
        CHECKPOINTS
    )
    assert tuple(GROUP_MODELS) == ("flow", "tracks", "moge", "semantic", "geophys", "depth")


def test_models_of_names_each_once_and_in_order() -> None:
    assert models_of(TYPE_MODELS, ["uni3d", "geophys", "semantic", "mesh"]) == (
        "dinov3-vitl16-pretrain-lvd1689m", "tipsv2-l14", "uni3d-l",
    )  # fmt: skip
    assert models_of(GROUP_MODELS, []) == ()


def test_a_whole_store_has_no_faults(root: Path) -> None:
    assert store.faults(root, TABLE) == {}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "w.bin is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "w.bin is not a file"),
        (lambda path: path.write_bytes(b""), "w.bin is empty"),
        (lambda path: path.write_bytes(CONTENT[:-1] + b"!"), "w.bin has SHA-256"),
        (lambda path: path.write_bytes(CONTENT[:-1]), "w.bin has 699 bytes, expected 700"),
        (lambda path: (path.unlink(), path.symlink_to("nowhere")), "w.bin is missing"),
        (lambda path: path.with_name("c.json").unlink(), "c.json is missing"),
    ],
    ids=["missing", "directory", "empty", "hash", "size", "dangling", "config"],
)
def test_faults_name_file_and_command(root: Path, spoil: object, says: str) -> None:
    spoil(root / "two/w.bin")  # type: ignore[operator]
    found = store.faults(root, TABLE)
    assert list(found) == ["two"]
    assert says in found["two"]
    assert found["two"].endswith(f"run: python scripts/download_checkpoints.py {root} --only two")
    assert "\n" not in found["two"]


def test_a_store_that_does_not_exist(root: Path) -> None:
    assert set(store.faults(root / "none", TABLE)) == set(TABLE)


def test_without_hashes_only_presence_counts(root: Path, read: list[str]) -> None:
    (root / "one/w.bin").write_bytes(b"other")
    assert store.faults(root, TABLE, hashes=False) == {}
    (root / "one/w.bin").unlink()
    assert list(store.faults(root, TABLE, hashes=False)) == ["one"]
    assert read == []


def test_a_file_is_read_once_for_each_state(root: Path, read: list[str]) -> None:
    said: list[str] = []
    assert store.faults(root, TABLE, say=said.append) == {}
    assert store.faults(root, TABLE, say=said.append) == {}
    assert read == ["one/w.bin", "two/w.bin"]
    assert said == ["checking one/w.bin (0 MB)", "checking two/w.bin (0 MB)"]
    other = root / "one/other"
    other.write_bytes(CONTENT[:-1] + b"!")
    state = (root / "one/w.bin").stat()
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(root / "one/w.bin")  # same size and time, another inode
    assert list(store.faults(root, TABLE)) == ["one"]
    assert read == ["one/w.bin", "two/w.bin", "one/w.bin"]


@pytest.mark.parametrize(
    "damage", [b"{", b"[1]", b'{"one/w.bin": 7, "two/w.bin": [700, 0, 0, null]}', b"\xff"]
)
def test_a_damaged_memory_is_no_memory(root: Path, damage: bytes) -> None:
    (root / store.MEMORY).write_bytes(damage)
    assert store.faults(root, TABLE) == {}


def test_a_read_only_store_is_remembered_in_the_users_cache(
    root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.write_json

    def refusing(path: Path, value: object) -> None:
        if path.parent == root:
            raise OSError(30, "Read-only file system")
        real(path, value)

    monkeypatch.setattr(store, "write_json", refusing)
    assert store.faults(root, TABLE) == store.faults(root, TABLE) == {}
    assert read == ["one/w.bin", "two/w.bin"]
    assert not (root / store.MEMORY).exists()


def test_where_nothing_can_be_written_the_check_works(
    root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(store, "write_json", lambda *_: (_ for _ in ()).throw(OSError(30, "read only")))
    assert store.faults(root, ["one"]) == store.faults(root, ["one"]) == {}
    assert read == ["one/w.bin"] * 2


def test_unverified_skips_hashes_and_says_so_once(
    root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(store.UNVERIFIED, "1")
    (root / "one/w.bin").write_bytes(b"tiny")
    (root / "two/w.bin").unlink()
    assert list(store.faults(root, TABLE)) == list(store.faults(root, TABLE)) == ["two"]
    assert read == []
    assert capsys.readouterr().err == f"warning: {store.UNVERIFIED}=1: checkpoints are not verified\n"
    monkeypatch.setenv(store.UNVERIFIED, "0")
    assert set(store.faults(root, TABLE)) == {"one", "two"}


def test_identity_follows_the_contents(root: Path, read: list[str]) -> None:
    first = store.identity(root, "one")
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert store.identity(root, "one") == first
    assert read == ["one/w.bin", "one/c.json"]
    assert store.identity(root, "two") == first  # the same contents
    seen = {first}
    for name, content in (("w.bin", "x"), ("c.json", "[]"), (store.ARCHITECTURE, "{}")):
        (root / "one" / name).write_text(content)
        seen.add(store.identity(root, "one"))
    assert len(seen) == 4
    (root / "one/w.bin").unlink()
    with pytest.raises(FileNotFoundError):
        store.identity(root, "one")
