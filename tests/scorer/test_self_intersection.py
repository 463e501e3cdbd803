"""Self-intersection against libigl with CGAL's exact predicates, and against arguments that need no
library.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import trimesh
from naive_mesh import naive_intersects

from scorer.geometry.self_intersection import intersects_itself

Mesh = tuple[np.ndarray, np.ndarray]


def compare(vertices: np.ndarray, faces: np.ndarray) -> bool:
    vertices = np.asarray(vertices, np.float32)
    expected = naive_intersects(vertices.astype(float), [tuple(map(int, face)) for face in faces])
    assert intersects_itself(vertices, np.asarray(faces)) == expected, (vertices.tolist(), faces.tolist())
    return expected


def lattice(rng: np.random.Generator) -> Mesh:
    """Small integers: touching corners and edges, T-junctions, common planes, degenerate faces."""
    count = int(rng.integers(2, 4))
    reach = int(rng.integers(1, 4))
    return rng.integers(-reach, reach + 1, (3 * count, 3)), np.arange(3 * count).reshape(-1, 3)


def one_plane(rng: np.random.Generator) -> Mesh:
    vertices = rng.integers(-2, 3, (6, 3))
    vertices[:, rng.integers(3)] = 1
    return vertices, np.arange(6).reshape(-1, 3)


def tilted_plane(rng: np.random.Generator) -> Mesh:
    """Exactly in one plane, which is parallel to no axis."""
    weights = rng.integers(-3, 4, (6, 2))
    vertices = weights @ rng.integers(-50, 51, (2, 3)) + rng.integers(-1000, 1000, 3)
    return vertices * 2.0 ** int(rng.integers(-20, 10)), np.arange(6).reshape(-1, 3)


def rounded_plane(rng: np.random.Generator) -> Mesh:
    """Within a rounding of one plane: float64 determinants are unsure."""
    vertices = rng.integers(-3, 4, (6, 2)) @ rng.normal(size=(2, 3)) + 10 * rng.normal(size=3)
    return vertices, np.arange(6).reshape(-1, 3)


def shared_corners(rng: np.random.Generator) -> Mesh:
    """Corners shared by index and by place."""
    vertices = rng.integers(-2, 3, (6, 3))
    if rng.random() < 0.4:
        vertices[:, rng.integers(3)] = 1
    return vertices, np.array([rng.permutation(6)[:3] for _ in range(int(rng.integers(2, 4)))])


def scales(rng: np.random.Generator) -> Mesh:
    """Sixty orders of magnitude in one pair."""
    vertices = rng.normal(size=(6, 3)) * 10.0 ** rng.integers(-30, 30, (6, 3))
    vertices[rng.random((6, 3)) < 0.3] = 0
    return vertices, np.arange(6).reshape(-1, 3)


def slivers(rng: np.random.Generator) -> Mesh:
    vertices = rng.integers(-3, 4, (6, 3)).astype(float)
    vertices += rng.normal(size=(6, 3)) * 10.0 ** float(rng.integers(-9, -1))
    return vertices, np.array([rng.permutation(6)[:3], rng.permutation(6)[:3]])


KINDS: list[Callable[[np.random.Generator], Mesh]] = [
    lattice, one_plane, tilted_plane, rounded_plane, shared_corners, scales, slivers,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_random_pairs(kind: Callable[[np.random.Generator], Mesh]) -> None:
    rng = np.random.default_rng(7)
    results = [compare(*kind(rng)) for _ in range(600)]
    assert 0 < sum(results) < len(results)


def test_random_soups() -> None:
    """Enough faces for the box tree, few enough that some soups have no intersection."""
    rng = np.random.default_rng(3)
    results = []
    for _ in range(60):
        count = int(rng.integers(30, 200))
        centres = rng.random((count, 1, 3))
        vertices = (centres + rng.normal(size=(count, 3, 3)) * rng.choice([0.01, 0.03])).reshape(-1, 3)
        results.append(compare(vertices, np.arange(3 * count).reshape(-1, 3)))
    assert 10 < sum(results) < 50


def smooth(name: str) -> trimesh.Trimesh:
    if name == "sphere":
        return trimesh.creation.icosphere(subdivisions=3)
    if name == "torus":
        return trimesh.creation.torus(1, 0.3, major_sections=40, minor_sections=16)
    return trimesh.creation.box().subdivide().subdivide().subdivide()


@pytest.mark.parametrize("name", ["sphere", "torus", "box"])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 3e5])
def test_smooth_meshes(name: str, scale: float) -> None:
    mesh = smooth(name)
    matrix = trimesh.transformations.random_rotation_matrix(np.array([0.1, 0.5, 0.9]))[:3, :3]
    vertices = mesh.vertices @ matrix * scale + np.array([1.0, -2.0, 0.5]) * scale
    assert not compare(vertices, mesh.faces)
    pulled = vertices.copy()
    pulled[np.argmax(vertices @ [1, 0.3, 0.2])] -= np.array([3.0, 1.0, 0.7]) * scale
    assert compare(pulled, mesh.faces)


def grid(count: int, slope: float) -> Mesh:
    x, y = np.meshgrid(np.linspace(0, 1, count), np.linspace(0, 1, count))
    vertices = np.stack([x.ravel(), y.ravel(), slope * x.ravel() + 0.37 * slope * y.ravel() + 0.3], axis=1)
    index = np.arange(count * count).reshape(count, count)
    a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    halves = [np.stack([p.ravel(), q.ravel(), r.ravel()], axis=1) for p, q, r in ((a, b, c), (a, c, d))]
    return vertices, np.concatenate(halves)


@pytest.mark.parametrize("slope", [0.0, 0.777, 1e-5, 40.0])
def test_flat_grids(slope: float) -> None:
    """Thousands of neighbours whose determinants are zero or close to it, then one corner pulled over
    others.
    """
    vertices, faces = grid(20, slope)
    assert not compare(vertices, faces)
    folded = vertices.copy()
    folded[20 * 10 + 10] = folded[20 * 10 + 13]
    compare(folded, faces)
    lifted = vertices.copy()
    lifted[20 * 10 + 10] = vertices[20 * 10 + 14] + [0, 0, 0.05]
    compare(lifted, faces)


def test_folds_in_planes_that_need_more_than_53_bits() -> None:
    """Two triangles on one edge, apexes on the same side, at one height: they overlap whatever the height is.

    libigl compares the two supporting planes as rounded to float64, and so it misses most of those at heights
    like 0.7. Its answers are the protocol's.
    """
    rng = np.random.default_rng(0)
    found = {}
    for height in (0.0, 0.5, 0.7, 1e-7, 123.456):
        for _ in range(40):
            vertices = rng.normal(size=(4, 3))
            vertices[3] = 0.5 * (vertices[0] + vertices[1]) + 0.1 * (vertices[2] - vertices[0])
            vertices[:, 2] = height
            order = rng.permutation(3)
            faces = np.array([np.array([0, 1, 2])[order], np.array([3, 1, 0])[rng.permutation(3)]])
            found[height] = found.get(height, 0) + compare(vertices, faces)
            vertices[3] = vertices[0] + vertices[1] - vertices[2]
            vertices[:, 2] = height
            assert not compare(vertices, faces)
    assert found[0.0] == found[0.5] == 40
    assert found[0.7] < 40


def test_folds_in_slanted_planes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        vertices, _ = tilted_plane(rng)
        folded = vertices[:4].copy()
        folded[3] = folded[0] + folded[2] - folded[1] if rng.random() < 0.3 else folded[3]
        compare(folded, np.array([[0, 1, 2], rng.permutation([3, 1, 0])]))


def test_few_or_degenerate_faces() -> None:
    line = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 1, 0]], np.float32)
    assert not intersects_itself(line, np.zeros((0, 3), int))
    assert not intersects_itself(line, np.array([[0, 1, 2]]))
    assert not intersects_itself(line, np.array([[0, 1, 2], [0, 1, 3], [0, 0, 3]]))
    assert not intersects_itself(line, np.array([[0, 1, 3], [3, 1, 0], [1, 3, 0]]))


def test_vertices_must_be_float32() -> None:
    with pytest.raises(TypeError, match="float32"):
        intersects_itself(np.zeros((3, 3)), np.array([[0, 1, 2]]))
