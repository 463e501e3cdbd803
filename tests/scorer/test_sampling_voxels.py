"""The voxel grid, and the cells that shells and tetrahedra enclose, against plain loops."""

from __future__ import annotations

from itertools import pairwise

import naive_sampling as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sampling_scenes import CUBE, CUBE_FACES, sheet, uv_sphere

from scorer.geometry.sampling import enclosure
from scorer.geometry.sampling.enclosure import inside_cells
from scorer.geometry.sampling.shells import Shape
from scorer.geometry.sampling.solid_angles import inside_by_sum, winding_by_turns
from scorer.geometry.sampling.topology import Shells
from scorer.geometry.sampling.voxels import MAX_VOXELS, Box, cells, jitter, thin


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ((0, 0, 0), (0.8833108082136426, 0.4082800613961636, 0.7014676806469426)),
        ((1, 2, 3), (0.6883373909723954, 0.0039367140817498925, 0.7513246960356973)),
        ((-1, 5, -7), (0.5930661253989354, 0.5357427099308992, 0.18645214019901457)),
        ((1, 0, 0), (0.43152799704850997, 0.8718406817457158, 0.22155899174321192)),
        ((0, 1, 0), (0.8718406817457158, 0.8195118705904899, 0.0208691514409306)),
    ],
)
def test_the_jitter_of_a_cell(cell: tuple[int, ...], expected: tuple[float, ...]) -> None:
    assert jitter(np.array([cell], np.int64))[0].tolist() == list(expected)


@settings(deadline=None)
@given(hnp.arrays(np.int64, (5, 3), elements=st.integers(-(2**63), 2**63 - 1)))
def test_jitter_of_any_cell(cell: np.ndarray) -> None:
    np.testing.assert_array_equal(jitter(cell), [naive.jitter(c) for c in cell])


@settings(deadline=None)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(0, 40), st.just(3)),
        elements=st.sampled_from([-1.5, -0.2, 0.0, -0.0, 0.1, 0.3, 7.0, 1e9, -1e18]),
    ),
    st.sampled_from([0.25, 1.0, 1e-3]),
)
def test_one_point_a_cell(points: np.ndarray, h: float) -> None:
    assert thin(points, h).tolist() == naive.thin(points, h)


def test_owners_do_not_compete() -> None:
    rng = np.random.default_rng(3)
    points, owner = rng.random((200, 3)), rng.integers(0, 4, 200)
    kept = thin(points, 0.3, owner)
    expected = []
    for number in range(4):
        rows = np.flatnonzero(owner == number)
        expected += rows[naive.thin(points[rows], 0.3)].tolist()
    assert kept.tolist() == expected


def test_a_small_box_is_searched_everywhere() -> None:
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    box = Box.around([-0.3, 0.0, 0.9], [0.1, 0.0, 1.1], 0.25)
    expected = naive.probe(np.array([-0.3, 0.0, 0.9]), np.array([0.1, 0.0, 1.1]), 0.25, rng)
    np.testing.assert_array_equal(box.cells(box.probe(rng)), expected)
    assert rng.bit_generator.state == state


def test_a_wide_box_is_searched_at_random() -> None:
    low, high = np.array([-1.0, 0, 0]), np.array([1.0, 2, 3])
    box = Box.around(low, high, 0.04)
    assert box.total > MAX_VOXELS
    found = box.cells(box.probe(np.random.default_rng(5)))
    np.testing.assert_array_equal(found, naive.probe(low, high, 0.04, np.random.default_rng(5)))


def test_boxes_beyond_every_integer_do_not_crash() -> None:
    rng = np.random.default_rng(0)
    for high in (1e7, 1e12, 3e38):
        box = Box.around([-high] * 3, [high] * 3, 1e-3)
        number = box.probe(rng)
        assert box.cells(number).shape == (len(number), 3)


def _cells_of(
    corners: np.ndarray, faces: np.ndarray, h: float, seed: int = 0
) -> tuple[Shape, Box, np.ndarray]:
    shape = Shape.of(Shells.of(faces, len(corners)), corners.astype(np.float64))
    box = shape.boxes(h)[0]
    return shape, box, box.probe(np.random.default_rng(seed))


