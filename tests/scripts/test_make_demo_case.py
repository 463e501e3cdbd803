"""`scripts/make_demo_case.py`: the simulations are physically sane, the worlds valid, the pictures right."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path

import case_tree
import make_demo_case
import numpy as np
import pytest
import trimesh
from demo_cases import cloth, grains, jelly, real, rigid, shading, shapes, side_by_side
from demo_cases.rigid_body import Motion, Solid, rotation, simulate
from demo_cases.scene import FPS, FRAMES, GRAVITY, Scene, look_at, still
from scipy.spatial import ConvexHull, cKDTree

from contract.errors import UserError
from scorer.geometry.raster import rasterize
from world.camera import project
from world.npz import Archive
from world.reader import World
from world.validation import check_world
from world.video import frames, probe

SYNTHETIC = ("rigid", "cloth", "grains", "jelly")


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {name: import_module(f"demo_cases.{name}").build() for name in SYNTHETIC}


@pytest.fixture(scope="module")
def clip() -> tuple[Scene, np.ndarray]:
    return real.build()


# Shapes.


@pytest.mark.parametrize(
    ("shape", "volume"),
    [
        (shapes.box((1.0, 2.0, 3.0)), 48.0),
        (shapes.octasphere(2.0, 4), 4 / 3 * np.pi * 8),
        (shapes.slab((6.0, 5.0), (4, 3), 0.1), 3.0),
        (shapes.copies(shapes.octasphere(1.0, 4), np.eye(3) * 5), 4 * np.pi),
    ],
)
def test_shapes_are_closed_and_face_outwards(shape: tuple[np.ndarray, np.ndarray], volume: float) -> None:
    mesh = trimesh.Trimesh(*shape, process=False)
    assert mesh.is_watertight
    assert mesh.is_winding_consistent
    assert mesh.volume == pytest.approx(volume, rel=0.02)
    assert shape[1].dtype == np.int32


def test_sheet_covers_the_square_once() -> None:
    ticks = np.linspace(0.0, 1.0, 6)
    points = np.stack([*np.meshgrid(ticks, ticks, indexing="ij"), np.zeros((6, 6))], -1).reshape(-1, 3)
    normals = np.cross(*(points[shapes.sheet(6)[:, k]] - points[shapes.sheet(6)[:, 0]] for k in (1, 2)))
    assert (normals[:, 2] > 0).all()
    assert normals[:, 2].sum() / 2 == pytest.approx(1.0)


@pytest.mark.parametrize("roundness", [0.0, 0.7])
def test_brick_is_filled_with_upright_tetrahedra(roundness: float) -> None:
    solid = jelly.brick((0.5, 0.4, 0.3), (3, 4, 2), roundness=roundness)
    _, volume = jelly.rest_state(solid)
    assert (volume > 0).all()
    if not roundness:
        assert volume.sum() == pytest.approx(0.48)
    skin = trimesh.Trimesh(solid.nodes, jelly.surface(solid.tets), process=False)
    assert skin.is_watertight
    assert skin.volume == pytest.approx(volume.sum())


# Every scene.


@pytest.mark.parametrize("name", [*SYNTHETIC, "clip"])
def test_scene_is_complete_and_in_view(
    name: str, scenes: dict[str, Scene], clip: tuple[Scene, np.ndarray]
) -> None:
    scene = clip[0] if name == "clip" else scenes[name]
    camera = scene.camera
    assert (scene.frames, scene.fps) == (FRAMES, FPS)
    assert camera.height % 2 == camera.width % 2 == 0
    assert camera.intrinsics[0, 2] == camera.width / 2
    assert camera.intrinsics[1, 2] == camera.height / 2
    assert camera.extrinsic[2, 2] < 0  # looks down a little
    ids = [body.id for body in scene.bodies]
    assert len(set(ids)) == len(ids)
    listed = {id for material in scene.materials for id in material.ids}
    moved = set()
    for body in scene.bodies:
        assert len(body.vertices) == len(body.faces) == FRAMES
        first, second = np.asarray(body.vertices[0]), np.asarray(body.vertices[1])
        if first.shape != second.shape or (first != second).any():
            moved.add(body.id)
        assert len(body.colours) >= max(len(f) for f in body.faces)
        assert body.colours.min() >= 0
        assert body.colours.max() <= 1
        last = np.asarray(body.vertices[-1])
        image, depth = project(last, camera.intrinsics, camera.extrinsic)
        assert ((image >= 0).all(1) & (image < (camera.width, camera.height)).all(1) & (depth > 0)).any()
    if name != "clip":
        assert moved, "something moves from the first frame on"
        assert moved <= listed


@pytest.mark.parametrize("name", SYNTHETIC)
def test_dynamics_and_meshes_agree(name: str, scenes: dict[str, Scene]) -> None:
    scene = scenes[name]
    for material in scene.materials:
        alive = np.isfinite(material.pos).all(axis=2)
        assert (alive | np.isnan(material.pos).all(axis=2)).all()
        assert (np.diff(alive.astype(int), axis=0) >= 0).all(), "born once, never gone"
        assert alive[-1].all()
        bodies = [body for body in scene.bodies if body.id in material.ids]
        assert len(bodies) == 1
        for frame in range(0, FRAMES, 7):
            vertices, faces = np.asarray(bodies[0].vertices[frame]), bodies[0].faces[frame]
            if material.faces is not None:
                assert np.array_equal(vertices, material.pos[frame])
                assert np.array_equal(faces, material.faces)
            elif material.tets is not None:
                assert cKDTree(material.pos[frame]).query(vertices)[0].max() == 0.0
            else:
                points = material.pos[frame][alive[frame]]
                assert len(vertices) == 18 * len(points)
                assert np.allclose(vertices.reshape(len(points), -1, 3).mean(axis=1), points)
            if name != "cloth":
                assert trimesh.Trimesh(vertices, faces, process=False).is_watertight


# Rigid bodies.


def corners(solid: Solid, motion: Motion, number: int, frame: int) -> np.ndarray:
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    return signs * solid.half @ motion.rotations[frame, number].T + motion.positions[frame, number]


def overlap_of_boxes(a: np.ndarray, b: np.ndarray, axes: list[np.ndarray]) -> float:
    """Smallest overlap over all candidates for a separating axis; negative when the boxes are apart."""
    depths = []
    for axis in axes:
        length = np.linalg.norm(axis)
        if length > 1e-6:
            p, q = a @ axis / length, b @ axis / length
            depths.append(min(p.max() - q.min(), q.max() - p.min()))
    return float(min(depths))


def overlap(solids: tuple[Solid, ...], motion: Motion, frame: int) -> float:
    """Deepest overlap of any two bodies or a body and the floor, by the separating axis theorem."""
    deepest = -1.0
    turns, places = motion.rotations[frame], motion.positions[frame]
    for i, solid in enumerate(solids):
        low = places[i, 2] - solid.half[0] if solid.ball else corners(solid, motion, i, frame)[:, 2].min()
        deepest = max(deepest, -float(low))
    for i, j in combinations(range(len(solids)), 2):
        a, b = solids[i], solids[j]
        if a.ball and b.ball:
            depth = a.half[0] + b.half[0] - float(np.linalg.norm(places[i] - places[j]))
        elif a.ball or b.ball:
            ball, box = (i, j) if a.ball else (j, i)
            local = turns[box].T @ (places[ball] - places[box])
            outside = local - np.clip(local, -np.array(solids[box].half), solids[box].half)
            depth = solids[ball].half[0] - float(np.linalg.norm(outside))
        else:
            edges = [*turns[i].T, *turns[j].T]
            crossed = [np.cross(p, q) for p in turns[i].T for q in turns[j].T]
            depth = overlap_of_boxes(
                corners(a, motion, i, frame), corners(b, motion, j, frame), edges + crossed
            )
        deepest = max(deepest, depth)
    return deepest


@pytest.mark.parametrize("solids", [rigid.SOLIDS, real.SOLIDS], ids=["rigid", "clip"])
def test_rigid_bodies_lose_energy_and_do_not_overlap(solids: tuple[Solid, ...]) -> None:
    motion = simulate(solids)
    assert (np.diff(motion.energy) <= 0.002 * motion.energy[0]).all()
    assert motion.energy[-1] < 0.6 * motion.energy[0]
    assert max(overlap(solids, motion, frame) for frame in range(FRAMES)) < 0.012
    identity = motion.rotations @ motion.rotations.transpose(0, 1, 3, 2)
    assert np.allclose(identity, np.eye(3), atol=1e-6)
    assert np.abs(motion.positions[..., :2]).max() < 2.4, "nothing leaves the floor"


def test_free_flight_and_spin() -> None:
    ball = Solid((0.1,) * 3, (0.0, 0.0, 5.0), ball=True, velocity=(1.0, 0.0, 2.0), spin=(0.0, 0.0, 1.5))
    motion = simulate((ball,), frames=13)
    time = 12 / FPS
    assert motion.positions[-1, 0] == pytest.approx(
        [time, 0.0, 5.0 + 2 * time + GRAVITY / 2 * time**2], abs=0.01
    )
    assert motion.rotations[-1, 0] == pytest.approx(rotation(np.array([[0.0, 0.0, 1.5 * time]]))[0], abs=1e-6)


def test_sliding_box_is_stopped_by_friction() -> None:
    box = Solid((0.3, 0.3, 0.1), (0.0, 0.0, 0.103), velocity=(1.5, 0.0, 0.0))
    motion = simulate((box,), frames=30)
    expected = 1.5**2 / (2 * 0.45 * -GRAVITY)
    assert motion.positions[-1, 0, 0] == pytest.approx(expected, rel=0.05)
    assert motion.positions[-1, 0, 0] == pytest.approx(motion.positions[-3, 0, 0], abs=1e-4)


def test_bounce_has_the_stated_restitution() -> None:
    motion = simulate((Solid((0.1,) * 3, (0.0, 0.0, 1.103), ball=True),), frames=25)
    heights = motion.positions[:, 0, 2] - 0.103
    assert heights[10:20].max() == pytest.approx(0.25, abs=0.02)


# Cloth.


def test_cloth_hangs_over_the_ball(scenes: dict[str, Scene]) -> None:
    history, faces = scenes["cloth"].materials[0].pos, shapes.sheet(cloth.NODES)
    for pairs, compliance in cloth.springs(cloth.NODES):
        assert len(np.unique(pairs)) == pairs.size, "no node twice in a batch"
        length = np.linalg.norm(history[:, pairs[:, 0]] - history[:, pairs[:, 1]], axis=2)
        if compliance == cloth.STRETCH:
            assert (length / length[0]).min() > 0.8
            assert (length / length[0]).max() < 1.25
    assert history[..., 2].min() > 0.01
    for ends in ((0, 1), (1, 2), (2, 0), (0, 1, 2)):
        middles = history[:, faces[:, ends]].mean(axis=2)
        assert np.linalg.norm(middles - cloth.BALL, axis=2).min() > cloth.RADIUS + 0.005
    nearest = [cKDTree(points).query(points, k=2)[0][:, 1].min() for points in history[::6]]
    assert min(nearest) > 0.035, "the cloth does not pass through itself"
    assert np.linalg.norm(history[-1] - history[-2], axis=1).max() * FPS < 1.0
    assert np.linalg.norm(history[-1] - cloth.BALL, axis=1).min() < cloth.RADIUS + 0.03


# Grains.


def test_grains_fill_the_tray() -> None:
    history = grains.pour()
    birth, start = grains.births(7)
    alive = np.isfinite(history[..., 0])
    assert np.array_equal(np.argmax(alive, axis=0), birth), "columns in order of birth"
    assert (np.diff(birth) >= 0).all()
    assert alive[0].any()
    assert not alive[0].all()
    assert np.array_equal(history[birth, np.arange(len(birth))], start)
    closest = []
    for points in history:
        points = points[np.isfinite(points[:, 0])]
        closest.append(cKDTree(points).query(points, k=2)[0][:, 1].min() / (2 * grains.RADIUS))
    assert closest[0] > 1.0, "no two touch at birth"
    assert min(closest) > 0.8
    assert closest[-1] > 0.95
    assert np.nanmin(history[..., 2]) > 0.85 * grains.RADIUS
    assert np.abs(history[-1, :, :2]).max() < grains.TRAY
    gap = np.linalg.norm(history - grains.DOME, axis=2) - grains.DOME_RADIUS
    assert np.nanmin(gap) > 0.6 * grains.RADIUS
    speed = np.linalg.norm(np.diff(history, axis=0), axis=2) * FPS
    highest = grains.SPOUT[2] + 0.02
    assert np.nanmax(speed) < np.sqrt(grains.FALL_SPEED**2 - 2 * GRAVITY * highest)


# Jelly.


def test_jelly_wobbles_and_stays_whole(scenes: dict[str, Scene]) -> None:
    scene = scenes["jelly"]
    for material in scene.materials:
        pos, tets = material.pos, material.tets
        assert tets is not None
        edges = pos[:, tets[:, 1:]] - pos[:, tets[:, :1]]
        volume = np.linalg.det(edges) / 6
        assert (volume > 0).all(), "no tetrahedron turns inside out"
        total = volume.sum(axis=1)
        assert total.min() > 0.75 * total[0]
        assert total.max() < 1.15 * total[0]
        assert total[-1] == pytest.approx(total[0], rel=0.05)
        assert pos[..., 2].min() >= 0.003 - 1e-12
        bounds = np.ptp(pos, axis=1)
        assert (np.abs(bounds - bounds[0]).max(axis=0) > 0.04).any(), "it gives way"
        assert np.linalg.norm(pos[-1] - pos[-2], axis=1).max() * FPS < 2.0
    a, b = (material.pos for material in scene.materials)
    assert min(cKDTree(p).query(q)[0].min() for p, q in zip(a, b, strict=True)) > 0.1


def test_jelly_falls_freely_and_spins_without_brake() -> None:
    solid = jelly.brick((0.3, 0.2, 0.2), (3, 2, 2))
    spin = np.array([0.0, 0.0, 2.0])
    history = jelly.fall(solid, np.array([0.0, 0.0, 3.0]), np.zeros(3), spin, frames=13)
    time = 12 / FPS
    drop = history[-1].mean(axis=0) - history[0].mean(axis=0)
    assert drop == pytest.approx([0.0, 0.0, GRAVITY / 2 * time**2], abs=0.01)
    centred = history - history.mean(axis=1, keepdims=True)
    turn = np.arctan2(centred[..., 1], centred[..., 0])[:, -1]
    assert np.unwrap(turn)[-1] - turn[0] == pytest.approx(2.0 * time, abs=0.05)


# Determinism.


@pytest.mark.parametrize("name", SYNTHETIC)
def test_same_arrays_every_time(name: str, scenes: dict[str, Scene]) -> None:
    again = import_module(f"demo_cases.{name}").build()
    for first, second in zip(scenes[name].materials, again.materials, strict=True):
        assert first.pos.tobytes() == second.pos.tobytes()
    for one, two in zip(scenes[name].bodies, again.bodies, strict=True):
        for frame in (0, 30, FRAMES - 1):
            assert np.asarray(one.vertices[frame]).tobytes() == np.asarray(two.vertices[frame]).tobytes()
            assert np.array_equal(one.faces[frame], two.faces[frame])


# Pictures.


def test_shading_of_a_plate_under_a_ball() -> None:
    plate = still(1, shapes.slab((4.0, 4.0), (2, 2), 0.1), np.full((32, 3), 0.5), frames=1)
    vertices, faces = shapes.octasphere(0.5, 4)
    ball = still(
        2, (vertices + np.array([0, 0, 1.2]), faces), np.tile([0.6, 0.0, 0.0], (len(faces), 1)), frames=1
    )
    camera = look_at((0.0, -4.0, 2.0), (0.0, 0.0, 0.5), 1.0, width=96, height=72)
    scene = Scene("test", camera, (plate, ball), (), frames=1, light=(0.0, 0.2, 5.0))
    image = shading.render(shading.triangles(scene, 0), camera, scene.light, shading.Look())
    assert image.shape == (72, 96, 3)
    assert np.isfinite(image).all()

    def at(*point: float) -> np.ndarray:
        column, row = project(np.array([point]), camera.intrinsics, camera.extrinsic)[0][0]
        return np.asarray(image[int(row), int(column)])

    lit, dark = at(1.3, -0.8, 0.0), at(0.0, -0.1, 0.0)
    assert dark.mean() < 0.6 * lit.mean(), "the ball throws a shadow on the plate"
    assert dark.mean() > 0.02
    face = at(0.0, -0.3, 1.6)
    assert face[0] > 2 * face[1]
    bytes_ = shading.to_bytes(image)
    assert bytes_.dtype == np.uint8
    ramp = shading.to_bytes(np.linspace(0, 50, 500))
    assert (np.diff(ramp.astype(int)) >= 0).all()
    assert (ramp[0], ramp[-1]) == (0, 255)


def test_still_frames_give_the_same_picture_as_their_mirror_winding(scenes: dict[str, Scene]) -> None:
    scene = scenes["jelly"]
    parts = shading.triangles(scene, 3)
    turned = shading.Triangles(
        parts.corners[:, ::-1].copy(), -parts.normals[:, ::-1].copy(), parts.colours, parts.gloss
    )
    look = shading.Look()
    first = shading.to_bytes(shading.render(parts, scene.camera, scene.light, look))
    second = shading.to_bytes(shading.render(turned, scene.camera, scene.light, look))
    assert (np.abs(first.astype(int) - second) > 2).mean() < 0.001


# The real clip.


def test_hand_made_mask_agrees_with_the_rasteriser(clip: tuple[Scene, np.ndarray]) -> None:
    scene, mask = clip
    assert mask.dtype == np.uint8
    assert mask.shape == (FRAMES, scene.camera.height, scene.camera.width)
    assert set(np.unique(mask)) == {0, 1}
    for frame in range(0, FRAMES, 10):
        parts, owner, count = [], [], 0
        for body in scene.bodies:
            parts.append((np.asarray(body.vertices[frame]), body.faces[frame] + count))
            owner += [body.id] * len(body.faces[frame])
            count += len(parts[-1][0])
        vertices, faces = (np.concatenate(part) for part in zip(*parts, strict=True))
        camera = scene.camera
        _, face = rasterize(
            vertices, faces, camera.intrinsics, camera.extrinsic, camera.height, camera.width, device="cpu"
        )
        drawn = (face >= 0) & (np.array(owner)[face] > 2)
        union = (drawn | (mask[frame] > 0)).sum()
        assert (drawn & (mask[frame] > 0)).sum() / union > 0.97


def test_hull_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2))
    hull = real.convex_hull(points)
    area = sum(a[0] * b[1] - a[1] * b[0] for a, b in pairwise([*hull, hull[0]])) / 2
    assert area == pytest.approx(ConvexHull(points).volume)
    inside = real._inside_polygon(points[:, 0], points[:, 1], hull + 1e-9 * (hull - points.mean(axis=0)))
    assert inside.all()


# The program.


def run(root: Path, *arguments: str) -> int:
    return make_demo_case.main(["--cases", str(root / "cases"), "--data", str(root / "data"), *arguments])


def test_unknown_names_change_nothing(tmp_path: Path) -> None:
    for name in ("demo_x", "real/demo_rigid", "synthetic/x/demo_rigid"):
        with pytest.raises(UserError, match="no demo case"):
            run(tmp_path, "--only", "demo_cloth", name)
    assert list(tmp_path.iterdir()) == []


def test_failed_case_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(make_demo_case, "make_world", broken)
    with pytest.raises(RuntimeError):
        run(tmp_path, "--only", "demo_rigid")
    assert list(tmp_path.rglob("*")) == []


def test_an_invalid_case_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def invalid(*_: object) -> None:
        raise make_demo_case.InvalidCase("the world that was made is not valid:\ncamera.json")

    monkeypatch.setattr(make_demo_case, "make_world", invalid)
    assert run(tmp_path, "--only", "demo_rigid") == 1
    output = capsys.readouterr()
    assert output.err.startswith("error: synthetic/demo_rigid: the world that was made is not valid: camera")
    assert output.err.count("\n") == 1
    assert output.out.startswith("0 cases in ")
    assert list(tmp_path.rglob("*")) == []


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_what_children_say_and_how_they_end(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [
        python("import sys; print('a: one'); print('other'); sys.exit('bad')"),
        python("print('b: one')"),
        python("import os; os.kill(os.getpid(), 9)"),
    ]
    assert side_by_side.Crew(2).run(commands, ["a: ", "b: ", "c: "]) == [1, 0, -9]
    output = capsys.readouterr()
    assert sorted(output.out.splitlines()) == ["a: one", "b: one"]
    assert output.err.splitlines() == ["other", "bad"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupt_ends_all_and_leaves_nothing(tmp_path: Path, processes: str) -> None:
    program = [sys.executable, make_demo_case.__file__, "--processes", processes]
    trees = ["--cases", str(tmp_path / "cases"), "--data", str(tmp_path / "data")]
    process = subprocess.Popen([*program, *trees], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert ": simulated" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted; run the same command again to continue\n"
    assert "wrote" not in out
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.slow
def test_cases_are_valid_and_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    for name in make_demo_case.DEMOS:
        place = make_demo_case.place_of(name, tmp_path / "cases", tmp_path / "data")
        info = probe(place.video)
        assert info.shape == (FRAMES, 270, 480)
        assert info.fps == Fraction(FPS)
        assert (info.codec, info.pixel_format, info.variable) == ("h264", "yuv420p", False)
        if place.kind == "real":
            with Archive.open(place.mask) as archive:
                assert archive.read("mask").shape == info.shape
            continue
        assert place.video.read_bytes() == (place.world / "render.mp4").read_bytes()
        for scorer in (False, True):
            assert check_world(place.world, scorer=scorer, video=place.video) == []
        world = World(place.world)
        assert world.shape == info.shape
        assert world.dynamic_ids
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    assert run(tmp_path) == 0
    assert capsys.readouterr().out.count("there already") == len(make_demo_case.DEMOS)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    # Half a case is made again, with the same bytes; --force replaces a whole one.
    place = make_demo_case.place_of("demo_jelly", tmp_path / "cases", tmp_path / "data")
    kept = {path: path.read_bytes() for path in place.data_dir.rglob("*") if path.is_file()}
    shutil.rmtree(place.case_dir)
    (place.data_dir / "estimates").mkdir()
    assert run(tmp_path, "--only", "synthetic/demo_jelly") == 0
    assert {path: path.read_bytes() for path in place.data_dir.rglob("*") if path.is_file()} == kept
    assert not (place.data_dir / "estimates").exists()
    assert sum(1 for _ in frames(place.video)) == FRAMES
    assert not list(tmp_path.rglob(f"{case_tree._PREFIX}*"))
