"""The baseline's meshes: closed, clean, wound outwards, and exactly as large in the picture as asked."""

import igl.copyleft.cgal as cgal
import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline.solution_program.camera import Camera
from harness.baseline.solution_program.shapes import RINGS, ground, pebble, pebble_faces, slab, wall


def closed(vertices: np.ndarray, faces: np.ndarray) -> trimesh.Trimesh:
    return trimesh.Trimesh(vertices.astype(np.float64), faces, process=False)


def assert_sound(vertices: np.ndarray, faces: np.ndarray) -> None:
    mesh = closed(vertices, faces)
    assert mesh.is_watertight
    assert mesh.is_winding_consistent
    assert mesh.volume > 0  # outwards
    assert mesh.area_faces.min() > 0
    assert len(np.unique(np.round(vertices.astype(np.float64) * 1e8), axis=0)) == len(vertices)
    crossing = cgal.remesh_self_intersections(mesh.vertices, faces.astype(np.int64), detect_only=True)[2]
    assert len(crossing) == 0


def test_slabs_are_sound() -> None:
    assert closed(*_parts(slab((0, 0, 0), (1, 2, 3)))).volume == pytest.approx(6)
    for mesh in (ground(), wall()):
        assert_sound(mesh.vertices, mesh.faces)


@settings(max_examples=25, deadline=None)
@given(
    radii=st.lists(st.floats(0.4, 300), min_size=64, max_size=64),
    column=st.floats(-50, 700),
    row=st.floats(-50, 500),
    depth=st.floats(1, 9),
    share=st.floats(0.01, 0.3),
)
def test_any_outline_gives_a_sound_mesh(
    radii: list[float], column: float, row: float, depth: float, share: float
) -> None:
    camera = Camera(480, 640)
    vertices = pebble(camera, np.array([[column, row]]), np.array([radii]), depth, share * depth)
    assert vertices.dtype == np.float32
    assert_sound(vertices[0], pebble_faces(64))


def test_the_outline_in_the_picture_is_the_given_one() -> None:
    camera = Camera(270, 480)
    generator = np.random.default_rng(3)
    centres, radii = generator.uniform(50, 200, (5, 2)), generator.uniform(5, 40, (5, 64))
    vertices = pebble(camera, centres, radii, 4.0, 0.5)
    angles = 2 * np.pi * np.arange(64) / 64
    for frame in range(5):
        columns, rows, depth = camera.project(vertices[frame].astype(np.float64))
        rim = slice(1 + len(RINGS) * 64, 1 + (len(RINGS) + 1) * 64)
        np.testing.assert_allclose(columns[rim], centres[frame, 0] + radii[frame] * np.cos(angles), atol=1e-3)
        np.testing.assert_allclose(rows[rim], centres[frame, 1] + radii[frame] * np.sin(angles), atol=1e-3)
        np.testing.assert_allclose(depth[rim], 4.0, atol=1e-5)
        assert depth[0] == pytest.approx(3.5, abs=1e-5)
        assert depth[-1] == pytest.approx(4.5, abs=1e-5)


@pytest.mark.parametrize(("height", "width"), [(720, 1280), (1280, 720), (512, 512), (16, 16), (100, 1600)])
def test_ground_and_wall_fill_the_view_in_front_of_the_camera(height: int, width: int) -> None:
    camera = Camera(height, width)
    points = np.concatenate([ground().vertices, wall().vertices]).astype(np.float64)
    assert camera.project(points)[2].min() > 0.1
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], dtype=np.float64)
    eye = camera.extrinsic[:3, 3]
    for column, row in corners:
        ray = camera.lift(np.array(column), np.array(row), np.array(1.0)) - eye
        at_wall = eye + ray * (20.0 / ray[1])
        at_ground = eye - ray * (eye[2] / ray[2])
        hits_wall = abs(at_wall[0]) < 60 and 0 <= at_wall[2] < 40
        hits_ground = ray[2] < 0 and abs(at_ground[0]) < 60 and 0.4 < at_ground[1] <= 20
        assert hits_wall or hits_ground


def test_camera_turns_points_back_and_forth() -> None:
    camera = Camera(270, 480)
    rotation = camera.extrinsic[:3, :3]
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    generator = np.random.default_rng(1)
    columns, rows, depth = (
        generator.uniform(0, 480, 50),
        generator.uniform(0, 270, 50),
        generator.uniform(1, 9, 50),
    )
    back = camera.project(camera.lift(columns, rows, depth))
    np.testing.assert_allclose(back, (columns, rows, depth), atol=1e-9)
    seen = camera.lift(np.array(240.0), np.array(250.0), np.array(camera.ground_depth(250.0)))
    assert seen[2] == pytest.approx(0, abs=1e-9)
    assert camera.ground_depth(0.0) == np.inf
    assert camera.row_of_ground(seen[1]) == pytest.approx(250.0)


def _parts(mesh: object) -> tuple[np.ndarray, np.ndarray]:
    return mesh.vertices, mesh.faces  # type: ignore[attr-defined]