MESHES = {
    "cube": (CUBE, CUBE_FACES),
    "open box": (CUBE, CUBE_FACES[:-2]),
    "box without a triangle": (CUBE, CUBE_FACES[1:]),
    "cube, faces at odds": (CUBE, np.where(np.arange(12)[:, None] % 5 == 0, CUBE_FACES[:, ::-1], CUBE_FACES)),
    "cube twice": (CUBE, np.concatenate([CUBE_FACES, CUBE_FACES])),
    "sphere": uv_sphere(9, 12),
    "half a sphere": (uv_sphere(9, 12)[0], uv_sphere(9, 12)[1][:90]),
    "sheet": (sheet(6)[0] + np.array([0, 0, 0.3]) * np.sin(5 * sheet(6)[0][:, :1]), sheet(6)[1]),
    "flat sheet": sheet(6),
    "soup": (
        np.random.default_rng(4).normal(size=(30, 3)),
        np.random.default_rng(5).integers(0, 30, (60, 3)),
    ),
}


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("h", [0.11, 0.02])
def test_enclosed_cells(name: str, turned: bool, h: float) -> None:
    corners, faces = MESHES[name]
    corners = np.asarray(corners, np.float64) + 0.0137
    if turned:
        corners = corners @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    corners = corners.astype(np.float32).astype(np.float64)
    shape, box, number = _cells_of(corners, faces.astype(np.int32), h)
    cell = box.cells(number)
    some = np.random.default_rng(2).permutation(len(cell))[:1500]
    found = inside_cells(*shape.mesh(0), cell, box, number, h)[some]
    exact = abs(naive.winding(corners[faces], (cell[some] + 0.5) * h))
    clear = np.abs(exact - 0.5) > 1e-5
    assert clear.mean() > 0.8 or name == "flat sheet"
    np.testing.assert_array_equal(found[clear], exact[clear] > 0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 14), st.integers(4, 30), st.booleans())
def test_enclosed_cells_of_any_faces(seed: int, vertices: int, count: int, gridded: bool) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.normal(size=(vertices, 3))
    if gridded:  # edges through cell columns, faces along the axes
        corners = np.round(corners * 2) / 2 + 0.25
    corners = corners.astype(np.float32).astype(np.float64)
    faces = rng.integers(0, vertices, (count, 3)).astype(np.int32)
    shells = Shells.of(faces, vertices)
    shape = Shape.of(shells, corners)
    h = 0.25
    for part in range(shells.count):
        box = shape.boxes(h)[part]
        number = box.probe(rng)[:400]
        cell = box.cells(number)
        mesh, triangles, rim = shape.mesh(part)
        found = inside_cells(mesh, triangles, rim, cell, box, number, h)
        exact = abs(naive.winding(mesh[triangles], (cell + 0.5) * h))
        clear = np.abs(exact - 0.5) > 1e-5
        if gridded:  # a middle in the plane of a triangle has no angle to speak of
            clear &= ~np.array([_touches(mesh[triangles], c) for c in (cell + 0.5) * h])
        np.testing.assert_array_equal(found[clear], exact[clear] > 0.5)


def _touches(corners: np.ndarray, point: np.ndarray) -> bool:
    a, b, c = np.moveaxis(corners - point, 1, 0)
    return bool((np.abs((a * np.cross(b, c)).sum(1)) < 1e-7).any())


def test_both_ways_to_a_winding_number_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    corners, faces = MESHES["half a sphere"]
    shape, box, number = _cells_of(corners.astype(np.float64), faces, 0.06)
    cell = box.cells(number)
    by_crossing = inside_cells(*shape.mesh(0), cell, box, number, 0.06)
    monkeypatch.setattr(enclosure, "_HIT_COST", 1e18)
    np.testing.assert_array_equal(by_crossing, inside_cells(*shape.mesh(0), cell, box, number, 0.06))
    assert by_crossing.any()


@pytest.mark.parametrize(
    ("point", "expected"),
    [((0, 0, 0), 1.0), ((0.51, 0, 0), 0.0), ((0.5, 0.1, 0.2), 1.0), ((0.5, 0.5, 0.5), 0.125)],
)
def test_winding_of_a_cube(point: tuple[float, ...], expected: float) -> None:
    corners = (CUBE - 0.5).astype(np.float32)
    points = np.array([point], np.float32)
    assert naive.winding(corners[CUBE_FACES], points[0], np.float32) == pytest.approx(expected, abs=2e-6)
    assert inside_by_sum(corners, CUBE_FACES, points)[0] == (expected > 0.5)


