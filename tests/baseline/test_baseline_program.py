"""The baseline agent as a user runs it: a video in, a workspace out."""

import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from harness.baseline.lift import FIRST_ID
from world.npz import Archive
from world.reader import World
from world.validation import check_world
from world.video import frames, probe, write_video

ROOT = Path(__file__).resolve().parents[2]
RATE = Fraction(24)


def run(video: Path, workspace: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "harness.baseline",
        "--video",
        str(video),
        "--workspace",
        str(workspace),
        *more,
    ]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}


def reconstruct(tmp_path: Path, images: list[np.ndarray], fps: Fraction = RATE) -> World:
    video = tmp_path / "input.mp4"
    write_video(video, images, fps)
    done = run(video, tmp_path / "workspace")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    found = check_world(tmp_path / "workspace/world", scorer=True)
    assert [str(violation) for violation in found] == []
    world = World(tmp_path / "workspace/world")
    assert (world.shape, world.fps) == ((len(images), *images[0].shape[:2]), fps)
    return world


def drawn(world: World, frame: int) -> np.ndarray:
    """Pixels of moving objects at ``frame``: every triangle tested at every pixel centre of its box."""
    shown = np.zeros((world.height, world.width), dtype=int)
    depth = np.full(shown.shape, np.inf)
    for number, vertices, faces in world.parts(frame):
        seen = (vertices.astype(np.float64) - world.extrinsic[:3, 3]) @ world.extrinsic[:3, :3]
        flat = seen @ world.intrinsics.T
        corners = np.stack([flat[:, 0] / flat[:, 2], flat[:, 1] / flat[:, 2], 1 / seen[:, 2]], axis=1)[faces]
        for a, b, c in corners:
            low = np.clip(np.floor(np.min([a, b, c], axis=0)[:2]), 0, (world.width, world.height)).astype(int)
            high = np.clip(np.ceil(np.max([a, b, c], axis=0)[:2]), 0, (world.width, world.height)).astype(int)
            area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
            if (high <= low).any() or area == 0:
                continue
            rows, columns = np.mgrid[low[1] : high[1], low[0] : high[0]] + 0.5
            s = ((columns - a[0]) * (c[1] - a[1]) - (rows - a[1]) * (c[0] - a[0])) / area
            t = ((b[0] - a[0]) * (rows - a[1]) - (b[1] - a[1]) * (columns - a[0])) / area
            z = 1 / (a[2] + s * (b[2] - a[2]) + t * (c[2] - a[2]))
            window = slice(low[1], high[1]), slice(low[0], high[0])
            nearer = (s >= 0) & (t >= 0) & (s + t <= 1) & (z < depth[window])
            depth[window][nearer], shown[window][nearer] = z[nearer], number
    return np.isin(shown, world.dynamic_ids)


