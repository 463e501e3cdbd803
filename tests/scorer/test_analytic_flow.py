"""Analytic flow: golden G14, plain loops, and every way in which an object can change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from estimates import EMPTY, MemoryMaterial, MemoryWorld, moving_world, scene_s_world
from raster_scenes import grid, random_camera

from contract.constants import SEED
from scorer.analytic import flow as flow_module
from scorer.analytic import material
from scorer.analytic.flow import frame_flow
from scorer.analytic.material import carried, displacements, nearest_columns
from scorer.geometry.raster import rasterize_raw


def ids_seen(world, frame: int) -> np.ndarray:
    verts, faces, owner = world.soup(frame)
    raster = rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)
    return np.where(raster.face >= 0, np.append(owner, 0)[raster.face], 0)


def test_g14():
    world = scene_s_world()
    for frame, sums, cube_x in ((0, (553.25714, 227.99995), 1.67654), (1, (593.79384, 216.59993), 1.68691)):
        flow, valid, detail = frame_flow(world, frame)
        assert flow.dtype == np.float32
        assert valid.all()
        assert valid.size == 3072
        assert flow.sum(axis=(0, 1), dtype=np.float64) == pytest.approx(sums, abs=2e-3)
        seen = ids_seen(world, frame)
        assert flow[seen == 2].mean(axis=0, dtype=np.float64) == pytest.approx((cube_x, 0), abs=1e-5)
        assert flow[seen == 3].mean(axis=0, dtype=np.float64) == pytest.approx((0, 0.6), abs=1e-5)
        assert (flow[seen == 1] == 0).all()
        assert (detail.exact, detail.material, detail.static, detail.gone) == ([1, 2], [3], [], [])
        assert detail.unreached == 0


def naive_flow(world, frame: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """The definition again, a pixel at a time in float64; brute-force distances."""
    height, width = world.height, world.width
    flow, valid = np.zeros((height, width, 2)), np.zeros((height, width), bool)
    verts, faces, owner = world.soup(frame)
    raster = rasterize_raw(verts, faces, world.intrinsics, world.extrinsic, height, width)
    here, there, material = {}, {}, {}
    starts, position = {}, 0
    for number, vertices, _ in world.parts(frame):
        starts[number], position = position, position + len(vertices)
    for i in range(height):
        for j in range(width):
            f = raster.face[i, j]
            if f < 0:
                continue
            number = int(owner[f])
            b0, b1 = float(raster.b0[i, j]), float(raster.b1[i, j])
            weights = (b0, b1, 1 - b0 - b1)
            here[i, j] = sum(w * verts[v].astype(float) for w, v in zip(weights, faces[f], strict=True))
            now, later = world.object_mesh(number, frame), world.object_mesh(number, frame + stride)
            if len(later[1]) and now[0].shape == later[0].shape and np.array_equal(now[1], later[1]):
                local = faces[f] - starts[number]
                there[i, j] = sum(w * later[0][v].astype(float) for w, v in zip(weights, local, strict=True))
            elif number not in world.dynamic_ids:
                there[i, j] = here[i, j]
            elif len(later[1]):
                material.setdefault(number, []).append((i, j))
    for number, pixels in material.items():
        moved = naive_material(world, number, frame, stride, np.array([here[p] for p in pixels], np.float32))
        there |= {p: m for p, m in zip(pixels, moved, strict=True) if m is not None}
    for pixel, point in there.items():
        before, after = project(world, here[pixel]), project(world, point)
        if before[2] > 0 and after[2] > 0:
            flow[pixel], valid[pixel] = after[:2] - before[:2], True
    return flow, valid


def project(world, point) -> np.ndarray:
    x, y, z = (np.asarray(point, float) - world.extrinsic[:3, 3]) @ world.extrinsic[:3, :3]
    k = world.intrinsics
    return np.array([(k[0, 0] * x + k[0, 1] * y) / z + k[0, 2], k[1, 1] * y / z + k[1, 2], z])


def naive_material(world, number, frame, stride, points) -> list[np.ndarray | None]:
    columns = [
        (now.astype(float), then.astype(float))
        for m in world.materials
        if number in m.ids
        for now, then in zip(m.pos[frame], m.pos[frame + stride], strict=True)
        if np.isfinite(now).all() and np.isfinite(then).all()
    ]
    if len(columns) < 2:
        return [None] * len(points)
    rng = np.random.default_rng((SEED, frame, number))
    probe = points[rng.integers(0, len(points), min(len(points), 4096))].astype(float)
    gaps = sorted(min(math.dist(p, now) for now, _ in columns) for p in probe)
    typical = max(gaps[(len(gaps) - 1) // 2], 1e-9)
    voxels: dict[tuple, list[int]] = {}
    for n, p in enumerate(points):
        key = tuple(np.floor(p / np.float32(0.25 * typical)).astype(np.int64).tolist())
        voxels.setdefault(key, []).append(n)
    moved: list[np.ndarray | None] = [None] * len(points)
    for members in voxels.values():
        middle = points[members].mean(axis=0, dtype=float)
        total, shift = 0.0, np.zeros(3)
        for now, then in columns:
            distance = math.dist(middle, now)
            if distance <= 3 * typical:
                weight = math.exp(-0.5 * (distance / typical) ** 2)
                total += weight
                shift += weight * (then - now)
        if total > 0:
            for n in members:
                moved[n] = points[n] + shift / max(total, 1e-12)
    return moved


def test_scene_s_equals_the_plain_loops():
    world = scene_s_world()
    for frame, stride in ((0, 1), (1, 2)):
        flow, valid, _ = frame_flow(world, frame, stride)
        expected, known = naive_flow(world, frame, stride)
        assert (valid == known).all()
        assert np.abs(flow - expected).max() < 1e-4


def torn_world(seed: int) -> MemoryWorld:
    """A sheet that is tessellated anew each frame, above columns some of which die; turned camera."""
    rng = np.random.default_rng(seed)
    k, e = random_camera(rng, 24, 32)
    k[:2, 2] = (16, 12)
    meshes, frames = [], 3
    columns = rng.uniform(-1.5, 1.5, (60, 2))
    pos = np.zeros((frames, 60, 3), np.float32)
    for t in range(frames):
        flat, cells = grid(4 + t, 5)
        bent = np.column_stack([1.2 * flat, 4 + 0.2 * np.sin(2 * flat[:, 0] + t)])
        meshes.append(((bent @ e[:3, :3].T + e[:3, 3]).astype(np.float32), cells))
        at = np.column_stack([columns + 0.1 * t * columns[:, ::-1], np.full(60, 4.1) + 0.05 * t])
        pos[t] = at @ e[:3, :3].T + e[:3, 3]
    pos[1:, :7] = np.nan
    materials = (MemoryMaterial((5, 9), pos[:, :20]), MemoryMaterial((5,), pos[:, 20:]))
    return MemoryWorld({5: meshes}, materials, 24, 32, k, e)


@pytest.mark.parametrize("seed", range(4))
def test_changing_meshes_equal_the_plain_loops(seed):
    world = torn_world(seed)
    flow, valid, detail = frame_flow(world, 0)
    expected, known = naive_flow(world, 0, 1)
    assert detail.material == [5]
    assert known.any()
    assert (valid == known).all()
    assert np.abs(flow - expected).max() < 2e-3
    assert detail.unreached == np.count_nonzero(ids_seen(world, 0)) - known.sum()


def changed(world: MemoryWorld, number: int, frame: int, mesh) -> MemoryWorld:
    world.meshes[number] = [*world.meshes[number]]
    world.meshes[number][frame] = mesh
    return world


def split(mesh):
    """The same surface with its first face listed last."""
    return mesh[0], np.roll(mesh[1], 1, axis=0)


def test_a_static_object_whose_mesh_changes_or_goes_keeps_zero_valid_flow():
    for mesh in (split(moving_world().meshes[1][1]), EMPTY):
        world = changed(moving_world(), 1, 1, mesh)
        flow, valid, detail = frame_flow(world, 0)
        assert detail.static == [1]
        assert valid.all()
        assert (flow[ids_seen(world, 0) == 1] == 0).all()


def test_a_moving_object_that_goes_is_invalid():
    world = changed(moving_world(), 2, 1, EMPTY)
    flow, valid, detail = frame_flow(world, 0)
    assert detail.gone == [2]
    seen = ids_seen(world, 0)
    assert (valid == (seen == 1)).all()
    assert (flow == 0).all()


def test_too_little_material_reaches_nothing():
    world = changed(moving_world(), 2, 1, split(moving_world().meshes[2][1]))
    for columns in (0, 1):
        world.materials = (MemoryMaterial((2,), world.materials[0].pos[:, :columns]),)
        _, valid, detail = frame_flow(world, 0)
        seen = ids_seen(world, 0)
        assert detail.material == [2]
        assert detail.unreached == (seen == 2).sum()
        assert (valid == (seen == 1)).all()


def test_without_a_later_frame_or_geometry_nothing_is_known():
    world = moving_world(3)
    for frame, stride in ((2, 1), (1, 2), (0, 3)):
        flow, valid, _ = frame_flow(world, frame, stride)
        assert not valid.any()
        assert not flow.any()
    nothing = MemoryWorld({1: [EMPTY] * 3})
    assert not frame_flow(nothing, 0)[1].any()
    assert frame_flow(world, 0, 0)[1].all()  # a stride below 1 acts as 1


def test_a_point_that_passes_the_camera_is_invalid():
    world = moving_world(2, wall=False, shift=lambda t: (0, 0, -9.0 * t))
    flow, valid, detail = frame_flow(world, 0)
    assert detail.exact == [2]
    assert not valid.any()
    assert not flow.any()


def test_exploded_coordinates_do_not_raise():
    far = np.float32(3e38)
    world = moving_world(2, shift=lambda t: (0, 0, 0) if t == 0 else (far, far, far))
    world.meshes[2][1] = split(world.meshes[2][1])
    with np.errstate(all="raise"):
        flow, valid, _ = frame_flow(world, 0)
    assert np.isfinite(flow[~valid]).all()
    pos = world.materials[0].pos.copy()
    pos[:, 0] = far
    world.materials = (MemoryMaterial((2,), pos),)
    frame_flow(world, 0)


def test_the_draw_of_the_probe_is_repeatable():
    first, second = (frame_flow(torn_world(1), 0)[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_threads_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(material, "_PART", 64)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(material, "default_threads", lambda threads=threads: threads)
        found.append(frame_flow(torn_world(2), 0)[0].tobytes())
    assert len(set(found)) == 1


def test_displacements_equal_the_double_loop_at_any_spread():
    rng = np.random.default_rng(3)
    for spread in (1.0, 30.0, 1e6):
        now = (rng.normal(size=(300, 3)) * [spread, 1, 1]).astype(np.float32)
        later = now + rng.normal(size=now.shape).astype(np.float32)
        at = np.concatenate([now[::3] + 0.05 * rng.normal(size=(100, 3)), rng.normal(size=(50, 3)) * spread])
        step, weight = displacements(at, now, later, 0.3)
        gap = np.linalg.norm(at[:, None] - now[None].astype(float), axis=2)
        w = np.where(gap <= 0.9, np.exp(-0.5 * (gap / 0.3) ** 2), 0)
        expected = w @ (later.astype(float) - now) / np.maximum(w.sum(1), 1e-12)[:, None]
        assert weight == pytest.approx(w.sum(1), abs=1e-12)
        assert np.abs(step - expected).max() < 1e-9
        assert (weight > 0).any()
        assert not (weight > 0).all()


def test_far_flung_points_share_voxels_only_where_they_should():
    rng = np.random.default_rng(4)
    cluster = rng.normal(size=(50, 3)).astype(np.float32)
    points = np.concatenate([cluster, [[3e30, -3e30, 1e25]] * 2, [[np.inf, 0, 0]]]).astype(np.float32)
    moved, reached = carried(points, cluster, cluster + np.float32(1), np.random.default_rng(0))
    assert reached[:50].all()
    assert np.abs(moved[:50] - cluster - 1).max() < 1e-5
    assert not reached[50:].any()
    assert (moved[50:] == points[50:]).all()


def test_nearest_column_is_the_first_of_equal_ones():
    columns = np.float32([[5, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0], [5, 0, 0]])
    distance, index = nearest_columns(np.float32([[1, 0, 0.5], [4, 0, 0]]), columns)
    assert index.tolist() == [1, 0]
    assert distance.tolist() == [0.5, 1.0]


def test_material_is_only_asked_for_when_needed_and_tracers_count(monkeypatch):
    """A liquid's tracers are costly to extract; ``materials_of`` gives them after the archives."""

    def costly(_: object) -> tuple[MemoryMaterial, ...]:
        raise AssertionError("not needed")

    monkeypatch.setattr(flow_module, "materials_of", costly)
    assert frame_flow(moving_world(3), 0)[1].all()
    world = scene_s_world()
    expected = frame_flow_with(monkeypatch, world, world.materials)
    archives, tracers = (world.materials[0],), world.materials[1]
    world.materials = (*archives, MemoryMaterial((3,), tracers.pos[:, :0]))  # keeps the id among the moving
    assert (frame_flow_with(monkeypatch, world, (*archives, tracers)) == expected).all()


def frame_flow_with(monkeypatch, world, materials) -> np.ndarray:
    monkeypatch.setattr(flow_module, "materials_of", lambda _: materials)
    return frame_flow(world, 0)[0]