def test_exploded_shells_overflow_quietly() -> None:
    corners = CUBE.astype(np.float64) * 1e13
    shape, box, _ = _cells_of(corners, CUBE_FACES, 1e12)
    number = np.arange(50)
    found = inside_cells(*shape.mesh(0), box.cells(number), box, number, 1e12)
    assert found.shape == (50,)


def test_components_in_the_order_of_their_lowest_column() -> None:
    faces = np.array([[9, 8, 7], [2, 5, 4], [7, 1, 9], [3, 6, 10]], np.int32)
    shells = Shells.of(faces, 12)
    parts = [shells.vertices[s:e].tolist() for s, e in pairwise(shells.vertex_start)]
    assert parts == [[1, 7, 8, 9], [2, 4, 5], [3, 6, 10]]
    assert shells.vertices[shells.global_faces].tolist() == [[9, 8, 7], [7, 1, 9], [2, 5, 4], [3, 6, 10]]


def test_rims() -> None:
    closed = Shells.of(CUBE_FACES, 8)
    assert len(closed.rim) == 0
    open_box = Shells.of(CUBE_FACES[:-2], 8)
    start, rim = open_box.rims(CUBE.astype(np.float64))
    assert start.tolist() == [0, 4]
    assert {frozenset(edge) for edge in rim.tolist()} == {
        frozenset(e) for e in ((1, 5), (5, 7), (7, 3), (3, 1))
    }


def test_a_seam_of_doubled_vertices_is_no_rim() -> None:
    verts, faces = uv_sphere(6, 8)
    copies = faces + len(verts) * np.random.default_rng(0).integers(0, 2, len(faces))[:, None]
    shared = np.intersect1d(copies, copies + len(verts))[0]  # the first copy's vertex is shared - len(verts)
    flat = [[shared - len(verts), shared, 1], [shared, shared - len(verts), 1]]
    joined = np.concatenate([copies, flat]).astype(np.int32)
    shells = Shells.of(joined, 2 * len(verts))
    assert shells.count == 1
    assert len(shells.rim) > 0
    start, rim = shells.rims(np.concatenate([verts, verts]).astype(np.float64)[shells.vertices])
    assert rim.shape == (0, 2)
    assert start.tolist() == [0, 0]


def test_cells_are_floors() -> None:
    assert cells([[0.5, -0.5, 0.25]], 0.25).tolist() == [[2, -2, 1]]


@pytest.mark.parametrize("offset", [0.0, 0.003])
def test_points_in_the_plane_of_a_flat_sheet_are_summed_to_the_bit(offset: float) -> None:
    """Angles of 0 are passed over; the float32 sum of all of them decides as before."""
    corners, faces = sheet(6)
    points = np.random.default_rng(0).uniform(-0.3, 1.3, (200, 3)).astype(np.float32)
    points[:, 2] = np.float32(offset)
    a, b, c = (corners[faces[:, k]][None] - points[:, None] for k in range(3))
    la, lb, lc = (np.sqrt((x * x).sum(-1, dtype=np.float32)) for x in (a, b, c))
    cosine = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    angle = np.arctan2((a * np.cross(b, c)).sum(-1) + np.float32(0.0), cosine)
    share = np.abs(angle.astype(np.float64).sum(-1)) / (2 * np.pi)
    clear = np.abs(share - 0.5) > 1e-4
    assert clear.sum() > 50
    np.testing.assert_array_equal(inside_by_sum(corners, faces, points)[clear], (share > 0.5)[clear])


def test_vertices_that_no_face_uses_change_no_winding_number() -> None:
    corners, faces = uv_sphere(5, 7)
    points = np.random.default_rng(0).normal(size=(50, 3))
    alone, _ = winding_by_turns(corners.astype(np.float64), faces, points)
    spread = np.full((3 * len(corners), 3), 0.5)
    spread[1::3] = corners
    among, _ = winding_by_turns(spread, (3 * faces + 1).astype(np.int32), points)
    np.testing.assert_array_equal(among, alone)
