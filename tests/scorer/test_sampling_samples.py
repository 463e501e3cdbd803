"""Samples of a frame and where they go, against a second implementation and the reference's values."""

from __future__ import annotations

from dataclasses import replace

import naive_sampling as naive
import numpy as np
import pytest
from sampling_scenes import CUBE, CUBE_FACES, Archive, moved, random_material, sheet, swept, uv_sphere

from scorer.geometry.sampling import following
from scorer.geometry.sampling.affine import affine_motions
from scorer.geometry.sampling.calibration import fullest_frame, voxel_edge
from scorer.geometry.sampling.following import Interior
from scorer.geometry.sampling.mean_value import Cage, mean_value_weights
from scorer.geometry.sampling.sampler import ColumnSamples, FrameSamples, frame_samples
from scorer.geometry.sampling.shells import ShellSamples
from scorer.geometry.sampling.surface import areas, surface_samples

KINDS = ("rigid", "bending", "sheet", "tets", "particles", "emitter", "broken", "crumbs", "soup")


def _one(
    pos: np.ndarray, h: float, faces: np.ndarray | None = None, tets: np.ndarray | None = None
) -> FrameSamples:
    archive = Archive("one", np.asarray(pos, np.float32)[None], faces, tets)
    return frame_samples([moved(archive)], 0, h, np.random.default_rng([0, 0]))


def test_cube_shell() -> None:
    found = _one(CUBE, 0.25, CUBE_FACES)
    (block,) = found.blocks
    assert isinstance(block, ShellSamples)
    assert len(found) == 64
    assert (block.component == 0).all()
    assert found.positions.sum() == pytest.approx(97.6097, abs=1e-3)
    np.testing.assert_allclose(found.positions[0], [0.220828, 0.102070, 0.175367], atol=1e-6)


def test_centred_cube_shell() -> None:
    found = _one(CUBE - 0.5, 0.25, CUBE_FACES)
    assert len(found) == 64
    np.testing.assert_allclose(found.positions[0], [-0.4693228, -0.3626534, -0.4251819], atol=1e-6)


def test_open_square() -> None:
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    found = _one(square, 0.25, np.array([[0, 1, 2], [0, 2, 3]], np.int32))
    assert len(found) == 16
    assert found.positions.sum() == pytest.approx(15.3261, abs=1e-3)
    np.testing.assert_allclose(found.positions[0], [0.018805, 0.154027, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("h", "count", "first", "weights"),
    [
        (0.2, 20, [0.176662, 0.081656, 0.140294], [0.601388, 0.176662, 0.081656, 0.140294]),
        (0.25, 10, [0.2208277, 0.1020700, 0.1753669], [0.5017354, 0.2208277, 0.1020700, 0.1753669]),
    ],
)
def test_corner_tetrahedron(h: float, count: int, first: list[float], weights: list[float]) -> None:
    corner = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    found = _one(corner, h, tets=np.array([[0, 1, 2, 3]], np.int32))
    (block,) = found.blocks
    assert isinstance(block, ColumnSamples)
    assert len(found) == count
    if h == 0.2:
        assert found.positions.sum() == pytest.approx(15.7686, abs=1e-3)
    np.testing.assert_allclose(found.positions[0], first, atol=1e-6)
    np.testing.assert_allclose(block.weights[0], weights, atol=1e-6)


def test_particles() -> None:
    points = np.random.default_rng(1).random((1000, 3)).astype(np.float32)
    points[5] = np.nan
    found = _one(points, 0.2)
    assert len(found) == 125
    assert found.positions.sum() == pytest.approx(177.7572, abs=1e-3)
    np.testing.assert_allclose(found.positions[0], [0.827703, 0.409199, 0.549594], atol=1e-6)


def test_separate_triangles() -> None:
    one = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    offsets = np.array([[0, 0, 0], [2, 0, 0], [4, 0, 0]])
    found = _one(
        np.concatenate([one + offset for offset in offsets]), 0.5, np.arange(9, dtype=np.int32).reshape(3, 3)
    )
    assert len(found) == 7
    assert found.positions.sum() == pytest.approx(16.4912, abs=1e-3)
    np.testing.assert_allclose(found.positions[0], [0.002739, 0.422687, 0], atol=1e-6)


def test_sphere_and_its_edge() -> None:
    verts, faces = uv_sphere(12, 16)
    found = _one(verts, 0.1, faces)
    assert len(found) == 4016
    assert found.positions.sum() == pytest.approx(-10.7073, abs=2e-3)
    np.testing.assert_allclose(found.positions[0], [-0.947844, -0.140404, -0.128457], atol=1e-6)
    material = moved(Archive("ball", verts[None], faces))
    h = voxel_edge([material])
    assert h == pytest.approx(0.04362758183473011, rel=1e-12)
    assert len(frame_samples([material], 0, h, np.random.default_rng([0, 0]))) == pytest.approx(23668, abs=3)


def test_two_cubes_and_a_fan() -> None:
    fan = np.array([[0, 0, 9], [1, 0, 9], [0, 1, 9], [-1, 0, 9], [0, -1, 9]])
    spokes = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1]])
    pos = np.concatenate([CUBE - 0.5, CUBE + np.array([4.5, -0.5, -0.5]), fan])
    faces = np.concatenate([CUBE_FACES, CUBE_FACES + 8, spokes + 16]).astype(np.int32)
    (block,) = _one(pos, 0.2, faces).blocks
    assert isinstance(block, ShellSamples)
    inside = [int((block.component == number).sum()) for number in (0, 1)]
    # The reference gives 180 and 191. Middles of 152 of the 216 cells lie on the cube; those on its edges are
    # in or out by the order in which float32 sums twelve angles.
    assert inside[1] == 191
    assert abs(inside[0] - 180) <= 2


