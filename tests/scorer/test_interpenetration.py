"""Interpenetration: reference values, a plain second implementation, states, threads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import igl
import numpy as np
import pytest
import trimesh
from naive_interpenetration import naive_frame, naive_world
from naive_mesh import FakeWorld

from contract.metrics import owners
from scorer.geometry.solid import Connectivity, Solid
from scorer.geometry.winding import winding_numbers
from scorer.metrics.interpenetration import Body, buried_shares, measure, measure_world
from world.reader import World

Mesh = tuple[np.ndarray, np.ndarray]
BOX = trimesh.creation.box()
SPHERE = trimesh.creation.icosphere(subdivisions=3)
QUAD = np.array([[-3, -3, 0], [3, -3, 0], [3, 3, 0], [-3, 3, 0]], float)
QUAD_FACES = np.array([[0, 1, 2], [0, 2, 3]])


def shares(*meshes: Mesh) -> list[float]:
    solids = [Solid(np.asarray(v, np.float32), Connectivity(np.asarray(f, np.int32))) for v, f in meshes]
    return buried_shares([Body(k, body) for k, body in enumerate(solids)]).tolist()


def moved(mesh: trimesh.Trimesh, *offset: float, scale: float = 1.0) -> Mesh:
    return mesh.vertices * scale + np.array(offset), mesh.faces


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(0.5, 0.2757), (1.0, 0.2072), (1.5, 0.0888), (1.9, 0.0), (2.0, 0.0), (0.0, 0.0)],
)
def test_two_spheres(distance: float, expected: float) -> None:
    found = shares(moved(SPHERE, 0, 0, 0), moved(SPHERE, distance, 0, 0))
    assert found == pytest.approx([expected, expected], abs=5e-5)


def test_sphere_in_sphere() -> None:
    assert shares(moved(SPHERE, 0, 0, 0), moved(SPHERE, 0.1, 0, 0, scale=0.3)) == [0.0, 1.0]
    assert shares(moved(SPHERE, 0.1, 0, 0, scale=0.3), moved(SPHERE, 0, 0, 0)) == [1.0, 0.0]
    hollow = trimesh.util.concatenate([SPHERE, SPHERE.copy().apply_scale(0.8)])
    hollow.faces[len(SPHERE.faces) :] = hollow.faces[len(SPHERE.faces) :, ::-1]
    assert shares((hollow.vertices, hollow.faces), moved(SPHERE, 0, 0, 0, scale=0.3)) == [0.0, 0.0]


def test_open_quads() -> None:
    """A quad has a volume or none depending on how it lies. A doubled one winds almost once around what is
    near; a single one never more than one half.
    """
    doubled = np.vstack([QUAD_FACES, QUAD_FACES])
    slope = QUAD @ np.array([[1, 0, 0], [0, 0.6, 0.8], [0, -0.8, 0.6]])
    for level, faces in ((QUAD, QUAD_FACES), (QUAD, doubled), (slope, doubled)):
        assert shares((level, faces), moved(SPHERE, 0, 0, 0)) == [0.0, 0.0]
    scene = [(slope[:, [2, 0, 1]] + np.array([1, 0, 0]), doubled), moved(SPHERE, 0.6, 0, 0)]
    assert shares(*scene) == naive_frame(scene)
    assert shares(*scene)[1] > 0.1
    assert shares((scene[0][0], QUAD_FACES), scene[1]) == [0.0, 0.0]


def test_thirty_objects() -> None:
    rng = np.random.default_rng(0)
    scene = [moved(SPHERE, *rng.uniform(-2, 2, 3), scale=rng.uniform(0.3, 1)) for _ in range(30)]
    assert shares(*scene) == naive_frame(scene)


def any_object(rng: np.random.Generator) -> Mesh:
    """A common shape, whole or in some way damaged, somewhere near the origin."""
    mesh = [
        trimesh.creation.icosphere(subdivisions=1),
        trimesh.creation.icosphere(subdivisions=2),
        BOX.subdivide().subdivide(),
        trimesh.creation.torus(1.0, 0.4),
        trimesh.creation.cylinder(0.6, 1.5),
    ][rng.integers(5)]
    vertices, faces = mesh.vertices.copy(), mesh.faces.copy()
    damage = rng.integers(7)
    if damage == 1:
        faces = faces[rng.random(len(faces)) > 0.2]
    elif damage == 2:
        faces = faces[mesh.triangles_center[:, 2] < rng.uniform(-0.2, 0.8)]
    elif damage == 3:
        vertices, faces = vertices[faces].reshape(-1, 3), np.arange(3 * len(faces)).reshape(-1, 3)
    elif damage == 4:
        flipped = rng.random(len(faces)) < 0.1
        faces[flipped] = faces[flipped, ::-1]
    elif damage == 5:
        faces = np.vstack([faces, faces + len(vertices)])
        vertices = np.vstack([vertices, vertices + rng.normal(size=3)])
    elif damage == 6:
        faces = np.vstack([faces, faces[:30], [[0, 0, 1], [2, 2, 2]]])
        vertices = np.vstack([vertices, rng.normal(size=(5, 3))])
    turn = trimesh.transformations.random_rotation_matrix(rng.random(3))[:3, :3]
    vertices = vertices * rng.uniform(0.3, 1.5) * rng.uniform(0.5, 1, 3)
    vertices = (vertices @ turn.T if rng.random() < 0.6 else vertices) + rng.uniform(-0.8, 0.8, 3)
    return vertices.astype(np.float32), faces.astype(np.int32)


def near_half(meshes: Sequence[Mesh]) -> np.ndarray:
    """How many vertices of each object have, about another, a winding number so near one half that the fast
    winding number's error (up to about 0.002) can tip it.
    """
    count = np.zeros(len(meshes), dtype=int)
    for b, (vertices, faces) in enumerate(meshes):
        for i, (points, _) in enumerate(meshes):
            if i != b:
                numbers = winding_numbers(
                    vertices, faces.astype(np.int64), np.unique(faces), points.astype(float)
                )
                count[i] += (np.abs(np.abs(numbers) - 0.5) < 0.004).sum()
    return count


def test_random_scenes() -> None:
    """Closed, holed, open, nested, unwelded and partly flipped objects against trimesh and libigl."""
    rng = np.random.default_rng(1)
    exact = 0
    for _ in range(30):
        scene = [any_object(rng) for _ in range(5)]
        vertices = np.array([len(mesh[0]) for mesh in scene])
        difference = np.abs(np.array(shares(*scene)) - naive_frame(scene)) * vertices
        assert (np.round(difference) <= near_half(scene)).all()
        exact += (difference == 0).sum()
    assert exact >= 0.97 * 30 * 5


def test_random_scenes_by_exact_winding_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with libigl's fast winding number replaced by a sum over all triangles: no vertex differs."""

    def exact(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
        return winding_numbers(vertices.astype(np.float32), faces, np.unique(faces), points)

    monkeypatch.setattr(igl, "fast_winding_number", exact)
    rng = np.random.default_rng(2)
    for _ in range(60):
        scene = [any_object(rng) for _ in range(5)]
        assert shares(*scene) == naive_frame(scene)


def test_far_from_the_origin() -> None:
    scene = [moved(SPHERE, 1e3, 2e3, 0), moved(SPHERE, 1e3 + 0.5, 2e3, 0)]
    assert shares(*scene) == pytest.approx([0.2757, 0.2757], abs=5e-3)


def test_vertices_that_no_face_names_are_probed_and_those_not_finite_are_not() -> None:
    small = SPHERE.vertices * 0.2
    extra = np.vstack([small, [[0, 0, 0.5], [5, 5, 5], [np.nan, 0, 0], [np.inf, 0, 0]]])
    whole = len(small) + 2
    assert shares(moved(SPHERE, 0, 0, 0), (extra, SPHERE.faces)) == [0.0, (len(small) + 1) / whole]
    broken = SPHERE.vertices.copy()
    broken[0] = np.nan
    assert shares((broken, SPHERE.faces), moved(SPHERE, 0, 0, 0, scale=0.2)) == [0.0, 0.0]


def test_exploded_coordinates() -> None:
    for size in (1e12, 1e30, 3e38):
        broken = SPHERE.vertices.copy()
        broken[0] *= size
        found = shares((broken, SPHERE.faces), moved(SPHERE, 0.1, 0, 0, scale=0.2), moved(SPHERE, 0.4, 0, 0))
        assert np.isfinite(found).all()
    single = np.zeros((3, 3)), np.array([[0, 1, 2]])
    assert shares(moved(SPHERE, 0, 0, 0), single) == naive_frame([moved(SPHERE, 0, 0, 0), single])


def turning_world() -> FakeWorld:
    """A ground that stays, one object that stops and goes on, one that comes late, one that leaves."""
    ground = trimesh.creation.box(extents=[6, 6, 1])
    stops = [0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3]
    cut = SPHERE.faces[SPHERE.triangles_center[:, 2] < 0.9]
    return FakeWorld(
        9,
        {
            1: dict.fromkeys(range(9), (ground.vertices, ground.faces)),
            3: {f: moved(SPHERE, 0.5, stop, 0.6) for f, stop in enumerate(stops)},
            4: {f: (SPHERE.vertices * 0.8 + [0, 0.1 * f, 0.4], cut) for f in range(4, 9)},
            7: {f: moved(SPHERE, -0.4, 0, 0.1 * f, scale=0.5) for f in range(3)},
            8: {6: moved(SPHERE, 0, 0, 0.5), 8: moved(SPHERE, 0, 0, 0.5, scale=0.7)},
        },
    )


def test_world_against_the_plain_loop() -> None:
    world = turning_world()
    measured = measure_world(world)
    score, frames = naive_world(world)
    assert measured.detail["interpenetration"] == pytest.approx(score, abs=1e-12)
    assert 0 < score < 1
    stored = measured.arrays["interpenetration"]
    np.testing.assert_array_equal(
        stored["buried"], np.array([s for frame in frames for s in frame], np.float32)
    )
    assert stored["buried"].dtype == np.float32
    assert stored["components_per_frame"].dtype == np.int32
    assert stored["components_per_frame"].tolist() == [len(frame) for frame in frames]
    assert measured.detail["interpenetration_components"] == sum(map(len, frames))
    assert measured.detail["interpenetration_frames"] == 9
    assert measured.detail["interpenetration_judged_frames"] == 9
    assert measured.vouched is None


def test_threads_agree_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        measured = measure_world(turning_world())
        results.append((measured.detail, measured.arrays["interpenetration"]["buried"].tobytes()))
    assert results[0] == results[1] == results[2]


def test_frames_without_objects_do_not_count() -> None:
    pair = {k: {f: moved(SPHERE, 0.5 * k, 0, 0) for f in (2, 3)} for k in (1, 2)}
    measured = measure_world(FakeWorld(6, pair))
    assert measured.detail["interpenetration"] == pytest.approx(1 - 0.2757, abs=5e-5)
    assert measured.detail["interpenetration_frames"] == 6
    assert measured.detail["interpenetration_judged_frames"] == 2
    assert measured.arrays["interpenetration"]["components_per_frame"].tolist() == [0, 0, 2, 2, 0, 0]


def test_one_object_alone() -> None:
    measured = measure_world(FakeWorld(2, {1: dict.fromkeys(range(2), moved(SPHERE, 0, 0, 0))}))
    assert measured.detail["interpenetration"] == 1.0
    assert measured.arrays["interpenetration"]["buried"].tolist() == [0.0, 0.0]


def test_no_object_at_any_frame() -> None:
    """The score is absent, which makes it uncomputable."""
    empty = np.zeros((2, 3)), np.zeros((0, 3), int)
    for meshes in ({}, {1: {0: empty, 2: empty}}):
        measured = measure_world(FakeWorld(3, meshes))
        assert "interpenetration" not in measured.detail
        assert measured.detail["interpenetration_judged_frames"] == 0
        assert measured.arrays["interpenetration"]["buried"].shape == (0,)
        assert measured.arrays["interpenetration"]["components_per_frame"].tolist() == [0, 0, 0]


def test_detail_belongs_to_the_type() -> None:
    assert all(owners(key) == {"interpenetration"} for key in measure_world(turning_world()).detail)


def test_fixture_worlds(fixture_worlds: Path) -> None:
    """Every reading that the reference scorer gave for the fixtures."""
    expected = json.loads((fixture_worlds / "expected.json").read_text())
    details = json.loads((fixture_worlds / "expected_detail.json").read_text())
    judged = 0
    for run, rewards in expected.items():
        both = {**details.get(run, {}), **rewards}
        wanted = {key: value for key, value in both.items() if key.startswith("interpenetration")}
        if not wanted:
            continue
        with World(fixture_worlds / run / "workspace" / "world") as world:
            detail = measure(SimpleNamespace(submission=world)).detail
        judged += 1
        assert {key: detail[key] for key in wanted} == wanted, run
    assert judged >= 10
