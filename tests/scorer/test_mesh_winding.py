"""Winding numbers against libigl, and the sheet verdict that follows from them."""

from __future__ import annotations

import igl
import numpy as np
import pytest
import trimesh
from naive_mesh import naive_median

from scorer.geometry.winding import winding_numbers
from scorer.geometry.winding_bounds import dipole_tree, winding_with_bound
from scorer.metrics.mesh_layout import layout
from scorer.metrics.mesh_shells import PROBES, ProbeFaces, any_solid


def ours(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    return winding_numbers(vertices, faces.astype(np.int32), np.unique(faces), points)


def test_exact_winding_number() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        vertices = rng.normal(size=(40, 3)).astype(np.float32)
        faces = np.array([rng.permutation(40)[:3] for _ in range(60)])
        points = rng.normal(size=(50, 3))
        expected = igl.winding_number(vertices.astype(float), faces.astype(np.int64), points)
        assert np.abs(ours(vertices, faces, points) - expected).max() < 1e-9


def test_many_turns_and_plain_values() -> None:
    sphere = trimesh.creation.icosphere(subdivisions=2)
    vertices = sphere.vertices.astype(np.float32)
    points = np.array([[0, 0, 0], [0.3, 0.1, 0], [5, 0, 0]])
    assert np.allclose(ours(vertices, sphere.faces, points), [1, 1, 0])
    wound = np.tile(sphere.faces, (7, 1))
    assert np.allclose(ours(vertices, wound, points), [7, 7, 0])
    assert np.allclose(ours(vertices, wound[:, ::-1], points), [-7, -7, 0])


def test_point_on_a_corner_or_in_the_plane_adds_nothing() -> None:
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32)
    points = np.array([[0, 0, 0], [0.2, 0.2, 0], [0.5, 0, 0], [3, 3, 0]], float)
    assert ours(vertices, np.array([[0, 1, 2], [0, 0, 1], [2, 2, 2]]), points).tolist() == [0, 0, 0, 0]


def open_shapes() -> list[tuple[str, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    sphere = trimesh.creation.icosphere(subdivisions=2)
    box = trimesh.creation.box()
    heights = sphere.triangles_center[:, 2]
    shapes = [(f"cap {z:.2f}", sphere.vertices, sphere.faces[heights < z]) for z in np.linspace(-0.9, 0.9, 9)]
    shapes += [
        (f"holes {share}", sphere.vertices, sphere.faces[rng.random(320) > share])
        for share in (0.05, 0.2, 0.4, 0.6)
    ]
    shapes += [(f"box {k}", box.vertices, box.faces[k:]) for k in (3, 4, 6)]
    shapes.append(("soup", rng.normal(size=(50, 3)), np.array([rng.permutation(50)[:3] for _ in range(60)])))
    return shapes


@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_sheet_verdict_is_that_of_libigl(scale: float, offset: float) -> None:
    solids = 0
    for name, vertices, faces in open_shapes():
        moved = (vertices * scale + np.array([1, 0.7, -0.3]) * offset).astype(np.float32)
        plan = layout(faces, len(moved))
        for c in range(len(plan.own)):
            part = plan.faces[plan.start[c] : plan.start[c + 1]]
            chosen = np.random.default_rng(c).permutation(len(part))[:PROBES]
            median = naive_median(moved.astype(float), [tuple(map(int, face)) for face in part], chosen)
            solid = any_solid(plan, moved, [c], [chosen])
            assert solid == (not median < 0.75), (name, c, median)
            solids += solid
    assert solids > 8


def test_probe_faces_follow_one_generator() -> None:
    """Draws that decide nothing are put off, but those after them come out as if they had been made."""
    counts = [3, 150, 250, 1, 200, 201, 9000, 17, 20000, 5]
    plain = np.random.default_rng(8191 * 4)
    probes = ProbeFaces(8191 * 4)
    for count in counts:
        expected = plain.choice(count, min(200, count), replace=False)
        taken = probes.take(count)
        if count > PROBES:
            assert taken.tolist() == expected.tolist()
        else:
            assert taken.tolist() == sorted(expected.tolist())


@pytest.mark.parametrize("far", [2.0, 6.0, 16.0])
def test_bound_holds(far: float) -> None:
    """The exact number lies within the bound, which shrinks as patches are taken from farther off."""
    rng = np.random.default_rng(5)
    for _, vertices, faces in [*open_shapes(), ("point", np.zeros((3, 3)), np.array([[0, 1, 2], [0, 0, 0]]))]:
        vertices = vertices.astype(np.float32)
        nodes, corners = dipole_tree(vertices, faces)
        for point in np.concatenate([rng.normal(size=(20, 3)), 10 * rng.normal(size=(5, 3))]):
            number, error = winding_with_bound(nodes, corners, *point, far)
            assert abs(number - ours(vertices, faces, point[None])[0]) <= error
            assert error < 20 / far**2


@pytest.mark.parametrize("below", [-0.6, -0.3, -0.2, 0.9])
def test_components_large_enough_for_bounds(below: float) -> None:
    """Medians from far below the threshold to far above it, with odd and even numbers of probes."""
    sphere = trimesh.creation.icosphere(subdivisions=5)
    vertices = sphere.vertices.astype(np.float32)
    plan = layout(sphere.faces[sphere.triangles_center[:, 2] < below], len(vertices))
    assert len(plan.own) == 1
    assert len(plan.faces) > 1000
    for count in (9, 10, 200):
        chosen = np.random.default_rng(count).permutation(len(plan.faces))[:count]
        median = naive_median(vertices.astype(float), [tuple(map(int, face)) for face in plan.faces], chosen)
        assert any_solid(plan, vertices, [0], [chosen]) == (not median < 0.75), median
