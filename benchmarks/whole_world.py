"""How long whole worlds take to score: ``python benchmarks/whole_world.py [--only typical] [--each]``.

Writes a reference world and a submission that moves otherwise, and runs the scorer's process on it, on all
types that need no learned model. ``typical``: 120 frames of 640×360, 20,000 triangles. ``full``: 300 frames
of 1280×720, 100,000 triangles. Both have balls that fly and turn, a body that wobbles, a cloth, grains and a
floor, and more than 8192 paths on each side, nearly all pairs of them within the cap. Prints JSON:

``wall``, ``cpu`` (seconds of all threads of all processes, which other work on the machine disturbs less)
and ``peak_mib`` (largest resident size of a process) of a run of all types; ``seconds``, what the scorer
wrote of each type (what a type prepares for later ones counts as its own). With ``--each`` also a run of each
type alone, everything that it needs included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from sampling_scenes import sheet, uv_sphere

from world.camera import look_at
from world.writer import WorldWriter

REPOSITORY = Path(__file__).resolve().parents[1]
TYPES = (
    "dynamic_iou",
    "scene_3d",
    "trajectory",
    "dynamics",
    "occupancy",
    "interpenetration",
    "mesh",
)
SIZES = {"typical": (120, 360, 640, 20_000), "full": (300, 720, 1280, 100_000)}
"""Frames, height, width, triangles."""
CASE = "synthetic/whole"
RUN = f"runs/{CASE}/benchmark/1"
_OCTAHEDRON = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
_OCTAHEDRON_FACES = np.array(
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]]
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--each", action="store_true", help="run every type alone as well")
    parser.add_argument("--submission", choices=("other", "same", "noisy"), default="other")
    parser.add_argument("--directory", type=Path, help="where to put the worlds, and leave them")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "submission": options.submission,
        "worlds": {},
    }
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="whole-world-") as temporary:
            root = (options.directory or Path(temporary)) / f"{name}_{options.submission}"
            if not root.exists():
                make(root, *SIZES[name], options.submission)
            report["worlds"][name] = score(root, options.each)
    print(json.dumps(report, indent=2))
    return 0


def make(root: Path, frames: int, height: int, width: int, triangles: int, submission: str) -> None:
    """A case and one run below ``root``."""
    size = {"frames": frames, "height": height, "width": width, "triangles": triangles}
    reference = root / "data" / CASE / "world"
    write_world(reference, **size, other=0.0, noise=0.0)
    (root / "cases" / CASE).mkdir(parents=True)
    shutil.copy(reference / "render.mp4", root / "cases" / CASE / "reference.mp4")
    workspace = root / RUN / "workspace"
    amounts = {"other": (1.0, 0.0), "same": (0.0, 0.0), "noisy": (0.0, 0.01)}[submission]
    write_world(workspace / "world", **size, other=amounts[0], noise=amounts[1])
    (workspace / "solution").mkdir()
    script = workspace / "solution" / "build.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    entry = {"case": CASE, "world": f"{RUN}/workspace/world", "out": RUN}
    (root / "manifest.json").write_text(json.dumps([entry]))


def write_world(
    path: Path, frames: int, height: int, width: int, triangles: int, other: float, noise: float
) -> None:
    """``other`` turns the motion into another one; ``noise`` moves everything by so many metres at random."""
    rng = np.random.default_rng(1)
    t = np.linspace(0.0, 1.0, frames)[:, None]
    intrinsics = [[1.2 * width, 0, width / 2], [0, 1.2 * width, height / 2], [0, 0, 1]]
    with WorldWriter(
        path,
        frames=frames,
        height=height,
        width=width,
        fps=24,
        intrinsics=intrinsics,
        extrinsic=look_at((0.2, -4.2, 1.8), (0.0, 0.0, 0.5)),
    ) as out:
        out.render(images(frames, height, width))
        floor, floor_faces = sheet(round((0.1 * triangles / 2) ** 0.5))
        out.mesh(1, [(6 * floor - [3, 3, 0]).astype(np.float32)] * frames, floor_faces)
        for number in range(4):
            ball, faces = sphere(0.1 * triangles)
            turned = turning(0.22 * ball, t[:, 0] * (2 + number + other), rng)
            start = np.array([0.5 * number - 0.9, 0.2 * (-1) ** number, 0.9 + 0.1 * number])
            speed = np.array([0.5 - 0.2 * number + 0.2 * other, 0.1 * other, 1.0 + 0.3 * number])
            add_body(out, number + 2, turned + flight(start, speed, t)[:, None], faces, rng, noise)
        ball, faces = sphere(0.15 * triangles)
        wobble = 1.0 + 0.25 * np.sin(9 * t[:, None] + 3 * ball[:, [1, 2, 0]] + other)
        add_body(out, 6, 0.3 * ball * wobble + [0.1 * other, 0.5, 0.45], faces, rng, noise)
        cloth, faces = sheet(round((0.25 * triangles / 2) ** 0.5))
        place = cloth - [0.5, 0.5, 0]
        wave = 0.15 * np.sin(5 * place[:, 0] + 6 * t + other) * (0.3 + t) + 1.3 - 0.4 * t
        cloth_path = np.stack([*np.broadcast_arrays(place[:, 0], place[:, 1] + 0.2 * t * other, wave)], -1)
        add_body(out, 7, cloth_path, faces, rng, noise)
        add_grains(out, 8, round(0.1 * triangles / 8), t, other, noise)


def add_body(
    out: WorldWriter, number: int, path: np.ndarray, faces: np.ndarray, rng: np.random.Generator, noise: float
) -> None:
    path = (path + noise * rng.normal(size=path.shape)).astype(np.float32)
    out.mesh(number, list(path), faces)
    out.dynamics(f"body_{number}", path, [number], faces=faces)


def add_grains(out: WorldWriter, number: int, shown: int, t: np.ndarray, other: float, noise: float) -> None:
    """Grains that fall and come to rest; some of them are shown."""
    rng = np.random.default_rng(2)
    start = rng.uniform([-0.9, -0.7, 0.3], [-0.3, -0.2, 1.2], (6000, 3))
    speed = rng.normal(0.0, 0.25, (6000, 3)) * [1, 1, 0] + [0.4 * other, 0, 0]
    rest = 0.02 + 0.1 * rng.random(6000)
    height = start[:, 2] - 2.0 * t**2
    landed = np.sqrt(np.maximum(start[:, 2] - rest, 0.0) / 2.0)
    path = start[:, :2] + speed[:, :2] * np.minimum(t, landed)[..., None]
    pos = np.concatenate([path, np.maximum(height, rest)[..., None]], axis=-1)
    pos = (pos + noise * rng.normal(size=pos.shape)).astype(np.float32)
    corners = (pos[:, :shown, None] + np.float32(0.02) * _OCTAHEDRON).reshape(len(t), -1, 3)
    faces = (_OCTAHEDRON_FACES[None] + 6 * np.arange(shown)[:, None, None]).reshape(-1, 3)
    out.mesh(number, list(corners.astype(np.float32)), faces.astype(np.int32))
    out.dynamics("grains", pos, [number])


def sphere(triangles: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit sphere of about so many triangles."""
    rings = max(3, round((triangles / 4) ** 0.5))
    vertices, faces = uv_sphere(rings, 2 * rings)
    return vertices.astype(np.float64), faces


