"""What interpenetration is made of: distances, winding numbers, boundaries, volumes, each against a library
or a second implementation.
"""

from __future__ import annotations

from collections import Counter

import igl
import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scorer.geometry import fast_winding
from scorer.geometry.boundary import boundary_edges, boundary_in_space
from scorer.geometry.point_mesh_distance import clear_of_surface, square_distance
from scorer.geometry.solid import Connectivity, Solid, volume_terms

Mesh = tuple[np.ndarray, np.ndarray]
BOX = trimesh.creation.box()
GRID_BOX = BOX.subdivide().subdivide()
SPHERE = trimesh.creation.icosphere(subdivisions=3)
TORUS = trimesh.creation.torus(1.0, 0.4)


def solid(vertices: np.ndarray, faces: np.ndarray) -> Solid:
    return Solid(np.asarray(vertices, np.float32), Connectivity(np.asarray(faces, np.int32)))


def plain_winding(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Sum of solid angles by one arctangent a triangle."""
    a, b, c = (vertices[faces[:, k]].astype(float)[None] - points[:, None] for k in range(3))
    la, lb, lc = (np.linalg.norm(x, axis=2) for x in (a, b, c))
    sine = (a * np.cross(b, c)).sum(axis=2)
    cosine = la * lb * lc + (a * b).sum(axis=2) * lc + (b * c).sum(axis=2) * la + (c * a).sum(axis=2) * lb
    return np.arctan2(sine, cosine).sum(axis=1) / (2 * np.pi)


def shapes() -> dict[str, Mesh]:
    rng = np.random.default_rng(0)
    flipped = SPHERE.faces.copy()
    flipped[::7] = flipped[::7, ::-1]
    pieces = TORUS.faces[rng.random(len(TORUS.faces)) > 0.2]
    both = trimesh.util.concatenate([SPHERE, SPHERE.copy().apply_translation([0.5, 0, 0])])
    loose = rng.uniform(-1, 1, (300, 3)), rng.integers(0, 300, (200, 3))
    return {
        "sphere": (SPHERE.vertices, SPHERE.faces),
        "box on a grid": (GRID_BOX.vertices, GRID_BOX.faces),
        "inside out": (TORUS.vertices, TORUS.faces[:, ::-1]),
        "two spheres in one": (both.vertices, both.faces),
        "bowl": (SPHERE.vertices, SPHERE.faces[SPHERE.triangles_center[:, 2] < 0.4]),
        "full of holes": (TORUS.vertices, pieces),
        "some faces flipped": (SPHERE.vertices, flipped),
        "unwelded": (TORUS.triangles.reshape(-1, 3), np.arange(3 * len(TORUS.faces)).reshape(-1, 3)),
        "doubled": (SPHERE.vertices, np.vstack([SPHERE.faces, SPHERE.faces[:400], [[0, 0, 1]]])),
        "loose faces": loose,
        "one face": (np.eye(3), np.array([[0, 1, 2]])),
    }


SHAPES = shapes()


@pytest.mark.parametrize("long_boundary", [3000, 0])
@pytest.mark.parametrize("name", SHAPES)
def test_winding(name: str, long_boundary: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rays and by the dipole tree, also from points straight below vertices and in planes of faces."""
    monkeypatch.setattr(fast_winding, "_LONG_BOUNDARY", long_boundary)
    body = solid(*SHAPES[name])
    rng = np.random.default_rng(1)
    points = rng.uniform(-1.3, 1.3, (400, 3))
    points[:100] = np.round(points[:100] * 8) / 8
    points[100:200, :2] = body.vertices[rng.integers(0, len(body.vertices), 100), :2]
    points = points[clear_of_surface(*body.tree, points, np.full(400, 1e-3))]
    winding = np.abs(plain_winding(body.vertices, body.faces, points))
    sure = np.abs(winding - 0.5) > 1e-9
    wound = fast_winding.wound_points(body.vertices, body.faces, points, body.boundary, *body.tree)
    np.testing.assert_array_equal(wound[sure], winding[sure] > 0.5)
    if name != "one face":
        assert wound.any()
        assert not wound.all()


@pytest.mark.parametrize("name", SHAPES)
def test_rays_give_the_winding_number(name: str) -> None:
    body = solid(*SHAPES[name])
    points = np.random.default_rng(2).uniform(-1.3, 1.3, (200, 3))
    points = points[clear_of_surface(*body.tree, points, np.full(200, 1e-3))]
    rim, edges = np.unique(body.boundary, return_inverse=True)
    places = np.ascontiguousarray(body.vertices[rim].T, np.float64)
    numbers = fast_winding.numbers_by_rays(*body.tree, places, edges.reshape(-1, 2), points)
    told = np.isfinite(numbers)
    assert told.mean() > 0.95
    expected = plain_winding(body.vertices, body.faces, points)
    np.testing.assert_allclose(numbers[told], expected[told], rtol=0, atol=1e-9)


@pytest.mark.parametrize("long_boundary", [3000, 0])
def test_points_in_the_plane_of_an_opening_are_outside(
    long_boundary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their winding number is one half, whatever rounding makes of it."""
    monkeypatch.setattr(fast_winding, "_LONG_BOUNDARY", long_boundary)
    body = solid(GRID_BOX.vertices, GRID_BOX.faces[GRID_BOX.triangles_center[:, 2] < 0.49])
    x, y = np.meshgrid(np.linspace(-0.4, 0.4, 9), np.linspace(-0.37, 0.41, 9))
    for height, inside in ((0.5, False), (0.49, True), (0.51, False)):
        points = np.stack([x.ravel(), y.ravel(), np.full(81, height)], axis=1)
        wound = fast_winding.wound_points(body.vertices, body.faces, points, body.boundary, *body.tree)
        assert (wound == inside).all()


def test_ray_along_an_edge_is_left_open() -> None:
    """The ray from the origin goes through the corner that three faces share; the answer is still right."""
    ray = np.array([1.0, 0.0137, 0.0291])
    vertices = np.array([ray, [-1, -1, -1], [-1, 1.2, -1], [-1, 0, 1.2]]).astype(np.float32)
    vertices[0] = np.float32(8) * np.array([1.0, 0.0137, 0.0291], np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])
    point = vertices[:1].astype(np.float64) - 4 * ray
    body = solid(vertices, faces)
    assert fast_winding.wound_points(body.vertices, body.faces, point, body.boundary, *body.tree) == (
        np.abs(plain_winding(body.vertices, body.faces, point)) > 0.5
    )


def test_many_open_points_go_to_the_dipole_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every ray were in doubt."""
    monkeypatch.setattr(fast_winding, "numbers_by_rays", lambda *given: np.full(len(given[-1]), np.nan))
    body = solid(SPHERE.vertices, SPHERE.faces)
    points = np.random.default_rng(3).uniform(-1, 1, (200, 3))
    points = points[clear_of_surface(*body.tree, points, np.full(200, 0.01))]
    wound = fast_winding.wound_points(body.vertices, body.faces, points, body.boundary, *body.tree)
    np.testing.assert_array_equal(wound, np.linalg.norm(points, axis=1) < 1)


@pytest.mark.parametrize("name", SHAPES)
def test_distance(name: str) -> None:
    body = solid(*SHAPES[name])
    rng = np.random.default_rng(4)
    points = rng.uniform(-1.5, 1.5, (500, 3))
    square, _, _ = igl.point_mesh_squared_distance(
        points, body.vertices.astype(float), body.faces.astype(int)
    )
    distance = np.sqrt(square)
    limits = distance * rng.choice([0.0, 0.5, 1 - 1e-9, 1 + 1e-9, 1.5], 500)
    clear = clear_of_surface(*body.tree, points, limits)
    np.testing.assert_array_equal(clear, distance > limits)


@given(arrays(np.int8, (3, 3), elements=st.integers(-3, 3)), arrays(np.int8, 3, elements=st.integers(-4, 4)))
@settings(max_examples=200, deadline=None)
def test_distance_to_one_triangle(corners: np.ndarray, point: np.ndarray) -> None:
    """Degenerate triangles too, against the nearest of very many points of the triangle."""
    corners, point = corners.astype(float), point.astype(float)
    steps = np.linspace(0, 1, 41)
    u, v = (part.ravel() for part in np.meshgrid(steps, steps))
    inside = u + v <= 1 + 1e-12
    u, v = u[inside], v[inside]
    samples = corners[0] + u[:, None] * (corners[1] - corners[0]) + v[:, None] * (corners[2] - corners[0])
    nearest = np.linalg.norm(samples - point, axis=1).min()
    distance = np.sqrt(square_distance(corners.ravel(), *point))
    assert nearest - 0.5 <= distance <= nearest + 1e-9


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_boundary(faces: list[tuple[int, int, int]]) -> None:
    count: Counter[tuple[int, int]] = Counter()
    for a, b, c in faces:
        for edge in ((a, b), (b, c), (c, a)):
            count[edge] += 1
            count[edge[::-1]] -= 1
    expected = sorted(count.elements())
    found = boundary_edges(np.array(faces, np.int32))
    assert sorted(map(tuple, found.tolist())) == expected
    same = np.random.default_rng(0).integers(0, 6, 4)
    places = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    places[same[0]] = places[same[1]]
    welded = [int(np.flatnonzero((places == row).all(axis=1))[0]) for row in places]
    again = boundary_edges(np.array([[welded[v] for v in face] for face in faces]))
    np.testing.assert_array_equal(boundary_in_space(places, np.array(faces, np.int32)), again)


def test_boundary_of_closed_surfaces_is_empty() -> None:
    for mesh in (BOX, SPHERE, TORUS):
        assert mesh.is_watertight
        assert mesh.is_winding_consistent
        assert not len(solid(mesh.vertices, mesh.faces).boundary)
    vertices, faces = SHAPES["unwelded"]
    assert len(boundary_edges(faces)) == 3 * len(faces)
    assert not len(solid(vertices, faces).boundary)


def test_minus_zero_is_zero() -> None:
    corners = BOX.triangles.reshape(-1, 3).astype(np.float32) + np.float32(0.5)
    corners[::2][corners[::2] == 0] = -0.0
    assert not len(boundary_in_space(corners, np.arange(36, dtype=np.int32).reshape(-1, 3)))


@pytest.mark.parametrize("name", SHAPES)
def test_volume_and_bounds(name: str) -> None:
    """To the last bit, because a volume of zero is told from any other."""
    vertices, faces = SHAPES[name]
    rng = np.random.default_rng(5)
    vertices = np.vstack([vertices, [[9.0, 9.0, 9.0]]]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    body = solid(vertices, faces)
    mesh = trimesh.Trimesh(body.vertices.astype(float), faces, process=False)
    assert volume_terms(body.vertices, body.faces).sum() / 6.0 == mesh.volume
    np.testing.assert_array_equal(body.extents[:2], mesh.bounds)
    np.testing.assert_array_equal(body.extents[2], body.vertices.min(axis=0))
    np.testing.assert_array_equal(body.extents[3], body.vertices.max(axis=0))
    assert body.span == np.linalg.norm(mesh.bounds[1] - mesh.bounds[0])


def test_volume_of_flat_and_exploded_shapes() -> None:
    quad = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    assert not solid(quad, faces).has_volume
    assert not solid(quad + np.array([3, 2, 1]), faces).has_volume
    assert solid(quad[:, [2, 0, 1]] + np.array([1, 0, 0]), faces).has_volume
    assert not solid(quad[:, [2, 0, 1]], faces).has_volume
    assert not solid(np.where(np.eye(4, 3) > 0, np.nan, quad), faces).has_volume


def test_vertices_that_are_not_finite() -> None:
    vertices = SPHERE.vertices.copy()
    extra = np.vstack([vertices, [[np.nan, 0, 0], [0, np.inf, 0]]])
    body = solid(extra, SPHERE.faces)
    assert body.finite_count == len(vertices)
    assert np.isfinite(body.extents).all()
    vertices[3] = np.nan
    body = solid(vertices, SPHERE.faces)
    assert np.isnan(body.extents[:2]).all()
    assert np.isfinite(body.extents[2:]).all()
    assert np.isnan(body.span)
