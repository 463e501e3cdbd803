"""Time and memory of the checker on a large world: ``python benchmarks/checker.py``.

Writes a world of 300 frames with 200,000 triangles each and a 1280x720 render into a temporary directory,
once deflated and once stored, and checks each in a process of its own. Beside it, in the same run, stands the
naive way: ``numpy.load`` every member, once. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from world.writer import WorldWriter

HEIGHT, WIDTH = 720, 1280
STILL_SHARE = 0.25
"""Share of the triangles that belong to a still object, which costs a digest of every frame."""


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--frames", type=int, default=300)
    options.add_argument("--triangles", type=int, default=200_000)
    options.add_argument("--objects", type=int, default=4, help="mesh archives that share the triangles")
    options.add_argument("--directory", type=Path, help="where to put the temporary worlds (needs 5 GB)")
    options.add_argument("--child", nargs=2, metavar=("WAY", "WORKSPACE"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        print(json.dumps(child(given.child[0], Path(given.child[1]))))
        return 0
    results = {}
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="checker-benchmark-") as name:
        deflated, stored = Path(name) / "deflated", Path(name) / "stored"
        start = time.monotonic()
        make_world(deflated / "world", given.frames, given.triangles, given.objects)
        made = time.monotonic() - start
        for workspace in (deflated, stored):
            if workspace is stored:
                store(deflated / "world", stored / "world")
            world = workspace / "world"
            packed = sum(path.stat().st_size for path in world.rglob("*.npz"))
            results[workspace.name] = {
                "packed_mib": round(packed / 2**20, 1),
                **{way: measure(way, workspace) for way in ("checker", "naive")},
            }
            ways = results[workspace.name]
            ways["checker_over_naive"] = round(ways["checker"]["seconds"] / ways["naive"]["seconds"], 3)
    slowest = max(result["checker"]["seconds"] for result in results.values())
    largest = max(result["checker"]["peak_mib"] for result in results.values())
    record = {
        "frames": given.frames,
        "triangles": given.triangles,
        "objects": given.objects,
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "making_seconds": round(made, 1),
        "results": results,
        "within_60_s": slowest < 60,
        "within_2_gib": largest < 2048,
    }
    print(json.dumps(record, indent=2))
    return 0


def measure(way: str, workspace: Path) -> dict[str, object]:
    """Run one way in a fresh process, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--child", way, str(workspace)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def child(way: str, workspace: Path) -> dict[str, object]:
    start = time.monotonic()
    if way == "checker":
        from world.validation import check_world

        found = check_world(workspace / "world")
        if found:
            raise SystemExit("\n".join(map(str, found)))
    else:
        for path in sorted((workspace / "world").rglob("*.npz")):
            with np.load(path) as archive:
                for member in archive.files:
                    archive[member]
    seconds = time.monotonic() - start
    return {"seconds": round(seconds, 2), "peak_mib": round(peak_kib() / 1024, 1)}


def peak_kib() -> int:
    """Largest resident size of this program. ``getrusage`` would count its parent's, from before ``exec``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def make_world(path: Path, frames: int, triangles: int, objects: int) -> None:
    """Wavy sheets that move, each with a dynamics archive of its vertices, and one that does not."""
    counts = [int(triangles * STILL_SHARE)] + [int(triangles * (1 - STILL_SHARE)) // (objects - 1)] * (
        objects - 1
    )
    intrinsics = [[1000.0, 0, WIDTH / 2], [0, 1000.0, HEIGHT / 2], [0, 0, 1]]
    with WorldWriter(
        path, frames=frames, height=HEIGHT, width=WIDTH, fps=30, intrinsics=intrinsics, extrinsic=np.eye(4)
    ) as out:
        out.render(images(frames))
        for index, count in enumerate(counts):
            vertices, faces = sheet(count)
            rng = np.random.default_rng(index)
            phases = np.zeros(frames) if index == 0 else np.arange(frames) / 10
            waves = [vertices + wave(vertices, phase, rng) * np.float32(index > 0) for phase in phases]
            out.mesh(index + 1, waves, faces)
            if index > 0:
                out.dynamics(f"sheet{index}", np.stack(waves), [index + 1], faces=faces)


def sheet(triangles: int) -> tuple[np.ndarray, np.ndarray]:
    side = max(1, round((triangles / 2) ** 0.5))
    axis = np.linspace(-1, 1, side + 1, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    vertices = np.stack([x.ravel(), y.ravel(), np.full(x.size, 4, np.float32)], axis=1)
    corner = (np.arange(side)[:, None] * (side + 1) + np.arange(side)).ravel()
    quads = [corner, corner + 1, corner + side + 2, corner, corner + side + 2, corner + side + 1]
    return vertices, np.stack(quads, axis=1).reshape(-1, 3).astype(np.int32)


def wave(vertices: np.ndarray, phase: float, rng: np.random.Generator) -> np.ndarray:
    """A ripple with noise, so that floats are as hard to pack as a simulation's."""
    height = 0.1 * np.sin(6 * vertices[:, 0] + phase) + rng.normal(0, 1e-3, len(vertices))
    return np.stack([0 * height, 0 * height, height], axis=1).astype(np.float32)


def images(frames: int) -> Iterator[np.ndarray]:
    ramp = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH))
    for frame in range(frames):
        yield np.repeat(((ramp + 3 * frame) % 256).astype(np.uint8)[..., None], 3, axis=2)


def store(source: Path, target: Path) -> None:
    """Copy a world with its archives unpacked."""
    import shutil

    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npz":
            with np.load(path) as archive:
                np.savez(place, **{name: archive[name] for name in archive.files})
        else:
            shutil.copyfile(path, place)


if __name__ == "__main__":
    sys.exit(main())
