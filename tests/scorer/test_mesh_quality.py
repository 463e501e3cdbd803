"""The four mesh checks: verdict table, an independent second implementation, whole worlds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_mesh import FakeWorld, naive_object, naive_world

from scorer.metrics.mesh import CHECKS, judge, measure, measure_world, worker_count
from scorer.metrics.mesh_layout import layout, without_flat_fillings
from scorer.metrics.mesh_shells import ProbeFaces
from world.reader import World

Mesh = tuple[np.ndarray, np.ndarray]
BOX = trimesh.creation.box()
SPHERE = trimesh.creation.icosphere(subdivisions=3)


def verdict(vertices: np.ndarray, faces: np.ndarray) -> str:
    """One letter a check: y passes, n fails."""
    vertices, faces = np.asarray(vertices, np.float32), np.asarray(faces, np.int32)
    checks = judge(layout(faces, len(vertices)), vertices, ProbeFaces(0))
    assert checks == naive_object(vertices, faces, np.random.default_rng(0))
    return "".join("y" if check else "n" for check in checks)


def joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
    faces = [faces + start for (_, faces), start in zip(meshes, starts, strict=False)]
    return np.concatenate([vertices for vertices, _ in meshes]), np.concatenate(faces)


def pulled_box() -> Mesh:
    mesh = BOX.subdivide().subdivide()
    vertices = mesh.vertices.copy()
    middle = np.argmin(np.linalg.norm(vertices - [0.5, 0, 0], axis=1))
    vertices[middle] = [-0.9, 0.02, 0.03]
    return vertices, mesh.faces


def boxes_on_an_edge() -> Mesh:
    mesh = trimesh.util.concatenate([BOX, BOX.copy().apply_translation([1, 1, 0])])
    mesh.merge_vertices()
    return mesh.vertices, mesh.faces


def open_sphere(below: float) -> Mesh:
    return SPHERE.vertices, SPHERE.faces[SPHERE.triangles_center[:, 2] < below]


FLIPPED = BOX.faces.copy()
FLIPPED[0] = FLIPPED[0][::-1]
THREE_ON_ONE = (
    np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0]]),
    np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]),
)
SPHERES = joined((SPHERE.vertices, SPHERE.faces), (SPHERE.vertices + np.array([0.5, 0, 0]), SPHERE.faces))
TABLE = {
    "closed box": (BOX.vertices, BOX.faces, "yyyy"),
    "box with a flipped face": (BOX.vertices, FLIPPED, "yyyy"),
    "box minus one": (BOX.vertices, BOX.faces[1:], "yyyy"),
    "box minus two": (BOX.vertices, BOX.faces[2:], "yyyy"),
    "box minus three": (BOX.vertices, BOX.faces[3:], "nyyy"),
    "hemisphere": (*open_sphere(0.0), "nyyy"),
    "sphere with polar hole": (*open_sphere(0.9), "nyyy"),
    "box minus four": (BOX.vertices, BOX.faces[4:], "yyyy"),
    "box plus a duplicate": (BOX.vertices, np.vstack([BOX.faces, BOX.faces[:1]]), "yyyy"),
    "box plus (0, 0, 1)": (BOX.vertices, np.vstack([BOX.faces, [[0, 0, 1]]]), "yyny"),
    "three triangles on one edge": (*THREE_ON_ONE, "yyyy"),
    "two boxes sharing an edge": (*boxes_on_an_edge(), "yyyy"),
    "unwelded soup of a box": (BOX.triangles.reshape(-1, 3), np.arange(36).reshape(-1, 3), "yyyy"),
    "two overlapping spheres": (*SPHERES, "yyyy"),
    "vertex pulled through": (*pulled_box(), "yyyn"),
}


@pytest.mark.parametrize("name", TABLE)
def test_verdict_table(name: str) -> None:
    vertices, faces, expected = TABLE[name]
    assert verdict(vertices, faces) == expected


@pytest.mark.parametrize(
    ("vertices", "faces", "expected"),
    [
        ([[0, 0, 0], [1, 1, 1], [2, 2, 2]], [[0, 1, 2]], "yyny"),
        ([[0, 0, 0], [1, 1, 1], [2, 2, 2]], [[0, 0, 1]], "yyny"),
        ([[0, 0, 0], [1, 1, 1], [2, 2, 2]], [[1, 1, 1]], "ynny"),
        # Corners that weld, 4e-9 m apart, and corners that do not, 4e-8 m apart.
        ([[0, 0, 0], [4e-9, 0, 0], [0, 1, 0]], [[0, 1, 2]], "yyny"),
        ([[0, 0, 0], [4e-8, 0, 0], [0, 1, 0]], [[0, 1, 2]], "yyyy"),
        # Every coordinate of a box this large rounds beyond int64.
        (BOX.vertices * 1e12, BOX.faces, "yyny"),
        (BOX.vertices * 1e9, BOX.faces, "yyyy"),
        (BOX.vertices * 3e-8, BOX.faces, "yyyy"),
        # Corners at half a step round to even, which is zero for all of them.
        (BOX.vertices * 1e-8, BOX.faces, "yyny"),
        (BOX.vertices * 1e-9, BOX.faces, "yyny"),
        (BOX.vertices * 1e-42, BOX.faces, "yyny"),
        (BOX.vertices * 3e38, BOX.faces, "yyny"),
    ],
)  # fmt: skip
def test_edge_cases(vertices: list[list[float]], faces: list[list[int]], expected: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        assert verdict(np.array(vertices), np.array(faces)) == expected


def test_flat_filling_is_dropped() -> None:
    """A missing triangle whose corners come to lie on a line is not filled, so the box leaks at that
    frame.
    """
    mesh = BOX.subdivide()
    plan = layout(mesh.faces[1:], len(mesh.vertices))
    vertices = mesh.vertices.astype(np.float32)
    assert without_flat_fillings(plan, vertices) is plan
    a, b, c = mesh.faces[0]
    flat = vertices.copy()
    flat[a] = 0.5 * (flat[b] + flat[c])
    assert len(without_flat_fillings(plan, flat).faces) == len(plan.faces) - 1
    assert verdict(vertices, mesh.faces[1:]) == "yyyy"
    assert verdict(flat, mesh.faces[1:])[0] == "n"


def lattice_faces() -> st.SearchStrategy[Mesh]:
    point = st.tuples(*[st.integers(-2, 2)] * 3)
    face = st.tuples(*[st.integers(0, 7)] * 3)
    return st.tuples(
        st.lists(point, min_size=8, max_size=8).map(np.array),
        st.lists(face, min_size=1, max_size=14).map(np.array),
    )


@given(lattice_faces())
@settings(max_examples=200, deadline=None)
def test_any_faces_on_a_lattice(mesh: Mesh) -> None:
    verdict(*mesh)


def damaged(rng: np.random.Generator) -> Mesh:
    """A common shape with faces missing, doubled or degenerate, or with a vertex out of place."""
    shape = [
        BOX,
        trimesh.creation.icosphere(subdivisions=1),
        trimesh.creation.torus(1, 0.4, major_sections=5, minor_sections=4),
        trimesh.creation.icosphere(subdivisions=0),
        trimesh.creation.cylinder(1, 2, sections=6),
    ][rng.integers(5)]
    # Few bits, so that libigl's comparison of planes is exact.
    vertices = np.round(shape.vertices * 64) / 64 + rng.integers(-1, 2, 3)
    faces = shape.faces[rng.permutation(len(shape.faces))]
    faces = faces[rng.random(len(faces)) >= rng.choice([0, 0.05, 0.3, 0.6])]
    if len(faces) == 0:
        faces = np.array([[0, 1, 2]])
    if rng.random() < 0.3:
        vertices[rng.integers(len(vertices))] *= rng.choice([-1, 0, 0.5, 2])
    if rng.random() < 0.2:
        faces = np.vstack([faces, faces[:1]])
    if rng.random() < 0.2:
        faces = np.vstack([faces, [[0, 0, 1]]])
    if rng.random() < 0.2:
        vertices[0] = vertices[1] + rng.choice([0, 2.0**-27, 2.0**-29])
    return vertices, faces


def test_damaged_shapes() -> None:
    rng = np.random.default_rng(11)
    seen = set()
    for _ in range(250):
        vertices, faces = joined(*(damaged(rng) for _ in range(rng.integers(1, 4))))
        if rng.random() < 0.2:
            faces = faces[rng.permutation(len(faces))]
        if rng.random() < 0.1:
            faces = np.where(faces == 0, len(vertices) - 1, faces)
        seen.add(verdict(vertices, faces))
    assert len(seen) >= 8


def random_world(seed: int) -> FakeWorld:
    """Constant, moving, reshaped, late and empty objects; some components have more than 200 faces."""
    rng = np.random.default_rng(seed)
    frames = 5
    meshes: dict[int, dict[int, Mesh]] = {}
    for number in range(1, 7):
        kind = (number + seed) % 6
        vertices, faces = damaged(rng)
        if kind == 0:
            meshes[number] = dict.fromkeys(range(frames), (vertices, faces))
        elif kind == 1:
            meshes[number] = {f: (vertices * (1 + f / 8), faces) for f in range(frames)}
        elif kind == 2:
            meshes[number] = {f: damaged(rng) for f in range(1, 4)}
        elif kind == 3:
            empty = np.zeros((0, 3)), np.zeros((0, 3), int)
            meshes[number] = {f: empty if f in (0, 3) else (vertices, faces) for f in range(frames)}
        else:
            sphere = open_sphere(rng.uniform(-0.6, 0.95))
            meshes[number] = {f: (sphere[0] * (1 + f * (kind - 4)), sphere[1]) for f in range(frames)}
    return FakeWorld(frames, meshes)


@pytest.mark.parametrize("seed", range(6))
def test_worlds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detail and arrays follow from the naive verdicts, and the number of threads changes nothing."""
    world = random_world(seed)
    expected = naive_world(world)
    flat = np.array([row for rows in expected for row in rows])
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        result = measure_world(world)
        arrays, detail = result.arrays["mesh"], result.detail
        assert arrays["checks"].tolist() == flat.tolist()
        assert arrays["checks"].dtype == bool
        assert arrays["frame"].tolist() == [f for f, rows in enumerate(expected) for _ in rows]
        assert arrays["frame"].dtype == np.int32
        assert arrays["check_names"].tolist() == list(CHECKS)
        assert detail["mesh_components"] == len(flat)
        assert detail["mesh_frames"] == list(range(world.frames))
        assert detail["mesh_per_frame"] == [
            {"frame": f, "components": len(rows), "clean": sum(map(all, rows))}
            for f, rows in enumerate(expected)
        ]
        for k, name in enumerate(CHECKS):
            assert detail[f"mesh_{name}"] == flat[:, k].mean()
            assert detail["mesh_failures"][name] == (~flat[:, k]).sum()
        assert detail["mesh_score"] == flat.all(axis=1).mean()
        json.dumps(detail)