def test_surface_of_a_cube() -> None:
    faces = CUBE_FACES.astype(np.int64)
    area = areas(CUBE.astype(np.float64), faces)
    points, *_ = surface_samples(CUBE - 0.5, faces, area, [(0, 12)], 0.25, np.random.default_rng(0))
    naively = naive.surface(CUBE.astype(np.float64) - 0.5, faces, 0.25, np.random.default_rng(0))
    np.testing.assert_array_equal(points, [p for p, _, _ in naively])


def test_coordinates_of_the_middle_of_a_cube() -> None:
    weights = mean_value_weights(Cage.of(CUBE.astype(np.float64), CUBE_FACES), np.full((1, 3), 0.5))[0]
    np.testing.assert_allclose(weights[[0, 7]], 0.180981, atol=1e-6)
    np.testing.assert_allclose(weights[1:7], 0.106340, atol=1e-6)


def test_a_point_on_a_vertex_gets_the_wrong_weights() -> None:
    weights = mean_value_weights(Cage.of(CUBE.astype(np.float64), CUBE_FACES), np.zeros((1, 3)))[0]
    assert weights[0] == 0
    assert {round(float(w), 3) for w in weights[1:]} == {0.149, 0.1, 0.252}


def test_a_point_on_a_face_gets_the_wrong_weights() -> None:
    corners = CUBE.astype(np.float64) - 0.5
    weights = mean_value_weights(Cage.of(corners, CUBE_FACES), np.array([[0.5, 0, 0]]))[0]
    assert (weights @ corners)[0] < 0.3


