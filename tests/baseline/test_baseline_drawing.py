"""The solution's renderer against a naive one."""

import numpy as np
import pytest

from harness.baseline.solution_program.camera import Camera
from harness.baseline.solution_program.drawing import Canvas
from harness.baseline.solution_program.shapes import Mesh, ground, pebble, pebble_faces, slab, wall


def naive(camera: Camera, meshes: list[Mesh]) -> tuple[np.ndarray, np.ndarray]:
    """Depth and mesh number (from 1) of every pixel centre, ray by ray with the plane of each triangle."""
    depth = np.full((camera.height, camera.width), np.inf)
    owner = np.zeros((camera.height, camera.width), dtype=int)
    rows, columns = np.mgrid[: camera.height, : camera.width] + 0.5
    rays = np.stack(
        [(columns - camera.width / 2) / camera.focal, (rows - camera.height / 2) / camera.focal], -1
    )
    rays = np.concatenate([rays, np.ones((*rows.shape, 1))], axis=-1)
    for number, mesh in enumerate(meshes, start=1):
        seen = (mesh.vertices.astype(np.float64) - camera.extrinsic[:3, 3]) @ camera.extrinsic[:3, :3]
        for a, b, c in seen[mesh.faces]:
            sides = np.stack([rays @ np.cross(p, q) for p, q in ((a, b), (b, c), (c, a))])
            inside = (sides >= 0).all(axis=0) | (sides <= 0).all(axis=0)
            normal = np.cross(b - a, c - a)
            z = (a @ normal) / np.where(rays @ normal == 0, np.nan, rays @ normal)
            nearer = inside & (z < depth)
            depth[nearer], owner[nearer] = z[nearer], number
    return depth, owner


def test_the_picture_shows_what_rays_meet() -> None:
    camera = Camera(54, 96)
    generator = np.random.default_rng(4)
    meshes = [ground(), wall(), slab((-0.5, 4, 0), (0.3, 4.5, 0.7))]
    for _ in range(6):
        centre, radii = generator.uniform(10, 80, (1, 2)), generator.uniform(2, 25, (1, 16))
        depth = float(generator.uniform(2, 8))
        meshes.append(Mesh(pebble(camera, centre, radii, depth, 0.2 * depth)[0], pebble_faces(16)))
    canvas = Canvas(camera)
    # One colour channel tells the meshes apart whatever the light does to it.
    for number, mesh in enumerate(meshes, start=1):
        canvas.draw(mesh, (10 * number, 0, 0) if number % 2 else (0, 0, 10 * number))
    _, owner = naive(camera, meshes)
    assert set(np.unique(owner)) >= {1, 2}
    odd = owner % 2 == 1
    agree = (canvas.image[:, :, 0] > 0) == odd
    assert agree.mean() > 0.999
    assert (canvas.image.max(axis=2) > 0).all()


def test_ground_and_wall_leave_no_gap() -> None:
    for shape in ((16, 16), (90, 161), (161, 90), (9, 200)):
        canvas = Canvas(Camera(*shape))
        canvas.draw(ground(), (100, 100, 100))
        canvas.draw(wall(), (100, 100, 100))
        assert (canvas.image > 0).all()


def test_neighbouring_faces_neither_overlap_nor_part() -> None:
    camera = Camera(120, 160)
    mesh = Mesh(
        pebble(camera, np.array([[80.0, 60.0]]), np.full((1, 64), 50.0), 3.0, 0.6)[0], pebble_faces(64)
    )
    canvas = Canvas(camera)
    canvas.draw(mesh, (255, 255, 255))
    drawn = canvas.image.max(axis=2) > 0
    rows, columns = np.mgrid[:120, :160] + 0.5
    distance = np.hypot(columns - 80, rows - 60)
    assert drawn[distance < 49.5].all()
    assert not drawn[distance > 50.01].any()


@pytest.mark.parametrize("column", [-500.0, 5000.0, 159.9])
def test_what_lies_outside_the_picture_is_cut_off(column: float) -> None:
    camera = Camera(120, 160)
    mesh = Mesh(
        pebble(camera, np.array([[column, 60.0]]), np.full((1, 16), 30.0), 3.0, 0.6)[0], pebble_faces(16)
    )
    canvas = Canvas(camera)
    canvas.draw(mesh, (255, 255, 255))
    drawn = np.flatnonzero((canvas.image.max(axis=2) > 0).any(axis=0))
    assert (drawn >= column - 31).all()
    assert (drawn.size > 0) == (column == 159.9)


def test_a_copy_is_drawn_on_without_the_original() -> None:
    canvas = Canvas(Camera(20, 30))
    canvas.draw(wall(), (50, 50, 50))
    before = canvas.image.copy()
    other = canvas.copy()
    other.draw(ground(), (250, 0, 0))
    np.testing.assert_array_equal(canvas.image, before)
    assert (other.image != before).any()
