"""The rasteriser against a pixel-by-pixel second implementation, against ray casting, and against itself."""

from __future__ import annotations

import multiprocessing
from itertools import permutations

import numpy as np
import pytest
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_raster import barycentrics, clip_space, face_map
from raster_scenes import IDENTITY, K_S, grid, random_camera, random_rotation, sphere

from scorer.geometry import raster_cpu
from scorer.geometry.raster import rasterize, rasterize_raw
from scorer.geometry.raster_project import NOT_SNAPPED, snap_kernel

F = np.float32


def soup(rng: np.random.Generator, count: int, near: float) -> tuple[np.ndarray, np.ndarray]:
    """Random triangles of many sizes, shared corners included, some of them behind the camera."""
    verts = rng.normal(size=(count + 4, 3)) * [3, 2, 1.5] + [0, 0, near]
    verts[: count // 2] = verts[0] + 0.5 * (verts[: count // 2] - verts[0])
    return verts.astype(np.float32), rng.integers(0, len(verts), (count, 3)).astype(np.int32)


def assert_equal_to_naive(verts, faces, k, e, height, width):
    raw = rasterize_raw(verts, faces, k, e, height, width, "cpu")
    expected = face_map(verts, faces, k, e, height, width)
    assert (raw.face == expected).all(), np.argwhere(raw.face != expected)[:5]
    for i, j in np.argwhere(expected >= 0):
        with np.errstate(all="ignore"):
            corners = [clip_space(verts[v], k, e, height, width) for v in faces[expected[i, j]]]
        b = barycentrics(corners, i, j, height, width)
        assert (raw.b0[i, j], raw.b1[i, j]) == (b[0], b[1])
        assert raw.depth[i, j] == b[0] * corners[0][3] + b[1] * corners[1][3] + b[2] * corners[2][3]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 24), st.sampled_from([-1.0, 0.5, 3.0]))
def test_random_scenes_equal_the_naive_rasteriser_bit_for_bit(seed, height, width, near):
    rng = np.random.default_rng(seed)
    verts, faces = soup(rng, 9, near)
    k, e = random_camera(rng, height, width)
    verts = (verts @ e[:3, :3].T + e[:3, 3]).astype(np.float32)
    assert_equal_to_naive(verts, faces, k, e, height, width)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_corners_on_the_snapping_grid_put_edges_through_centres(seed):
    # Camera units are pixels at z = 1, so corners at multiples of 1/2 lie on centres and pixel corners.
    rng = np.random.default_rng(seed)
    verts = np.column_stack([rng.integers(-4, 40, (10, 2)) / 2, np.ones(10)])
    faces = rng.integers(0, 10, (8, 3)).astype(np.int32)
    assert_equal_to_naive(verts.astype(np.float32), faces, np.eye(3), IDENTITY, 14, 17)


@pytest.mark.parametrize("seed", range(30))
def test_wide_triangles_that_need_clipping_equal_the_naive_rasteriser(seed):
    rng = np.random.default_rng(seed)
    verts = (rng.normal(size=(8, 3)) * 10.0 ** rng.uniform(-3, 4, (8, 1))).astype(np.float32)
    faces = rng.integers(0, 8, (6, 3)).astype(np.int32)
    assert_equal_to_naive(verts, faces, K_S, IDENTITY, 13, 18)


@pytest.mark.parametrize("seed", range(20))
def test_triangles_through_the_near_plane_equal_the_naive_rasteriser(seed):
    # A few millimetres around the camera: the near plane cuts inside the view.
    rng = np.random.default_rng(seed)
    verts = (rng.normal(size=(8, 3)) * 2e-3 + [0, 0, 1e-3]).astype(np.float32)
    faces = rng.integers(0, 8, (5, 3)).astype(np.int32)
    k = np.array([[6.0, 0, 7], [0, 6, 5], [0, 0, 1]])
    assert_equal_to_naive(verts, faces, k, IDENTITY, 11, 14)


@pytest.mark.parametrize("seed", range(20))
def test_corners_on_the_edge_of_the_view_equal_the_naive_rasteriser(seed):
    # At z = 1 and 8x8 pixels 0 and 8 are exactly on the frustum's planes; the far corners force clipping.
    rng = np.random.default_rng(seed)
    verts = np.column_stack([rng.choice([0, 3, 8], (9, 2)), np.ones(9)])
    verts[:4, :2] = rng.choice([-5000, 0, 8, 5000], (4, 2))
    assert_equal_to_naive(verts.astype(F), rng.integers(0, 9, (6, 3)), np.eye(3), IDENTITY, 8, 8)


