"""One test per row of the rules that the published verdicts leave open, and what the texts carry."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from base_world import EXTRINSIC, FACES, INTRINSICS, VERTICES, bake, build_base_world, edit, load, manifest

from contract.errors import UserError
from world.validation import Violation, advice, check_links, check_world, examine
from world.validation.meshes import mesh_id
from world.validation.solver import missing_records, resolve_cache
from world.video import probe, write_video

A, M1, M2 = "dynamics/a.npz", "meshes/1.npz", "meshes/2.npz"
MANIFEST = "solver/manifest.json"
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base"))


@pytest.fixture
def world(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base.parent, tmp_path / "workspace", symlinks=True)
    return tmp_path / "workspace" / "world"


def pairs(world: Path, *, scorer: bool = False) -> list[tuple[str, str]]:
    return [(item.name, item.field) for item in check_world(world, scorer=scorer)]


def advised(world: Path) -> set[tuple[str, str]]:
    return {(item.name, item.field) for item in advice(world)}


def camera(world: Path, **changes: object) -> None:
    (world / "camera.json").write_text(
        json.dumps({"intrinsics": INTRINSICS, "extrinsic": EXTRINSIC} | changes)
    )


# Camera


@pytest.mark.parametrize(
    ("intrinsics", "fault"),
    [
        ("fx", "not numeric"),
        ([[1, 2], [3]], "not numeric"),
        ({"fx": 1}, "not numeric"),
        ([[10**400] * 3] * 3, "not numeric"),
        ([[[1] * 3] * 3] * 3, "shape (3, 3, 3), expected (3, 3)"),
        (5, "shape ()"),
        (None, "shape ()"),
        ([[None, 0, 1], [0, 1, 1], [0, 0, 1]], "finite"),
        ([[INF, 0, 1], [0, 1, 1], [0, 0, 1]], "finite"),
    ],
)
def test_bad_intrinsics(world: Path, intrinsics: object, fault: str) -> None:
    camera(world, intrinsics=intrinsics)
    (found,) = check_world(world)
    assert (found.name, found.field) == ("camera.json", "intrinsics")
    assert fault in found.text


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" * 200_000, b"1" * 10_000])
def test_camera_that_is_not_json(world: Path, data: bytes) -> None:
    (world / "camera.json").write_bytes(data)
    assert pairs(world) == [("camera.json", "json")]


def test_both_matrices_are_reported(world: Path) -> None:
    camera(world, intrinsics=[1], extrinsic=[[1]])
    assert pairs(world) == [("camera.json", "intrinsics"), ("camera.json", "extrinsic")]


def test_texts_and_booleans_convert_but_are_advised_against(world: Path) -> None:
    camera(world, intrinsics=[["60", 0, 32], [0, 60, 24], [False, 0, True]])
    assert pairs(world) == []
    assert ("camera.json", "intrinsics") in advised(world)


def test_huge_rotation_is_not_orthonormal(world: Path) -> None:
    camera(world, extrinsic=[[1e300] * 4] * 4)
    assert pairs(world) == [("camera.json", "extrinsic")]


@pytest.mark.parametrize(
    "changes",
    [
        {"intrinsics": [[60, 0, 10], [0, 60, 24], [0, 0, 1]]},
        {"intrinsics": [[0, 0, 0], [0, 0, 0], [0, 0, 0]]},
        {"intrinsics": [[-60, 0, 32], [0, 60, 24], [0, 0, 1]]},
        {"intrinsics": [[60, 0, 32], [1, 60, 24], [0, 0, 1]]},
        {"intrinsics": [[1e308] * 3] * 3},
        {"extrinsic": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, -5, 1]]},
    ],
)
def test_doubtful_cameras_pass_with_advice(world: Path, changes: dict[str, object]) -> None:
    camera(world, **changes)
    assert pairs(world) == []
    assert advised(world) == {("camera.json", next(iter(changes)))}


# Video


def test_render_faults(world: Path) -> None:
    (world / "render.mp4").unlink()
    assert pairs(world) == [("render.mp4", "path")]
    (world / "render.mp4").mkdir()
    assert pairs(world) == [("render.mp4", "ffprobe")]


def test_cut_render_is_one_line(world: Path) -> None:
    data = (world / "render.mp4").read_bytes()
    (world / "render.mp4").write_bytes(data[: len(data) - len(data) // 4])
    assert pairs(world) == [("render.mp4", "ffprobe")]


def test_unknown_frame_count_skips_only_its_comparisons(world: Path) -> None:
    (world / "render.mp4").write_bytes(b"")
    edit(world / M1, {"vertices_0004": VERTICES, "faces_0004": FACES})
    edit(world / A, {"pos": load(world / A)["pos"][:2]})
    assert pairs(world) == [("render.mp4", "ffprobe")]


@pytest.mark.parametrize(
    ("count", "height", "width", "fps", "words"),
    [
        (4, 48, 64, 24, []),
        (5, 48, 64, 24, ["frame count 4 instead of 5"]),
        (4, 32, 64, 25, ["height 48 instead of 32", "frame rate 24 instead of 25"]),
        (4, 48, 66, 24, ["width 64 instead of 66"]),
    ],
)
def test_comparison_with_the_input(
    world: Path, tmp_path: Path, count: int, height: int, width: int, fps: int, words: list[str]
) -> None:
    video = tmp_path / "input.mp4"
    write_video(video, (np.zeros((height, width, 3), np.uint8) for _ in range(count)), fps)
    for given in (video, str(video), probe(video)):
        found = check_world(world, video=given)
        assert [(item.name, item.field) for item in found] == [("render.mp4", "input")] * bool(words)
        assert all(word in found[0].text for word in words)


def test_unreadable_input_is_the_users_error(world: Path) -> None:
    with pytest.raises(UserError, match="input video"):
        check_world(world, video=world / "nothing.mp4")


def test_known_facts_save_decoding(world: Path) -> None:
    render = probe(world / "render.mp4")
    (world / "render.mp4").write_bytes(b"not read")
    assert check_world(world, render=render) == []


# Meshes


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"vertices_0002": VERTICES.astype("f2")}, "vertices_0002", "float16"),
        ({"vertices_0002": VERTICES.astype("i4")}, "vertices_0002", "int32"),
        ({"vertices_0002": VERTICES[:, :2]}, "vertices_0002", "(4, 2)"),
        ({"vertices_0002": VERTICES[None]}, "vertices_0002", "(1, 4, 3)"),
        ({"vertices_0002": np.full((4, 3), NAN, np.float32)}, "vertices_0002", "finite"),
        ({"vertices_0002": np.where(VERTICES > 0, INF, VERTICES).astype("f4")}, "vertices_0002", "finite"),
        ({"faces_0003": FACES.astype(">i4")}, "faces_0003", ">i4"),
        ({"faces_0003": FACES.astype("u4")}, "faces_0003", "uint32"),
        ({"faces_0003": FACES.ravel()}, "faces_0003", "(12,)"),
        ({"faces_0003": FACES - 1}, "faces_0003", "-1"),
        ({"faces_0003": FACES + 1}, "faces_0003", "4"),
        ({"vertices_0001": np.zeros((0, 3), np.float32)}, "faces_0001", "0 vertices"),
        ({"vertices_12": VERTICES}, "vertices_12", "member"),
        ({"vertices_\u0660\u0660\u0660\u0661": VERTICES}, "vertices_\u0660\u0660\u0660\u0661", "member"),
    ],
)
def test_mesh_rows(world: Path, changes: dict[str, np.ndarray], field: str, words: str) -> None:
    edit(world / M1, changes)
    (found,) = check_world(world)
    assert (found.name, found.field) == (M1, field)
    assert words in found.text


def test_empty_archive(world: Path) -> None:
    np.savez(world / M1)
    assert pairs(world) == [(M1, "members")]


def test_empty_geometry_and_late_birth_pass(world: Path) -> None:
    empty = (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32))
    np.savez(
        world / M1, vertices_0002=empty[0], faces_0002=empty[1], vertices_0003=VERTICES, faces_0003=FACES
    )
    assert pairs(world) == pairs(world, scorer=True) == []


def test_column_major_arrays_pass(world: Path) -> None:
    edit(world / M1, {name: np.asfortranarray(array) for name, array in load(world / M1).items()})
    edit(world / A, {name: np.asfortranarray(array) for name, array in load(world / A).items()})
    assert pairs(world) == pairs(world, scorer=True) == []


def test_further_faults_are_listed_in_the_text(world: Path) -> None:
    changes = {f"vertices_{t:04d}": VERTICES.astype("f8") for t in range(4)} | {
        "faces_0001": FACES + 9,
        "foo": FACES,
    }
    edit(world / M1, changes)
    (found,) = check_world(world)
    assert found.field == "foo"
    assert "also vertices_0000 is float64" in found.text
    assert found.text.endswith("and 2 more")


def test_an_unreadable_member_comes_first(world: Path) -> None:
    edit(world / M1, {"aaa": FACES, "faces_0003": np.array([None, 1], object)})
    (found,) = check_world(world)
    assert (found.name, found.field) == (M1, "npz")
    assert "pickle" in found.text
    assert "also aaa" in found.text


def test_scorer_refuses_what_does_not_fit_float32(world: Path) -> None:
    edit(world / M1, {"vertices_0000": VERTICES.astype("f8") * 1e300})
    assert pairs(world, scorer=True) == [(M1, "vertices_0000")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1.npz", 1),
        ("007.npz", 7),
        ("0.npz", None),
        ("000.npz", None),
        ("-1.npz", None),
        ("1.NPZ", None),
        ("1", None),
        (".npz", None),
        ("1_000.npz", None),
        (" 1.npz", None),
        ("\u00b2.npz", None),
        ("\u0664\u0662.npz", 42),
        ("9" * 251 + ".npz", int("9" * 251)),
    ],
)
def test_mesh_id(name: str, expected: int | None) -> None:
    assert mesh_id(name) == expected


def test_names_and_archives_are_reported_in_one_order(world: Path) -> None:
    for name in ("10.npz", "9.npz", "junk"):
        (world / "meshes" / name).write_bytes(b"")
    assert pairs(world) == [("meshes/10.npz", "npz"), ("meshes/9.npz", "npz"), ("meshes/junk", "name")]


# Dynamics


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"pos": np.zeros((4, 4, 2), np.float32)}, ["pos"]),
        ({"pos": np.zeros((4, 12), np.float32)}, ["pos"]),
        ({"pos": np.zeros((5, 4, 3), np.float32)}, ["pos"]),
        ({"pos": np.zeros((4, 3, 3), np.float32)}, ["faces"]),
        ({"ids": np.array([[1]], np.uint16)}, ["ids"]),
        ({"ids": np.zeros(0, np.uint16)}, ["ids"]),
        ({"ids": np.uint16(1)}, ["ids"]),
        ({"ids": np.array([1, 1, 1], np.uint16)}, []),
        ({"faces": FACES.astype("i8")}, ["faces"]),
        ({"faces": FACES[:, :2]}, ["faces"]),
        ({"faces": -FACES}, ["faces"]),
        ({"faces": np.zeros((0, 3), np.int32)}, []),
        (
            {"pos": np.zeros((5, 4, 3), np.float32), "ids": np.array([7], np.uint16), "faces": FACES + 1},
            ["pos", "ids", "faces"],
        ),
    ],
)
def test_dynamics_rows(world: Path, changes: dict[str, np.ndarray], fields: list[str]) -> None:
    edit(world / A, changes)
    found = [pair for pair in pairs(world) if pair[0] == A]
    assert found == [(A, field) for field in fields]


@pytest.mark.parametrize(
    ("holes", "field"),
    [
        ([(2, 1, 0, NAN)], "pos[2,1]"),
        ([(2, 1, 0, INF)], "pos[2,1]"),
        ([(3, 0, 1, NAN), (2, 3, slice(None), INF)], "pos[2,3]"),
        ([(slice(None), 2, slice(None), NAN)], "pos[:,2]"),
        ([(1, 2, slice(None), NAN)], "pos[:,2]"),
        ([(slice(1, 3), slice(1, 3), slice(None), NAN)], "pos[:,1]"),
        ([(0, 3, slice(None), NAN), (3, 3, slice(None), NAN)], None),
        ([(slice(None), 3, slice(None), NAN), (1, 0, slice(None), NAN)], "pos[:,3]"),
    ],
)
def test_lifetimes(world: Path, holes: list[tuple[object, ...]], field: str | None) -> None:
    pos = load(world / A)["pos"]
    for *where, value in holes:
        pos[tuple(where)] = value
    edit(world / A, {"pos": pos})
    assert pairs(world) == ([] if field is None else [(A, field)])


def test_tets(world: Path) -> None:
    tets = np.array([[0, 1, 2, 3]], np.int32)
    edit(world / A, {"tets": tets}, remove=("faces",))
    assert pairs(world) == []
    edit(world / A, {"tets": tets + 1})
    assert pairs(world) == [(A, "tets")]
    edit(world / A, {"tets": tets[:, :3]})
    assert pairs(world) == [(A, "tets")]
    edit(world / A, {"tets": tets, "faces": FACES})
    assert pairs(world) == [(A, "connectivity")]


def test_missing_members_name_both(world: Path) -> None:
    edit(world / A, remove=("pos", "ids"))
    (found,) = check_world(world)
    assert (found.field, "also ids is required" in found.text) == ("pos", True)


def test_an_archive_without_ids_leaves_motion_unknown(world: Path) -> None:
    (world / "dynamics" / "b.npz").write_bytes(b"")
    manifest(world, fps=0)
    edit(world / M2, {"vertices_0003": VERTICES})
    assert pairs(world) == [("dynamics/b.npz", "npz")]
    assert (MANIFEST, "fps") in advised(world)


def test_no_columns_pass_with_advice(world: Path) -> None:
    edit(world / A, {"pos": np.zeros((4, 0, 3), np.float32)}, remove=("faces",))
    assert pairs(world) == []
    assert (A, "pos") in advised(world)


def test_hidden_archives_are_read_and_others_ignored(world: Path) -> None:
    shutil.copy(world / A, world / "dynamics" / ".b.npz")
    edit(world / "dynamics" / ".b.npz", {"foo": FACES})
    (world / "dynamics" / "notes.txt").write_text("x")
    (world / "dynamics" / "sub").mkdir()
    assert pairs(world) == [("dynamics/.b.npz", "foo")]
    assert ("dynamics", "name") in advised(world)


# Static rule


def test_static_rule_reports_vertices_before_faces_and_the_first_frame(world: Path) -> None:
    still = load(world / M2)
    edit(world / M2, {"faces_0001": FACES[::-1], "vertices_0003": VERTICES})
    (found,) = check_world(world)
    assert (found.name, found.field) == (M2, "faces_0001")
    assert "frame 0000" in found.text
    edit(world / M2, {"vertices_0001": still["vertices_0001"][:, [1, 0, 2]]})
    assert pairs(world) == [(M2, "vertices_0001")]


def test_minus_zero_is_zero(world: Path) -> None:
    vertices = load(world / M2)["vertices_0001"]
    edit(world / M2, {"vertices_0001": np.where(vertices == 0, np.float32(-0.0), vertices)})
    assert pairs(world) == []


def test_static_name_has_no_leading_zeros(world: Path) -> None:
    shutil.move(world / M1, world / "meshes" / "003.npz")
    edit(world / A, {"ids": np.array([2], np.uint16)})
    assert pairs(world) == [("meshes/3.npz", "vertices_0001")]


def test_scorer_compares_after_the_cast(world: Path) -> None:
    arrays = load(world / M2)
    tiny = {name: array.astype("f8") for name, array in arrays.items() if name.startswith("vertices")}
    tiny["vertices_0002"] = tiny["vertices_0002"] * (1 + 1e-12)
    edit(world / M2, tiny)
    assert pairs(world, scorer=True) == []


# Solver


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"cache": "nowhere"}, ["cache"]),
        ({"cache": "x" * 5000}, ["cache"]),
        ({"cache": "a\0b"}, ["cache"]),
        ({"cache": 5}, []),
        ({"fps": True, "time_scale": "1", "metres_per_unit": -1}, ["fps", "time_scale", "metres_per_unit"]),
        (
            {"fps": 10**400, "time_scale": INF, "metres_per_unit": NAN},
            ["fps", "time_scale", "metres_per_unit"],
        ),
        ({"fps": 0.5, "time_scale": 3}, []),
        ({"domain_min": [0, 0]}, ["domain_min"]),
        ({"domain_min": [0, 0, True]}, ["domain_min"]),
        ({"domain_min": [0, 0, NAN]}, ["domain_min"]),
        ({"domain_min": {"x": 1}}, ["domain_min"]),
        ({"frames": [3, 0]}, ["frames"]),
        ({"frames": [-1, 3]}, ["frames"]),
        ({"frames": [0, True]}, ["frames"]),
        ({"frames": [0.0, 3.0]}, ["frames"]),
        ({"frames": 4}, ["frames"]),
        ({"liquid_ids": []}, ["liquid_ids", "STATIC"]),
        ({"liquid_ids": 5}, ["liquid_ids", "STATIC"]),
        ({"liquid_ids": ["1"]}, ["liquid_ids", "STATIC"]),
        ({"liquid_ids": [[1]]}, ["liquid_ids", "STATIC"]),
        ({"liquid_ids": [True]}, []),
        ({"liquid_ids": [1, 99, -4]}, ["liquid_ids"]),
        ({"liquid_ids": [10**40]}, ["liquid_ids", "STATIC"]),
        ({"frames": None, "fps": None}, ["fps", "frames"]),
    ],
)
def test_manifest_rows(world: Path, changes: dict[str, object], fields: list[str]) -> None:
    (world / A).unlink()
    manifest(world, **changes)
    expected = [(M1, "vertices_0001") if field == "STATIC" else (MANIFEST, field) for field in fields]
    assert pairs(world) == expected


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 200_000])
def test_manifest_that_is_no_object(world: Path, data: bytes) -> None:
    manifest(world)
    (world / MANIFEST).write_bytes(data)
    assert pairs(world) == [(MANIFEST, "json")]


def test_solver_that_is_a_file(world: Path) -> None:
    (world / "solver").write_text("x")
    assert pairs(world) == [(MANIFEST, "path")]


def test_container_paths_are_mapped_to_this_world(world: Path) -> None:
    (world / A).unlink()
    manifest(world, cache="/workspace/world/solver/cache")
    bake(world, range(4))
    assert pairs(world) == pairs(world, scorer=True) == []
    assert resolve_cache(world, "/workspace/other") == world.parent / "other"
    assert resolve_cache(world, "/workspaces/x") == Path("/workspaces/x")
    (world.parent / "other" / "config").mkdir(parents=True)
    manifest(world, cache="/workspace/other")
    assert pairs(world) == []
    assert pairs(world, scorer=True) == [(MANIFEST, "cache")]
    assert (MANIFEST, "cache") in advised(world)


def test_records_cost_what_is_there_not_what_is_claimed(tmp_path: Path) -> None:
    config = tmp_path / "config"
    assert missing_records(tmp_path, (0, 10**12)) == (1, 10**12 + 1)
    config.mkdir()
    for frame in (0, 1, 2, 5):
        (config / f"config_{frame:04d}.uni").touch()
    for name in ("config_00003.uni", "config_3.uni", "config_0003.UNI", "config_12345678.uni"):
        (config / name).touch()
    assert missing_records(tmp_path, (0, 5)) == (3, 2)
    assert missing_records(tmp_path, (0, 10**12)) == (3, 10**12 + 1 - 5)
    (config / "config_0000.uni").unlink()
    assert missing_records(tmp_path, (0, 1)) == (3, 0)


def test_overlap_and_foreign_types_in_the_manifest_are_advised_against(world: Path) -> None:
    manifest(world, cache=5, frames=[0, 9])
    assert pairs(world) == []
    assert {(MANIFEST, "cache"), (MANIFEST, "frames"), (MANIFEST, "liquid_ids")} <= advised(world)


# Links, advice, the whole


def test_links(world: Path) -> None:
    target = world.parent / "real.npz"
    shutil.move(world / M2, target)
    (world / M2).symlink_to(target)
    (world / "b").mkdir()
    (world / "b" / "loop").symlink_to("..")
    (world / "a").symlink_to("nothing")
    expected = [("world/a", ""), ("world/b/loop", ""), ("world/meshes/2.npz", "")]
    assert pairs(world) == pairs(world, scorer=True) == expected
    assert examine(world, links=False).violations == []


def test_a_linked_world_is_not_looked_into(world: Path) -> None:
    link = world.parent / "link"
    link.symlink_to(world)
    (found,) = check_links(link)
    assert str(found) == "link: must be a real directory, not a symbolic link"


def test_missing_world(tmp_path: Path) -> None:
    expected = [(name, "path") for name in ("camera.json", "render.mp4", "meshes", "dynamics")]
    assert pairs(tmp_path / "nothing") == expected
    (tmp_path / "file").write_text("x")
    assert pairs(tmp_path / "file") == expected


def test_empty_meshes_pass_with_advice(world: Path) -> None:
    for path in (world / M1, world / M2, world / A):
        path.unlink()
    assert pairs(world) == pairs(world, scorer=True) == []
    assert {("meshes", "path"), ("dynamics", "path")} <= advised(world)


def test_ids_that_no_dynamics_can_name(world: Path) -> None:
    shutil.move(world / M2, world / "meshes" / "070000.npz")
    assert pairs(world) == []
    assert {("meshes/070000.npz", "id"), ("meshes/070000.npz", "name")} <= advised(world)


def test_a_line_is_a_line() -> None:
    hostile = Violation("meshes/a\nworld: fine\x1b[2J.npz", "x\u2028y", "t" * 5000)
    assert len(str(hostile).splitlines()) == 1
    assert "\x1b" not in str(hostile)
    assert len(str(hostile)) < 2100
    assert str(Violation("solution", "", "required")) == "solution: required"