def test_no_object_leaves_the_rates_open() -> None:
    empty = np.zeros((0, 3)), np.zeros((0, 3), int)
    for world in (FakeWorld(3, {}), FakeWorld(3, {4: {0: empty, 1: empty}})):
        result = measure_world(world)
        assert result.vouched is None
        assert result.arrays["mesh"]["checks"].shape == (0, 4)
        assert result.detail["mesh_components"] == 0
        assert [row["components"] for row in result.detail["mesh_per_frame"]] == [0, 0, 0]
        assert not {f"mesh_{name}" for name in CHECKS} & set(result.detail)
        assert "mesh_score" not in result.detail


def test_unused_vertices_do_not_count() -> None:
    """A far vertex that no face names changes neither the bounding box nor the welding."""
    vertices, faces = open_sphere(0.9)
    far = np.concatenate([[[np.float32(3e38)] * 3, vertices[0]], vertices])
    assert verdict(far, faces + 2) == verdict(vertices, faces) == "nyyy"


def test_worker_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert worker_count() == 3
    for useless in ("", "0", "-2", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", useless)
        assert worker_count() >= 1


def test_fixture_worlds(fixture_worlds: Path) -> None:
    """Every mesh reading that the reference scorer gave for the fixtures."""
    expected = json.loads((fixture_worlds / "expected.json").read_text())
    details = json.loads((fixture_worlds / "expected_detail.json").read_text())
    judged = 0
    for run, rewards in expected.items():
        wanted = {
            key: value
            for key, value in {**details.get(run, {}), **rewards}.items()
            if key.startswith("mesh_")
        }
        if not wanted:
            continue
        with World(fixture_worlds / run / "workspace" / "world") as world:
            detail = measure(SimpleNamespace(submission=world)).detail
        judged += 1
        for key, value in wanted.items():
            assert detail[key] == value, (run, key)
    assert judged >= 10