@pytest.mark.parametrize("seed", range(6))
def test_coordinates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corners, faces = uv_sphere(4, 6) if seed % 2 else (rng.normal(size=(9, 3)), rng.integers(0, 9, (12, 3)))
    corners = np.asarray(corners, np.float64) * [1, 1, 0.3]
    used = np.unique(faces)
    corners, faces = corners[used], np.searchsorted(used, faces).astype(np.int32)
    points = np.concatenate([rng.normal(size=(30, 3)), corners[:2], [corners[faces[0]].mean(0)]])
    found = mean_value_weights(Cage.of(corners, faces), points)
    expected = np.array([naive.mean_value(corners, faces, point) for point in points])
    np.testing.assert_allclose(found[:30], expected[:30], atol=2e-6 * np.abs(expected[:30]).max(), rtol=1e-5)
    np.testing.assert_allclose(found[30:32], expected[30:32], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_samples_of_one_material(kind: str, seed: int) -> None:
    _same_samples([random_material(kind, 5, np.random.default_rng(seed))], 0.15)


@pytest.mark.parametrize("seed", range(2))
def test_samples_of_a_mixed_world(seed: int) -> None:
    rng = np.random.default_rng(seed + 10)
    _same_samples([random_material(kind, 5, rng) for kind in KINDS], 0.2)


def test_wide_boxes_use_the_generator_in_turn() -> None:
    """Between the draws of the surfaces before and after; a wide shell that encloses no cell is drawn too."""
    triangle = np.array([[0, 0, 0], [0.3, 0, 0], [0, 0.3, 0.1]])
    sliver = np.array([[0, 0, 0], [4, 4.1, 4.2], [4, 4.4, 4], [4.3, 4, 4]])
    fan = np.array([[0, 0, 0], [4, 0, 4], [0, 4, 4], [-4, 0, 4], [0, -4, 4]])
    sides = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [0, 2, 3]])
    spokes = np.array([[0, 1, 2], [0, 3, 2], [0, 3, 4], [0, 1, 4]])  # at odds: no inside
    parts = [
        (triangle, [[0, 1, 2]]),
        (fan, spokes),
        (triangle + 1, [[0, 1, 2]]),
        (sliver, sides),
        (triangle - 1, [[0, 1, 2]]),
    ]
    starts = np.cumsum([0, *(len(verts) for verts, _ in parts)])
    pos = np.concatenate([verts for verts, _ in parts])[None].astype(np.float32)
    faces = np.concatenate([np.array(f) + start for (_, f), start in zip(parts, starts[:-1], strict=True)])
    _same_samples([Archive("wide", pos, faces.astype(np.int32))], 0.1)


def _same_samples(archives: list[Archive], h: float) -> None:
    materials = [moved(archive) for archive in archives]
    frames = len(archives[0].pos)
    for frame in (0, frames - 1):
        ours, theirs = np.random.default_rng([0, frame]), np.random.default_rng([0, frame])
        found = frame_samples(materials, frame, h, ours)
        expected = naive.sample(archives, [a.pos[frame] for a in archives], h, theirs)
        assert ours.bit_generator.state == theirs.bit_generator.state
        points = np.array([s[1] for s in expected], np.float32).reshape(-1, 3)
        np.testing.assert_array_equal(found.positions, points)
        _same_paths(found.track(0, frames), naive.track(archives, expected).transpose(1, 0, 2))