@pytest.mark.parametrize("seed", range(20))
def test_the_widest_triangles_of_the_fast_path_equal_the_naive_rasteriser(seed):
    # Snapped coordinates reach ±32,768 (2,048 px), extents about 32,767: some are clipped, some are not.
    rng = np.random.default_rng(seed)
    pixels = rng.choice([-2040, -1100, -1015, -3, 5, 1000, 1030, 2030], (9, 2)) + rng.normal(0, 3, (9, 2))
    z = rng.uniform(0.5, 2, (9, 1))
    verts = np.concatenate([pixels * z, z], axis=1).astype(F)
    assert_equal_to_naive(verts, rng.integers(0, 9, (6, 3)), np.eye(3), IDENTITY, 12, 15)


@pytest.mark.parametrize("seed", range(20))
def test_halves_of_the_snapping_grid_round_to_even(seed):
    # Corners half a grid step beside pixel centres.
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 9, (12, 2)) + 0.5 + rng.integers(-3, 4, (12, 2)) / 32
    verts = np.column_stack([pixels, np.ones(12)])
    assert_equal_to_naive(verts.astype(F), rng.integers(0, 12, (8, 3)), np.eye(3), IDENTITY, 8, 8)


def test_snapping_multiplies_by_the_reciprocal_first():
    rng = np.random.default_rng(4)
    clip = rng.normal(size=(200_000, 3)).astype(F)
    clip[:, 2] = np.abs(clip[:, 2]) + F(0.3)
    tile = np.array([1, 0, 1, 0, 8 * 1279, 8 * 717], F)
    found = np.empty((len(clip), 2), np.int32)
    snap_kernel(clip, tile, found, 0, len(clip))
    reciprocal = F(1) / clip[:, 2]
    expected = np.stack([np.rint(clip[:, c] * reciprocal * tile[4 + c]) for c in (0, 1)], axis=1)
    usable = ((expected >= -32768) & (expected <= 32767)).all(axis=1)
    assert (found[usable] == expected[usable]).all()
    assert (found[~usable] == NOT_SNAPPED).all()
    assert 0.5 < usable.mean() < 1


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_listed_from_any_corner_in_any_winding_is_an_exact_tie(seed):
    rng = np.random.default_rng(seed)
    verts = (rng.normal(size=(3, 3)) + np.array([0, 0, 4])).astype(F)
    for corners in permutations(range(3)):
        for second in permutations(range(3)):
            _, face = rasterize(verts, [corners, second], K_S, IDENTITY, 48, 64)
            assert not (face == 0).any()


def test_a_mesh_has_neither_gaps_nor_overlaps():
    rng = np.random.default_rng(3)
    flat, cells = grid(13, 9)
    inner = (np.abs(flat) < 1).all(axis=1)
    flat[inner] += rng.normal(0, 0.01, (inner.sum(), 2))
    verts = np.column_stack([flat * 30, np.full(len(flat), 7.0)]).astype(np.float32)
    depth, whole = rasterize(verts, cells, K_S, IDENTITY, 48, 64)
    assert (whole >= 0).all()
    assert depth == pytest.approx(7, rel=1e-5)
    count = np.zeros((48, 64), int)
    for cell in cells:
        count += rasterize(verts, cell[None], K_S, IDENTITY, 48, 64)[1] >= 0
    assert (count == 1).all()


@pytest.mark.parametrize("inside", [False, True])
def test_ray_casting_sees_the_same(inside):
    rng = np.random.default_rng(5)
    ball, cells = sphere(40, 60)
    verts = np.concatenate([ball * 1.5 + [0.3, 0.2, 0 if inside else 4], ball * 0.7 + [-1, 0.4, 2.5]])
    faces = np.concatenate([cells, cells + len(ball)])
    turn = random_rotation(rng)
    e = np.eye(4)
    e[:3, :3], e[:3, 3] = turn, [2, -1, 3]
    verts = (verts @ turn.T + e[:3, 3]).astype(np.float32)
    height, width = 90, 120
    k = np.array([[100.0, 0, 61], [0, 100, 44], [0, 0, 1]])
    depth, face = rasterize(verts, faces, k, e, height, width)

    scene = EmbreeScene()
    TriangleMesh(scene, verts, faces)
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rays = np.stack([(u - 61) / 100, (v - 44) / 100, np.ones_like(u)], axis=-1).reshape(-1, 3)
    origins = np.repeat(e[None, :3, 3].astype(np.float32), len(rays), axis=0)
    found = scene.run(origins, (rays @ turn.T).astype(np.float32), output=1, dists=None)
    hit = found["primID"].reshape(height, width) >= 0
    z = np.where(hit, found["tfar"].reshape(height, width), np.inf)

    wrong = hit != (face >= 0)
    assert wrong.mean() < 2e-3
    both = hit & (face >= 0)
    gap = np.abs(depth[both] - z[both]) / z[both]
    assert np.median(gap) < 1e-6
    assert (gap > 0.02).mean() < 5e-3  # only where a snapped silhouette moved across a centre


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("size", [(97, 131), (300, 217)])
def test_the_number_of_threads_does_not_touch_a_bit(threads, size, monkeypatch):
    monkeypatch.setattr(raster_cpu, "_SMALL", 16)
    rng = np.random.default_rng(threads)
    verts, faces = soup(rng, 3000, 1.5)
    k, e = random_camera(rng, *size)
    verts = (verts @ e[:3, :3].T + e[:3, 3]).astype(np.float32)
    one = rasterize_raw(verts, faces, k, e, *size, threads=1)
    many = rasterize_raw(verts, faces, k, e, *size, threads=threads)
    assert (one.face >= 0).mean() > 0.2
    for name in ("face", "depth", "b0", "b1"):
        assert getattr(one, name).tobytes() == getattr(many, name).tobytes()


