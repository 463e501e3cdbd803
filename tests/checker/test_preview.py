"""``python -m checker.preview``: the published picture, a plain rasteriser, and what cannot be drawn."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from base_world import FACES, VERTICES, build_base_world, edit

import checker.preview as program
from checker.png import write_png
from checker.preview_draw import clip_near, draw, id_colour, project_parts
from checker.preview_fit import fit, outlines
from checker.preview_scene import Part, PreviewScene, load_scene
from contract.errors import UserError
from world.validation.camera import Camera


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_base_world(tmp_path_factory.mktemp("base"))


@pytest.fixture
def world(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base, tmp_path / "workspace" / "world")
    return tmp_path / "workspace" / "world"


def read_png(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


def colours(image: np.ndarray) -> dict[tuple[int, ...], int]:
    values, counts = np.unique(image.reshape(-1, 3), axis=0, return_counts=True)
    return {tuple(value.tolist()): int(count) for value, count in zip(values, counts, strict=True)}


def make_scene(parts: list[Part], height: int = 40, width: int = 50, focal: float = 45.0) -> PreviewScene:
    intrinsics = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    return PreviewScene(np.zeros((height, width, 3), np.uint8), Camera(intrinsics, np.eye(4)), parts)


def test_published_picture(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--workspace", str(world.parent)]) == 0
    image = read_png(world.parent / "tmp" / "preview_0000.png")
    assert image.shape == (48, 128, 3)
    assert np.abs(image[:, :64].astype(int) - 60).max() <= 3
    assert colours(image[:, 64:]) == {(40, 40, 40): 1920, (63, 254, 119): 288, (175, 63, 254): 864}
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "geometry covers 37.5 %" in printed.err
    assert "mesh 1: 288 pixels" in printed.err


@pytest.mark.parametrize(
    ("number", "rgb"),
    [
        (1, (63.75, 255, 119.556)),
        (2, (175.362, 63.75, 255)),
        (3, (255, 231.168, 63.75)),
        (10, (239.310, 63.75, 255)),
    ],
)
def test_published_colours(number: int, rgb: tuple[float, ...]) -> None:
    np.testing.assert_allclose(id_colour(number), rgb, atol=5e-4)


def test_other_frames_and_places(world: Path, tmp_path: Path) -> None:
    output = tmp_path / "deep" / "er" / "p.png"
    options = ["--workspace", str(world.parent), "--frame", "3", "--output", str(output), "--outlines"]
    assert program.main(options) == 0
    image = read_png(output)
    assert abs(np.median(image[:, :64]) - 120) <= 3
    assert (255, 0, 255) in colours(image[:, :64])
    assert not (world.parent / "tmp").exists()


def naive_picture(scene: PreviewScene) -> np.ndarray:
    """One triangle after the other, far to near, one pixel after the other."""
    height, width = scene.image.shape[:2]
    triangles = project_parts(scene)
    image = np.full((height, width, 3), 40, np.uint8)
    buffer = np.full((height, width), math.inf)
    for pixels, depths, colour in zip(triangles.pixels, triangles.depths, triangles.colours, strict=True):
        (ax, ay), (bx, by), (cx, cy) = pixels.tolist()
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        if abs(area) < 1e-12:
            continue
        for y in range(height):
            for x in range(width):
                px, py = x + 0.5, y + 0.5
                w0 = ((bx - px) * (cy - py) - (by - py) * (cx - px)) / area
                w1 = ((cx - px) * (ay - py) - (cy - py) * (ax - px)) / area
                w2 = ((ax - px) * (by - py) - (ay - py) * (bx - px)) / area
                if min(w0, w1, w2) < 0:
                    continue
                depth = float(np.float32(1 / (w0 / depths[0] + w1 / depths[1] + w2 / depths[2])))
                if depth < buffer[y, x]:
                    buffer[y, x] = depth
                    image[y, x] = colour.astype(np.uint8)
    return image


@pytest.mark.parametrize("seed", range(6))
def test_same_picture_as_the_naive_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(1, 4):
        spread = [0.2, 1.0, 6.0][number - 1]
        centre = rng.uniform([-2, -2, 2], [2, 2, 5], size=(10, 1, 3))
        vertices = (centre + rng.normal(size=(10, 3, 3)) * spread).astype(np.float32).reshape(-1, 3)
        parts.append(Part(number, vertices, np.arange(30, dtype=np.int32).reshape(10, 3)))
    scene = make_scene(parts)
    np.testing.assert_array_equal(draw(scene).image, naive_picture(scene))


def test_large_and_small_triangles_share_the_depth() -> None:
    quad = np.array([[-9, -9, 5], [9, -9, 5], [9, 9, 5], [-9, 9, 5]], np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    near, far = Part(1, quad * np.float32(0.05), faces), Part(2, quad, faces)
    small = draw(make_scene([far, near])).ids
    assert set(np.unique(small).tolist()) == {1, 2} or (small == 1).all()
    coplanar = draw(make_scene([Part(3, quad, faces), Part(4, quad, faces)])).ids
    assert (coplanar == 3).all()


def test_triangles_through_the_camera_are_cut_not_dropped() -> None:
    floor = np.array([[-50, 1, -50], [50, 1, -50], [50, 1, 50], [-50, 1, 50]], np.float32)
    scene = make_scene([Part(1, floor, np.array([[0, 1, 2], [0, 2, 3]], np.int32))])
    ids = draw(scene).ids
    assert (ids[25:] == 1).all()
    assert (ids[:20] == 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_cutting_keeps_area_in_front(seed: int) -> None:
    """The pieces lie beyond the plane and have the area that similar triangles say."""
    corners = np.random.default_rng(seed).normal(size=(200, 3, 3))
    pieces, source = clip_near(corners, 0.25)
    assert (pieces[:, :, 2] >= 0.25 - 1e-12).all()
    area = np.zeros(len(corners))
    np.add.at(
        area,
        source,
        np.linalg.norm(np.cross(pieces[:, 1] - pieces[:, 0], pieces[:, 2] - pieces[:, 0]), axis=1),
    )
    whole = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    for triangle in range(len(corners)):
        z = np.sort(corners[triangle, :, 2]) - 0.25
        if z[0] > 0:
            share = 1.0
        elif z[2] <= 0:
            share = 0.0
        elif z[1] <= 0:
            share = z[2] ** 2 / ((z[2] - z[0]) * (z[2] - z[1]))
        else:
            share = 1 - z[0] ** 2 / ((z[1] - z[0]) * (z[2] - z[0]))
        assert area[triangle] == pytest.approx(share * whole[triangle], abs=1e-9)


def test_nothing_to_see() -> None:
    behind = Part(1, VERTICES - np.float32(9), FACES)
    assert (draw(make_scene([])).ids == 0).all()
    assert (draw(make_scene([behind])).ids == 0).all()
    line = Part(1, np.array([[0, 0, 5], [1, 1, 5], [2, 2, 5]], np.float32), np.array([[0, 1, 2]], np.int32))
    assert (draw(make_scene([line])).ids == 0).all()
    huge = Part(1, np.full((3, 3), 3e38, np.float32), np.array([[0, 1, 2]], np.int32))
    assert (draw(make_scene([huge])).ids == 0).all()


def test_absent_frames_and_empty_faces_are_left_out(world: Path) -> None:
    np.savez(world / "meshes" / "3.npz", vertices_0002=VERTICES, faces_0002=FACES)
    edit(world / "meshes" / "2.npz", {"faces_0000": np.zeros((0, 3), np.int32)})
    assert [part.id for part in load_scene(world, 0).parts] == [1]
    assert [part.id for part in load_scene(world, 2).parts] == [1, 2, 3]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: (w / "camera.json").unlink(), "camera.json: path"),
        (lambda w: (w / "camera.json").write_text(json.dumps({"intrinsics": 1})), "camera.json: intrinsics"),
        (lambda w: (w / "render.mp4").unlink(), "render.mp4"),
        (lambda w: (w / "render.mp4").write_bytes(b"x"), "could not be decoded"),
        (lambda w: shutil.rmtree(w / "meshes"), "meshes"),
        (lambda w: shutil.copy(w / "meshes" / "1.npz", w / "meshes" / "x.npz"), "x.npz"),
        (lambda w: (w / "meshes" / "1.npz").write_bytes(b"x"), "1.npz"),
        (lambda w: edit(w / "meshes" / "1.npz", remove=("faces_0000",)), "faces_0000"),
        (lambda w: edit(w / "meshes" / "1.npz", {"faces_0000": FACES + 9}), "faces_0000"),
        (lambda w: edit(w / "meshes" / "1.npz", {"faces_0000": FACES.astype("i8")}), "int64"),
        (lambda w: edit(w / "meshes" / "1.npz", {"vertices_0000": VERTICES * np.float32("nan")}), "finite"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(world: Path, spoil: object, words: str) -> None:
    spoil(world)  # type: ignore[operator]
    with pytest.raises(UserError) as caught:
        program.preview(world, 0, world.parent / "p.png")
    assert words in caught.value.line()
    assert not (world.parent / "p.png").exists()


def test_frame_beyond_the_end(world: Path) -> None:
    with pytest.raises(UserError, match="has 4 frames"):
        program.preview(world, 4, world.parent / "p.png")
    for text in ("-1", "x", "10000", "\u0661"):
        with pytest.raises(SystemExit) as left:
            program.main(["--workspace", str(world.parent), "--frame", text])
        assert left.value.code == 2


def test_png_round_trip(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, size=(7, 13, 3), dtype=np.uint8)
    write_png(tmp_path / "x.png", image)
    np.testing.assert_array_equal(read_png(tmp_path / "x.png"), image)
    with pytest.raises(ValueError, match="must be uint8"):
        write_png(tmp_path / "y.png", image.astype(np.float32))


@pytest.mark.parametrize("shift", [(0, 0), (3, -2), (-5, 6)])
def test_fit_finds_the_shift(shift: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    ids = np.zeros((60, 80), np.int64)
    for number in range(1, 5):
        y, x = rng.integers(10, 40), rng.integers(10, 60)
        ids[y : y + 9, x : x + 12] = number
    image = np.repeat(
        (np.roll(ids, (shift[1], shift[0]), axis=(0, 1)) * 60 % 251).astype(np.uint8)[..., None], 3, axis=2
    )
    found = fit(ids, image)
    assert found is not None
    assert (found.dx, found.dy) == shift
    assert found.best >= found.here
    assert fit(ids, np.zeros_like(image)) is None
    assert not outlines(np.zeros((3, 3), np.int64)).any()
