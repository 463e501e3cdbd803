"""Analytic tracks: golden G15, a plain second implementation, and lives that end."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from estimates import EMPTY, MemoryMaterial, MemoryWorld, moving_world, scene_s_world
from test_analytic_flow import project, split, torn_world

from scorer.analytic.grid import grid_queries
from scorer.analytic.tracks import track_points
from scorer.geometry.raster import rasterize, rasterize_raw


def test_g15():
    world = scene_s_world()
    queries = grid_queries(world.height, world.width, 64)
    assert len(queries) == 54
    tracks, visible = track_points(world, queries)
    assert tracks.dtype == np.float32
    assert visible.sum(axis=0).tolist() == [54, 52, 46, 51]
    path = tracks[(queries[:, 1:] == (4, 20.5)).all(axis=1)][0]
    expected = [(4.5, 20.5), (6.214287, 20.5), (7.928573, 20.5), (9.642857, 20.5)]
    assert np.abs(path - expected).max() < 2e-6
    path = tracks[(queries[:, 1:] == (39, 13.5)).all(axis=1)][0]
    assert np.abs(path - [(39.5, y) for y in (14.5, 15.1, 15.7, 16.3)]).max() < 5e-6


def naive_tracks(world, queries, stride) -> tuple[np.ndarray, np.ndarray]:
    """The definition again, a query at a time in float64."""
    frames = list(range(0, world.frames, stride))
    tracks = np.full((len(queries), len(frames), 2), np.nan)
    visible = np.zeros((len(queries), len(frames)), bool)
    depth = {
        f: rasterize(*world.soup(f)[:2], world.intrinsics, world.extrinsic, world.height, world.width)[0]
        for f in frames
    }
    reaches: dict[tuple[int, int], float] = {}
    for n, (birth, x, y) in enumerate(queries):
        path = naive_path(world, int(birth), round(float(x)), round(float(y)), reaches)
        for column, frame in enumerate(frames):
            if path.get(frame) is None:
                continue
            u, v, z = project(world, path[frame])
            tracks[n, column] = u, v
            if z > 1e-3 and 0 <= u < world.width and 0 <= v < world.height:
                near = abs(z - depth[frame][int(v), int(u)])
                visible[n, column] = near <= max(0.01 * z, 0.01)
    return tracks, visible


def naive_path(world, birth: int, column: int, row: int, reaches) -> dict[int, np.ndarray]:
    """World points by frame. reaches : the largest distance by (birth, id), filled in on the way."""
    verts, faces, owner = world.soup(birth)
    raster = rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)

    def surface(i, j):
        w0, w1 = float(raster.b0[i, j]), float(raster.b1[i, j])
        corners = faces[raster.face[i, j]]
        return sum(w * verts[v].astype(float) for w, v in zip((w0, w1, 1 - w0 - w1), corners, strict=True))

    face = raster.face[row, column]
    if face < 0:
        return {}
    number = int(owner[face])
    mesh = world.object_mesh(number, birth)
    stop = birth + 1
    while stop < world.frames:
        later = world.object_mesh(number, stop)
        if later[0].shape != mesh[0].shape or not np.array_equal(later[1], mesh[1]):
            break
        stop += 1
    if stop > birth + 1 or stop == world.frames:
        first = faces[owner == number].min()
        local = faces[face] - first
        w0, w1 = float(raster.b0[row, column]), float(raster.b1[row, column])
        weights = (w0, w1, 1 - w0 - w1)
        return {
            f: sum(
                w * world.object_mesh(number, f)[0][v].astype(float)
                for w, v in zip(weights, local, strict=True)
            )
            for f in range(birth, stop)
        }
    material = np.concatenate([m.pos for m in world.materials if number in m.ids], axis=1).astype(float)
    live = [c for c in range(material.shape[1]) if np.isfinite(material[birth, c]).all()]
    if not live:
        return {}
    if (birth, number) not in reaches:
        seen = np.argwhere((raster.face >= 0) & (np.append(owner, 0)[raster.face] == number))
        assert len(seen) <= 4096  # so the probe is all of them
        gaps = [min(math.dist(surface(i, j), material[birth, c]) for c in live) for i, j in seen]
        reaches[birth, number] = 3 * statistics.median(gaps)
    seed = surface(row, column)
    nearest = min(live, key=lambda c: math.dist(seed, material[birth, c]))
    if math.dist(seed, material[birth, nearest]) > reaches[birth, number]:
        return {}
    path = {f: seed + material[f, nearest] - material[birth, nearest] for f in range(birth, world.frames)}
    return {f: p for f, p in path.items() if np.isfinite(p).all()}


def compare(world, queries, stride=1) -> np.ndarray:
    tracks, visible = track_points(world, queries, stride)
    expected, seen = naive_tracks(world, queries, stride)
    assert (np.isnan(tracks) == np.isnan(expected)).all()
    assert np.nanmax(np.abs(tracks - expected), initial=0) < 2e-3
    assert (visible == seen).all()
    assert not np.isnan(tracks[visible]).any()
    return visible


def test_scene_s_equals_the_plain_loops():
    world = scene_s_world()
    compare(world, grid_queries(48, 64, 30))
    compare(world, grid_queries(48, 64, 30), stride=3)


@pytest.mark.parametrize("seed", range(3))
def test_changing_meshes_equal_the_plain_loops(seed):
    world = torn_world(seed)
    queries = np.concatenate([grid_queries(24, 32, 40), grid_queries(24, 32, 12) + np.array([1, 0, 0])])
    visible = compare(world, queries.astype(np.float32))
    assert visible.any()


def test_births_at_several_frames_and_a_stride_that_skips_them():
    world = moving_world(7)
    queries = np.float32([[0, 20, 20], [3, 24, 21], [5, 60, 40], [6, 5, 5]])
    compare(world, queries, stride=2)
    tracks, _ = track_points(world, queries)
    assert np.isnan(tracks[1, :3]).all()
    assert np.isfinite(tracks[1, 3:]).all()


def test_a_path_ends_where_the_mesh_changes_and_does_not_come_back():
    world = moving_world(6)
    world.meshes[2] = [split(m) if t == 3 else m for t, m in enumerate(world.meshes[2])]
    queries = np.float32([[0, 20, 20]])
    compare(world, queries)
    tracks, visible = track_points(world, queries)
    assert np.isfinite(tracks[0, :3]).all()
    assert np.isnan(tracks[0, 3:]).all()
    assert visible[0].tolist() == [True] * 3 + [False] * 3


def test_an_absent_object_ends_its_paths():
    world = moving_world(5)
    world.meshes[2] = [EMPTY if t == 2 else m for t, m in enumerate(world.meshes[2])]
    tracks, _ = track_points(world, np.float32([[0, 20, 20]]))
    assert np.isfinite(tracks[0, :2]).all()
    assert np.isnan(tracks[0, 2:]).all()


def test_a_mesh_that_changes_at_once_follows_its_material_through_death():
    world = moving_world(5)
    world.meshes[2] = [split(m) if t % 2 else m for t, m in enumerate(world.meshes[2])]
    pos = world.materials[0].pos.copy()
    pos[3] = np.nan
    world.materials = (MemoryMaterial((2,), pos),)
    queries = np.float32([[0, 20, 20], [0, 14, 17]])
    visible = compare(world, queries)
    assert visible.any(axis=1).all()
    tracks, _ = track_points(world, queries)
    assert np.isnan(tracks[:, 3]).all()
    assert np.isfinite(tracks[:, 4]).all()
    world.materials = ()
    assert np.isnan(track_points(world, queries)[0]).all()


def test_on_the_last_frame_every_mesh_is_exact():
    world = MemoryWorld({2: [moving_world(1).meshes[2][0]]})
    tracks, visible = track_points(world, np.float32([[0, 20, 20], [0, 0, 0]]))
    assert visible.tolist() == [[True], [False]]
    assert np.isnan(tracks[1]).all()


def test_occlusion_leaves_the_image_point_but_hides_it():
    world = moving_world(6, shift=lambda t: (0.3 * t, 0, 0))
    tracks, visible = track_points(world, np.float32([[0, 32, 18]]))
    assert np.ptp(tracks[0], axis=0) == pytest.approx((0, 0), abs=1e-5)
    assert visible[0].any()
    assert not visible[0].all()


def test_half_pixels_round_to_even():
    world = moving_world(1)
    tracks, _ = track_points(world, np.float32([[0, 4.5, 5.5], [0, 5.5, 6.5]]))
    assert tracks[:, 0] == pytest.approx(np.array([[4.5, 6.5], [6.5, 6.5]]), abs=1e-4)


@pytest.mark.parametrize("query", [(0, 63.6, 5), (0, 5, 47.6), (0, -0.6, 5), (3, 5, 5), (-1, 5, 5)])
def test_a_query_outside_is_an_error_that_names_it(query):
    with pytest.raises(IndexError, match=r"query 1 at .* lies outside \(3, 48, 64\)"):
        track_points(moving_world(3), np.float32([(0, 5, 5), query]))


def test_no_queries_and_no_geometry():
    world = moving_world(3)
    tracks, visible = track_points(world, np.zeros((0, 3), np.float32))
    assert tracks.shape == (0, 3, 2)
    assert visible.shape == (0, 3)
    tracks, visible = track_points(MemoryWorld({1: [EMPTY] * 3}), np.float32([[0, 5, 5]]))
    assert np.isnan(tracks).all()
    assert not visible.any()