def test_projection_equals_separate_float32_operations():
    rng = np.random.default_rng(8)
    verts = rng.normal(size=(500, 3)).astype(np.float32)
    k, e = (m.astype(np.float32) for m in random_camera(rng, 30, 40))
    d = verts - e[:3, 3]
    p = np.stack([d[:, 0] * e[0, c] + d[:, 1] * e[1, c] + d[:, 2] * e[2, c] for c in range(3)], axis=1)
    points = raster_cpu.camera_points(verts, e)
    assert (points == p).all()
    q = [p[:, 0] * k[r, 0] + p[:, 1] * k[r, 1] + p[:, 2] * k[r, 2] for r in range(2)]
    expected = np.stack([F(2) * q[0] / F(40) - p[:, 2], F(2) * q[1] / F(30) - p[:, 2], p[:, 2]], axis=1)
    assert (raster_cpu.clip_points(points, k, 30, 40) == expected).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [(0, 1)]),
        (2048, [(0, 2048)]),
        (2049, [(0, 1032), (1032, 1017)]),
        (4097, [(0, 1368), (1368, 1368), (2736, 1361)]),
    ],
)
def test_tiles_of_large_images(size, expected):
    tiles = raster_cpu.tiles(1, size)
    assert [(t.left, t.columns) for t in tiles] == expected
    assert all(t.rows == 1 for t in tiles)
    assert raster_cpu.tiles(size, 1)[-1].top == expected[-1][0]


def test_tiled_images_have_no_seams():
    flat, cells = grid(7, 5)
    verts = np.column_stack([flat * 40, np.full(len(flat), 3.0)]).astype(np.float32)
    width = 4100
    k = np.array([[2000.0, 0, width / 2], [0, 2000, 3], [0, 0, 1]])
    depth, face = rasterize(verts, cells, k, IDENTITY, 6, width)
    assert (face >= 0).all()
    assert depth == pytest.approx(3, rel=1e-5)
    _, tall = rasterize(verts[:, [1, 0, 2]], cells, k[[1, 0, 2]][:, [1, 0, 2]], IDENTITY, width, 6)
    assert (tall >= 0).all()


def test_a_large_picture_agrees_with_its_parts_away_from_edges():
    # The same scene through a shifted principal point, 2,048 columns at a time: only snapping may differ.
    rng = np.random.default_rng(1)
    verts, faces = soup(rng, 60, 4.0)
    k = np.array([[1500.0, 0, 1500], [0, 1500, 20], [0, 0, 1]])
    _, whole = rasterize(verts, faces, k, IDENTITY, 40, 3000)
    left = rasterize(verts, faces, k, IDENTITY, 40, 1504)[1]
    k[0, 2] -= 1504
    right = rasterize(verts, faces, k, IDENTITY, 40, 1496)[1]
    assert (whole >= 0).mean() > 0.3
    assert (whole != np.concatenate([left, right], axis=1)).mean() < 5e-3


def test_a_forked_child_can_draw(monkeypatch):
    monkeypatch.setattr(raster_cpu, "_SMALL", 16)
    verts, faces = soup(np.random.default_rng(0), 2_000, 3.0)
    expected = rasterize(verts, faces, K_S, IDENTITY, 60, 80, threads=2)[1]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        child = pool.apply_async(rasterize, (verts, faces, K_S, IDENTITY, 60, 80), {"threads": 2})
        assert (child.get(timeout=60)[1] == expected).all()
