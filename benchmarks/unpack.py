"""How fast packed worlds are unpacked, beside the plain loop: h5py to ``numpy.savez_compressed``.

    python benchmarks/unpack.py [--frames N] [--points N] [--repeat N]

Makes a large world (a deforming mesh of constant topology, a liquid whose topology changes, a static room,
trajectories), packs it, and unpacks it in one process with the plain loop and with ours, then in the worker
processes of the download. Processor time decides; prints JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--repeat", type=int, default=1, help="worlds for the worker processes")
    parser.add_argument(
        "--run", choices=("plain", "ours", "slots"), help="one of them, as a process of its own"
    )
    parser.add_argument("--packed", type=Path)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(_run(given.run, given.packed, given.repeat)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        packed = Path(directory) / "world.h5"
        make(Path(directory) / "world", packed, given.frames, given.points)
        rows = {name: _measured(name, packed, given.repeat) for name in ("plain", "ours", "slots")}
    plain, ours, slots = rows["plain"], rows["ours"], rows["slots"]
    rate = {name: row["raw_mb"] / row["cpu_s"] for name, row in rows.items()}
    print(json.dumps({
        **rows,
        "mb_per_cpu_s": {name: round(value, 1) for name, value in rate.items()},
        "one_process_faster": round(rate["ours"] / rate["plain"], 2),
        "all_processes_faster_wall": round(
            slots["raw_mb"] / slots["wall_s"] / (plain["raw_mb"] / plain["wall_s"]), 2
        ),
        "size_of_ours": round(ours["packed_mb"] / plain["packed_mb"], 3),
    }, indent=2))  # fmt: skip
    return 0


def _measured(name: str, packed: Path, repeat: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--run", name, "--packed", str(packed), "--repeat", str(repeat)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _run(name: str, packed: Path, repeat: int) -> dict[str, float]:
    from world.packed.reading import open_packed
    from world.packed.unpack import unpack_world

    with open_packed(packed) as world:
        raw = sum(unit.raw for unit in world.units())
    targets = [packed.parent / f"{name}-{number}" for number in range(repeat if name == "slots" else 1)]
    wall, cpu = time.perf_counter(), _cpu()
    memory = 0.0  # of the workers and this process; of this process alone it is asked at the end
    if name == "plain":
        plain_unpack(packed, targets[0])
    elif name == "ours":
        unpack_world(packed, targets[0])
    else:
        memory = slots_unpack(packed, targets)
    cpu, wall = _cpu() - cpu, time.perf_counter() - wall
    size = sum(path.stat().st_size for path in targets[0].rglob("*") if path.is_file())
    for target in targets:
        shutil.rmtree(target)
    peak = memory or _high_water()
    return {
        "raw_mb": round(raw * len(targets) / 1e6, 1),
        "packed_mb": round(size / 1e6, 1),
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "peak_mib": round(peak),
    }


def _high_water() -> float:
    """Peak memory of this program, MiB; unlike getrusage's, not that of whoever started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(row.ru_utime + row.ru_stime for row in used)


def plain_unpack(packed: Path, target: Path) -> None:
    """The loop that one writes first."""
    import h5py
    import hdf5plugin  # noqa: F401

    def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
        path = target / name
        if isinstance(node, h5py.Dataset) and name.split("/")[0] not in ("meshes", "dynamics"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(node[()].tobytes())
        elif isinstance(node, h5py.Group) and len(name.split("/")) == 2:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path.with_suffix(".npz"), **dict(_arrays(node)))

    with h5py.File(packed) as file:
        file.visititems(visit)


def _arrays(group):  # type: ignore[no-untyped-def]
    for name, node in group.items():
        if "frames" not in node if hasattr(node, "keys") else True:
            yield name, node[()]
            continue
        frames = node["frames"][()]
        if "stack" in node:
            pieces = list(node["stack"][()])
        else:
            pieces = np.split(node["flat"][()], np.cumsum(node["lengths"][()])[:-1])
        for frame, piece in zip(frames, pieces, strict=True):
            yield f"{name}_{frame:04d}", piece


def slots_unpack(packed: Path, targets: list[Path]) -> float:
    """Unpack in worker processes; peak memory of all of them together, MiB."""
    from unpack_slots import Slots
    from world_unpacking import unpack

    with Slots() as slots, _Watch(slots) as watch:
        for target in targets:
            unpack(slots, packed, target, lambda count: None)
    return watch.peak


def make(world: Path, packed: Path, frames: int, points: int) -> None:
    """A world of about ``frames`` × ``points`` × 100 bytes, and its packed form."""
    from world.npz import write_archive
    from world.packed.pack import pack_world

    side = int(np.sqrt(points))
    u, v = np.meshgrid(np.linspace(0, np.pi, side), np.linspace(0, 2 * np.pi, side), indexing="ij")
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    low = np.stack([corner, corner + 1, corner + side], 1)
    faces = np.concatenate([low, np.stack([corner + 1, corner + side + 1, corner + side], 1)]).astype(
        np.int32
    )
    rng = np.random.default_rng(0)

    def surface(time: float) -> np.ndarray:
        radius = 1 + 0.1 * np.sin(5 * v + time) + rng.normal(0, 1e-4, u.shape)
        ball = np.stack([np.sin(u) * np.cos(v), np.sin(u) * np.sin(v), np.cos(u)], -1) * radius[..., None]
        return ball.reshape(-1, 3).astype(np.float32)

    for directory in ("meshes", "dynamics"):
        (world / directory).mkdir(parents=True)
    (world / "camera.json").write_text("{}")
    (world / "render.mp4").write_bytes(rng.bytes(1 << 20))
    cloth, liquid, room, still = {}, {}, {}, surface(0)
    for frame in range(frames):
        cloth |= {f"vertices_{frame:04d}": surface(frame / 5), f"faces_{frame:04d}": faces}
        count = len(faces) - rng.integers(0, len(faces) // 4)
        shuffled = rng.permutation(faces)[:count]
        liquid |= {f"vertices_{frame:04d}": surface(frame / 3), f"faces_{frame:04d}": shuffled}
        room |= {f"vertices_{frame:04d}": still, f"faces_{frame:04d}": faces}
    for number, arrays in enumerate((cloth, liquid, room), 1):
        write_archive(world / f"meshes/{number}.npz", arrays, compress=False)
    pos = np.stack([surface(frame / 5) for frame in range(frames)])
    write_archive(world / "dynamics/cloth.npz", {"pos": pos, "ids": np.array([1], np.uint16)}, compress=False)
    pack_world(world, packed)
    shutil.rmtree(world)


class _Watch:
    """Samples the resident memory of this process and the workers."""

    def __init__(self, slots: object) -> None:
        import threading

        self._slots = slots
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak = 0.0

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        import os

        while not self._end.wait(0.02):
            pids = [os.getpid(), *self._slots.pids()]  # type: ignore[attr-defined]
            self.peak = max(self.peak, sum(map(_resident, pids)))


def _resident(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/statm").read_text()
    except OSError:
        return 0.0
    return int(text.split()[1]) * resource.getpagesize() / 2**20


if __name__ == "__main__":
    sys.exit(main())