@pytest.fixture(scope="module")
def scene() -> tuple[list[np.ndarray], np.ndarray]:
    """A disc that rolls and comes to rest, and a square that crosses, before noise; and their masks."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:120, :200] + 0.5
    base = 90 + 20 * np.sin(columns / 9)[:, :, None] + np.zeros((1, 1, 3))
    images, masks = [], []
    for t in range(36):
        image = base + generator.normal(0, 3, base.shape)
        disc = np.hypot(columns - 25 - 5 * min(t, 20), rows - 80) < 14
        square = (np.abs(columns - 180 + 2 * t) < 9) & (np.abs(rows - 30) < 9)
        image[disc], image[square] = (225, 60, 45), (45, 65, 220)
        images.append(np.clip(image, 0, 255).astype(np.uint8))
        masks.append(disc | square)
    return images, np.array(masks)


@pytest.fixture(scope="module")
def delivered(scene: tuple[list[np.ndarray], np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("baseline")
    reconstruct(place, scene[0], Fraction(24))
    return place / "workspace"


def test_the_moving_meshes_cover_what_moves(
    delivered: Path, scene: tuple[list[np.ndarray], np.ndarray]
) -> None:
    world, masks = World(delivered / "world"), scene[1]
    scores = []
    for frame in range(0, world.frames, 5):
        seen = drawn(world, frame)
        scores.append((seen & masks[frame]).sum() / (seen | masks[frame]).sum())
    assert np.mean(scores) > 0.85
    assert min(scores) > 0.8


def test_things_are_material_with_one_topology(delivered: Path) -> None:
    world = World(delivered / "world")
    assert len(world.materials) == 2
    for material in world.materials:
        assert material.faces is not None
        (number,) = material.ids
        assert number >= FIRST_ID
        positions = material.pos
        assert len(positions) == world.frames
        for frame in range(world.frames):
            vertices, faces = world.object_mesh(number, frame)
            if len(faces):
                np.testing.assert_array_equal(positions[frame], vertices)
                np.testing.assert_array_equal(material.faces, faces)
            else:
                assert np.isnan(positions[frame]).all()


def test_the_render_shows_the_meshes(delivered: Path, scene: tuple[list[np.ndarray], np.ndarray]) -> None:
    world = World(delivered / "world")
    shown = list(frames(delivered / "world/render.mp4"))
    assert len(shown) == world.frames
    still = np.median([image.astype(int) for image in shown], axis=0)
    for frame in (0, 12, 35):
        different = np.abs(shown[frame] - still).max(axis=2) > 25
        # The disc rests for long enough to be in the median: look only where it never is.
        different[60:] = False
        seen = drawn(world, frame)
        seen[60:] = False
        assert (different & seen).sum() / (different | seen).sum() > 0.8
        assert shown[frame][seen][:, 2].mean() > shown[frame][seen][:, 0].mean() + 60  # the square is blue


def test_the_checker_passes(delivered: Path) -> None:
    command = [sys.executable, "-m", "checker", "--workspace", str(delivered)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_solution_rebuilds_the_same_world_without_the_video(delivered: Path, tmp_path: Path) -> None:
    shutil.copytree(delivered / "solution", tmp_path / "else where/solution")
    # A stale world is replaced.
    (tmp_path / "else where/world/meshes").mkdir(parents=True)
    (tmp_path / "else where/world/meshes/99.npz").write_bytes(b"old")
    script = tmp_path / "else where/solution/build.sh"
    done = subprocess.run([script], cwd="/", env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after = (contents(place / "world") for place in (delivered, tmp_path / "else where"))
    assert before.keys() == after.keys()
    for name, arrays in before.items():
        assert arrays.keys() == after[name].keys()
        for key, array in arrays.items():
            assert array.dtype == after[name][key].dtype
            assert array.tobytes() == after[name][key].tobytes()
    cameras = [place / "world/camera.json" for place in (delivered, tmp_path / "else where")]
    assert cameras[0].read_bytes() == cameras[1].read_bytes()
    suffixes = {path.suffix for path in (tmp_path / "else where/solution").rglob("*") if path.is_file()}
    assert suffixes == {".py", ".sh"}


def test_the_build_says_what_it_lacks(delivered: Path, tmp_path: Path) -> None:
    shutil.copytree(delivered / "solution", tmp_path / "solution")
    for tool in ("sh", "dirname"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        [tmp_path / "solution/build.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "numpy" in done.stderr
    assert not (tmp_path / "world").exists()


def test_a_second_run_gives_the_same_files_and_replaces_the_first(
    delivered: Path, scene: tuple[list[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "solution").mkdir(parents=True)
    (workspace / "solution/old.py").write_text("")
    reconstruct(tmp_path, scene[0])
    assert sorted(path.name for path in workspace.iterdir()) == ["solution", "world"]
    for path in (delivered / "solution").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (workspace / path.relative_to(delivered)).read_bytes()
    assert not (workspace / "solution/old.py").exists()


def noise(count: int, height: int, width: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).integers(0, 256, (count, height, width, 3), dtype=np.uint8))


def test_one_still_frame(tmp_path: Path) -> None:
    assert reconstruct(tmp_path, [np.full((64, 96, 3), 120, dtype=np.uint8)]).dynamic_ids == ()


def test_two_frames(tmp_path: Path) -> None:
    images = [np.full((64, 96, 3), 120, dtype=np.uint8) for _ in range(2)]
    images[0][20:40, 10:30] = (250, 30, 30)
    images[1][20:40, 60:80] = (250, 30, 30)
    world = reconstruct(tmp_path, images)
    for frame, columns in enumerate((slice(10, 30), slice(60, 80))):
        seen = drawn(world, frame)
        assert seen[20:40, columns].sum() / max(1, seen.sum()) > 0.8
        assert seen[20:40, columns].mean() > 0.8


def test_nothing_moves(tmp_path: Path) -> None:
    world = reconstruct(tmp_path, [np.full((48, 64, 3), 90, dtype=np.uint8)] * 12)
    assert world.dynamic_ids == ()
    assert world.ids == (1, 2)


def test_everything_moves(tmp_path: Path) -> None:
    reconstruct(tmp_path, noise(10, 60, 80))
    pan = np.random.default_rng(2).integers(0, 256, (60, 200, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
    reconstruct(tmp_path, [pan[:120, 20 * t : 20 * t + 160] for t in range(20)])


def test_tiny_and_odd_sizes(tmp_path: Path) -> None:
    for index, (height, width) in enumerate(((16, 16), (33, 47), (31, 1030))):
        images = [np.full((height, width, 3), 60, dtype=np.uint8) for _ in range(8)]
        for t, image in enumerate(images):
            left = 2 + t * max(1, (width - height) // 40)
            image[4 : height - 4, left : left + height - 8] = 240
        place = tmp_path / str(index)
        place.mkdir()
        assert len(reconstruct(place, images, Fraction(30000, 1001)).dynamic_ids) >= 1


def test_what_cannot_be_used_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    broken, sound = tmp_path / "broken.mp4", tmp_path / "sound.mp4"
    broken.write_bytes(b"no video")
    for video in (broken, tmp_path / "missing.mp4", tmp_path):
        done = run(video, tmp_path / "workspace")
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "workspace").exists()
    write_video(sound, [np.zeros((16, 16, 3), dtype=np.uint8)], 24)
    done = run(sound, broken)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_too_many_frames_are_refused(tmp_path: Path) -> None:
    video = tmp_path / "long.mp4"
    write_video(video, (np.zeros((16, 16, 3), dtype=np.uint8) for _ in range(10_001)), 240)
    done = run(video, tmp_path / "workspace")
    assert done.returncode == 2
    assert "10001 frames" in done.stderr
    assert not (tmp_path / "workspace").exists()


def test_model_and_effort_are_taken_and_ignored(tmp_path: Path) -> None:
    video = tmp_path / "still.mp4"
    write_video(video, [np.zeros((16, 16, 3), dtype=np.uint8)] * 3, 24)
    done = run(video, tmp_path / "workspace", "--model", "none", "--effort", "high")
    assert done.returncode == 0, done.stderr
    assert probe(tmp_path / "workspace/world/render.mp4").shape == (3, 16, 16)


def contents(world: Path) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for path in sorted(world.rglob("*.npz")):
        with Archive.open(path) as archive:
            found[str(path.relative_to(world))] = {name: archive.read(name) for name in archive.names}
    return found
