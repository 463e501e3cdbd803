"""``pack_world.py``: a packed world, or the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pack_world
import pytest
from packed_worlds import tree

from contract.errors import UserError
from world.packed.unpack import unpack_world


def run(*words: object) -> int:
    return pack_world.main([str(word) for word in words])


@pytest.mark.parametrize("words", [(), ("--filter", "blosc-lz4"), ("--filter", "gzip", "--level", 9)])
def test_packed_and_unpacked(
    fixture_worlds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[object, ...]
) -> None:
    world = fixture_worlds / "data/synthetic/near/world"
    assert run(world, tmp_path / "new/near.h5", *words) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/new/near.h5: 0.1 MB, from ")
    unpack_world(tmp_path / "new/near.h5", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(world)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["near.h5"]


def test_the_default_filter_is_the_published_one(fixture_worlds: Path, tmp_path: Path) -> None:
    assert run(fixture_worlds / "data/synthetic/grain/world", tmp_path / "grain.h5") == 0
    codes = set()
    with h5py.File(tmp_path / "grain.h5") as file:

        def look(_: str, node: h5py.Group | h5py.Dataset) -> None:
            if isinstance(node, h5py.Dataset):
                recipe = node.id.get_create_plist()
                codes.update(recipe.get_filter(at)[0] for at in range(recipe.get_nfilters()))

        file.visititems(look)
    assert codes == {2, 32015}  # shuffle, Zstandard


def test_an_existing_file_stays_unless_asked(fixture_worlds: Path, tmp_path: Path) -> None:
    world = fixture_worlds / "data/synthetic/near/world"
    (tmp_path / "near.h5").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"exists.*--force"):
        run(world, tmp_path / "near.h5")
    assert (tmp_path / "near.h5").read_bytes() == b"mine"
    assert run(world, tmp_path / "near.h5", "--force") == 0
    assert h5py.is_hdf5(tmp_path / "near.h5")


def test_what_cannot_be_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no such directory"):
        run(tmp_path / "none", tmp_path / "x.h5")
    world = tmp_path / "world"
    (world / "meshes").mkdir(parents=True)
    assert run(world, tmp_path / "x.h5") == 1
    (world / "camera.json").write_text("{}")
    np.savez(world / "meshes/1.npz", vertices_0000=np.array(["text"]))
    assert run(world, tmp_path / "x.h5") == 1
    (world / "meshes/1.npz").write_bytes(b"no archive")
    assert run(world, tmp_path / "x.h5") == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert "holds no camera.json" in first
    assert "meshes/1.npz: member 'vertices_0000' holds <U4, which HDF5 has no type for" in second
    assert "meshes/1.npz: is not a ZIP archive" in third
    assert [path.name for path in tmp_path.iterdir()] == ["world"]


def test_what_was_written_wrongly_does_not_take_its_place(
    fixture_worlds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = pack_world.pack_world

    def careless(world: Path, packed: Path, **options: object) -> None:
        honest(world, packed, **options)  # type: ignore[arg-type]
        with h5py.File(packed, "r+") as file:
            del file["meshes/1"]

    monkeypatch.setattr(pack_world, "pack_world", careless)
    assert run(fixture_worlds / "data/synthetic/near/world", tmp_path / "x.h5") == 1
    assert "meshes/1.npz: only in the world" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