def _same_paths(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    # soups have weights of any size; float32 weights alone leave this much
    np.testing.assert_allclose(found, expected, atol=3e-7, rtol=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_voxel_edge_of_particles(seed: int) -> None:
    archives = [random_material(kind, 6, np.random.default_rng(seed)) for kind in ("emitter", "particles")]
    assert voxel_edge([moved(a) for a in archives]) == naive.voxel_edge(archives)


def test_no_material_no_edge() -> None:
    assert voxel_edge([]) is None
    nothing = Archive("a", np.full((3, 4, 3), np.nan, np.float32))
    bare = Archive("b", np.zeros((3, 4, 3), np.float32), np.zeros((0, 3), np.int32))
    flat = Archive("c", np.zeros((3, 4, 3), np.float32), np.array([[0, 1, 2]], np.int32))
    none = Archive("d", np.zeros((3, 0, 3), np.float32))
    for archive in (nothing, bare, flat, none):
        assert voxel_edge([moved(archive)]) is None
    assert len(frame_samples([], 0, 0.1, np.random.default_rng(0))) == 0


def test_the_fullest_frame_is_the_first_of_its_kind() -> None:
    pos = np.zeros((4, 3, 3), np.float32)
    pos[0, 0] = pos[3, 1] = np.nan
    assert fullest_frame([moved(Archive("a", pos))]) == 1
    assert fullest_frame([]) == 0


def test_affine_motion_moves_samples_with_it() -> None:
    archive = Archive("cube", np.stack([CUBE, 2 * CUBE + 1]).astype(np.float32), CUBE_FACES)
    found = frame_samples([moved(archive)], 0, 0.25, np.random.default_rng([0, 0]))
    np.testing.assert_allclose(found.track(1, 2)[0], 2 * found.positions + 1, atol=2.5e-7)


def test_the_affine_shortcut_is_the_weighted_sum() -> None:
    verts, faces = uv_sphere(9, 12)
    pos = swept(verts * [1, 0.7, 0.5] + [0.3, 1, 2], 8, np.random.default_rng(0))
    points = np.random.default_rng(1).uniform(-0.4, 0.4, (400, 3)) + np.array([0.3, 1, 2])
    shell = Interior(Cage.of(pos[0].astype(np.float64), faces), True, points)
    assert affine_motions(shell.cage.corners, pos)[0].all()
    summed = replace(shell, closed=False).follow(pos)
    np.testing.assert_allclose(shell.follow(pos), summed, atol=2.5e-7)


def test_samples_on_a_shell_keep_their_wrong_weights() -> None:
    corners = CUBE.astype(np.float64) - 0.5
    shell = Interior(Cage.of(corners, CUBE_FACES), True, np.array([[0.5, 0, 0], [0, 0, 0]]))
    moved_to = shell.follow((corners[None] + [0, 0, 3]).astype(np.float32))[0]
    assert moved_to[0, 0] < 0.3
    np.testing.assert_allclose(moved_to[1], [0, 0, 3], atol=1e-6)


def test_a_bend_is_not_affine() -> None:
    verts, _ = uv_sphere(9, 12)
    pos = swept(verts, 5, np.random.default_rng(0), bend=1e-5)
    assert affine_motions(pos[0].astype(np.float64), pos)[0].tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("kind", ["bending", "soup", "tets", "broken"])
def test_threads_and_blocks_do_not_touch_a_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = random_material(kind, 9, np.random.default_rng(0))

    def tracks() -> np.ndarray:
        found = frame_samples([moved(archive)], 0, 0.1, np.random.default_rng(0))
        return found.track(0, 9)

    whole = tracks()
    monkeypatch.setattr(following, "WEIGHTS", 300)
    monkeypatch.setattr("scorer.geometry.sampling.threads.default_threads", lambda: 2)
    blocks = tracks()
    monkeypatch.setattr("scorer.geometry.sampling.threads.default_threads", lambda: 1)
    np.testing.assert_array_equal(whole, blocks)
    np.testing.assert_array_equal(whole, tracks())


def test_history_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    archives = [
        random_material(kind, 9, np.random.default_rng(0)) for kind in ("bending", "sheet", "emitter")
    ]
    found = frame_samples([moved(a) for a in archives], 3, 0.1, np.random.default_rng(0))
    whole = found.track(0, 9)
    monkeypatch.setattr(following, "_HISTORY", 1)
    monkeypatch.setattr("scorer.geometry.sampling.shells.HISTORY_BYTES", 1)
    np.testing.assert_array_equal(whole, found.track(0, 9))
    rows = np.arange(0, len(found), 7)
    np.testing.assert_array_equal(found.subset(rows).track(0, 9), whole[:, rows])
    np.testing.assert_array_equal(found.track(4, 6), whole[4:6])


@pytest.mark.parametrize("size", [1e6, 1e20, 3e38])
def test_exploded_coordinates(size: float) -> None:
    pos = (CUBE * np.float32(size))[None].astype(np.float32)
    tets = np.array([[0, 1, 2, 4]], np.int32)
    for archive in (Archive("s", pos, CUBE_FACES), Archive("t", pos, tets=tets), Archive("p", pos)):
        found = frame_samples([moved(archive)], 0, 0.01, np.random.default_rng(0))
        assert np.isfinite(found.positions).all()
        assert found.track(0, 1).shape == (1, len(found), 3)


def test_positions_that_overflow_when_moved_are_not_alive() -> None:
    archive = Archive("p", np.array([[[1, 0, 0], [3e38, 0, 0]]], np.float32))
    material = moved(archive)
    material._map = lambda points: np.asarray(points) * 10.0
    assert material.live.tolist() == [1]
    assert material.births.tolist() == [0, 1]


def test_a_hanging_sheet_is_sampled_on_its_surface() -> None:
    verts, faces = sheet(5)
    (block,) = _one(verts, 0.05, faces).blocks
    assert isinstance(block, ShellSamples)
    assert (block.component == -1).all()
    assert len(block.points) == pytest.approx(400, abs=20)
