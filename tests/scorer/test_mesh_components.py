"""Components and hole filling against dictionaries, networkx and trimesh."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_mesh import boundary_edges, naive_components, naive_fillings, uses

from scorer.geometry.components import components, edge_uses
from scorer.geometry.holes import fillings
from scorer.geometry.sorting import sort


def listed(faces: np.ndarray) -> list[tuple[int, int, int]]:
    return [tuple(int(v) for v in face) for face in faces]


def compare(faces: np.ndarray, vertex_count: int) -> int:
    """Assert that everything agrees with the naive version; returns the number of filling triangles."""
    parts = components(faces, vertex_count)
    naive = naive_components(listed(faces))
    triangles, offset = fillings(parts)
    assert parts.count == len(naive)
    for c, members in enumerate(naive):
        own = [listed(faces)[i] for i in members]
        assert listed(parts.faces[parts.start[c] : parts.start[c + 1]]) == own
        used = parts.vertices[parts.vertex_start[c] : parts.vertex_start[c + 1]]
        assert used.tolist() == sorted({v for face in own for v in face})
        count = uses(own)
        once, more = sum(n == 1 for n in count.values()), sum(n > 2 for n in count.values())
        assert (parts.single[c], parts.over[c]) == (once, more)
        assert edge_uses(np.array(own, np.int32), vertex_count) == (once, more)
        boundary = parts.boundary[parts.boundary_start[c] : parts.boundary_start[c + 1]]
        assert listed_pairs(boundary) == boundary_edges(own)
        assert listed(triangles[offset[c] : offset[c + 1]]) == naive_fillings(own)
    return len(triangles)


def listed_pairs(pairs: np.ndarray) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in pairs]


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=24))
@settings(max_examples=300, deadline=None)
def test_any_faces(faces: list[tuple[int, int, int]]) -> None:
    """Degenerate, repeated and non-manifold faces included."""
    compare(np.array(faces, np.int32).reshape(-1, 3), 7)


def holed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A closed mesh in random order with some faces taken out."""
    rng = np.random.default_rng(seed)
    mesh = [
        trimesh.creation.icosphere(subdivisions=2),
        trimesh.creation.torus(1, 0.3, major_sections=9, minor_sections=5),
        trimesh.creation.box().subdivide().subdivide(),
        trimesh.creation.icosphere(subdivisions=0),
    ][seed % 4]
    shuffle = rng.permutation(len(mesh.vertices))
    faces = np.argsort(shuffle)[mesh.faces[rng.permutation(len(mesh.faces))]]
    keep = rng.random(len(faces)) > rng.choice([0.02, 0.1, 0.3])
    return mesh.vertices[shuffle].astype(np.float32).astype(float), faces[keep]


def test_holed_meshes() -> None:
    found = 0
    for seed in range(60):
        vertices, faces = holed(seed)
        found += compare(faces.astype(np.int32), len(vertices))
    assert found > 300


def cycled(faces: np.ndarray) -> list[tuple[int, ...]]:
    """Faces with the smallest vertex first, winding kept."""
    return sorted(tuple(np.roll(face, -int(np.argmin(face))).tolist()) for face in faces)


@pytest.mark.parametrize("seed", range(40))
def test_fillings_are_those_of_trimesh(seed: int) -> None:
    vertices, faces = holed(seed)
    parts = components(faces, len(vertices))
    triangles, offset = fillings(parts)
    for c in range(parts.count):
        own = parts.faces[parts.start[c] : parts.start[c + 1]]
        if len(own) < 4 or parts.single[c] < 3:
            assert offset[c] == offset[c + 1]
            continue
        mesh = trimesh.Trimesh(vertices, own, process=False)
        trimesh.repair.fill_holes(mesh)
        ours = triangles[offset[c] : offset[c + 1]]
        area = trimesh.triangles.area(vertices[ours]) if len(ours) else np.zeros(0)
        assert cycled(mesh.faces[len(own) :]) == cycled(ours[area > 5e-14])


def test_empty_mesh_has_no_component() -> None:
    parts = components(np.zeros((0, 3), np.int32), 0)
    assert parts.count == 0
    assert len(fillings(parts)[0]) == 0


def test_edge_of_three_faces_links_nothing() -> None:
    parts = components(np.array([[0, 1, 2], [1, 0, 3], [0, 1, 4]]), 5)
    assert parts.count == 3
    assert parts.single.tolist() == [3, 3, 3]


def test_hub_of_many_holes() -> None:
    """A strip whose petals all end in vertex 0: its boundary has a vertex of high degree and many triangular
    holes.
    """
    count = 5000
    a, b, x = np.arange(1, 3 * count + 1).reshape(3, count)
    petals = np.stack([np.zeros(count, int), a, b], axis=1)
    backs = np.stack([b, a, x], axis=1)
    links = np.stack([b[:-1], x[:-1], a[1:]], axis=1)
    seams = np.stack([a[1:], x[:-1], x[1:]], axis=1)
    faces = np.concatenate([petals, backs, links, seams]).astype(np.int32)
    parts = components(faces, 3 * count + 1)
    assert parts.count == 1
    triangles, _ = fillings(parts)
    assert sorted(sorted(face) for face in triangles.tolist()) == sorted(
        [0, int(p), int(q)] if p < q else [0, int(q), int(p)] for p, q in zip(b[:-1], a[1:], strict=True)
    )
    small = np.concatenate([petals[:6], backs[:6], links[:5], seams[:5]]).astype(np.int32)
    compare(small, 3 * count + 1)


@given(st.lists(st.integers(-50, 50), max_size=200))
@settings(max_examples=100, deadline=None)
def test_sort(values: list[int]) -> None:
    keys = np.array(values, dtype=np.int64)
    sort(keys)
    assert keys.tolist() == sorted(values)