def turning(vertices: np.ndarray, angle: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    cross = np.cross(np.eye(3), axis)
    sine, cosine = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    turns = np.eye(3) + sine * cross + (1 - cosine) * cross @ cross
    return vertices @ np.swapaxes(turns, 1, 2)


def flight(start: np.ndarray, speed: np.ndarray, t: np.ndarray) -> np.ndarray:
    """A flight that bounces on the floor once it is down, (F, 3)."""
    path = start + speed * t * [1, 1, 0]
    fall = start[2] + speed[2] * t[:, 0] - 4.9 * t[:, 0] ** 2 - 0.24
    return np.column_stack([path[:, :2], 0.24 + np.abs(fall)])


def images(frames: int, height: int, width: int) -> Iterator[np.ndarray]:
    ramp = np.add.outer(np.arange(height), np.arange(width))
    for frame in range(frames):
        yield np.repeat(((ramp + 3 * frame) % 256).astype(np.uint8)[..., None], 3, axis=2)


def score(root: Path, each: bool) -> dict[str, Any]:
    """Run the scorer on the world below ``root``, on all types at once and then one by one."""
    result: dict[str, Any] = {"all": run(root, TYPES)}
    detail = json.loads((root / RUN / "results" / "reward.detail.json").read_text())
    result["seconds"] = {name: stamp["seconds"] for name, stamp in detail["scorer"]["types"].items()}
    result["paths"] = detail.get("trajectory_paths")
    result["reward"] = json.loads((root / RUN / "results" / "reward.json").read_text())
    if each:
        result["each"] = {name: run(root, [name]) for name in TYPES}
    return result


def run(root: Path, types: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """One scorer process on ``types``, from scratch."""
    shutil.rmtree(root / RUN / "results", ignore_errors=True)
    trees = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(root / name))]
    command = [sys.executable, "-m", "scorer", "--manifest", str(root / "manifest.json"), *trees]
    start = time.monotonic()
    process = subprocess.Popen([*command, "--type", ",".join(types)], cwd=REPOSITORY, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the scorer ended with {os.waitstatus_to_exitcode(status)} on {','.join(types)}")
    return {
        "wall": round(time.monotonic() - start, 1),
        "cpu": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


if __name__ == "__main__":
    sys.exit(main())
