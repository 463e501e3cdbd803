"""Proves inside a freshly built image that it does its work: ``image_selftest.py agent|scorer``.

The scorer's proof scores two tiny worlds, which also compiles its kernels into the image's cache, so that a
container does not spend minutes on it, and puts a question to ``scorer-vdb``. Run by the last layers of the
build files, and against finished images by the tests.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from contract.errors import EXIT_OK, run_program
from contract.names import (
    ANNOTATION,
    BUILD_SCRIPT,
    DYNAMIC_MASK,
    DYNAMIC_MASK_KEY,
    REFERENCE_VIDEO,
    RESULTS,
    REWARD,
    SOLUTION,
    WORKSPACE,
    WORLD,
)
from world.video import write_video
from world.writer import WorldWriter

FRAMES, HEIGHT, WIDTH, FPS = 24, 64, 96, 24
CORNERS = np.array([[-1, -1, -1], [1, -1, -1], [0, 1, -1], [0, 0, 1]], np.float32) * 0.4
FACES = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]], np.int32)


def pictures() -> Iterator[np.ndarray]:
    """A bright square that crosses a still, grey picture."""
    for index in range(FRAMES):
        image = np.full((HEIGHT, WIDTH, 3), 70, np.uint8)
        image[24:40, 8 + 2 * index : 24 + 2 * index] = (230, 60, 40)
        yield image


def write_world(path: Path) -> None:
    """A body that moves in front of one that does not."""
    intrinsics = np.array([[80.0, 0, WIDTH / 2], [0, 80, HEIGHT / 2], [0, 0, 1]])
    moving = [CORNERS + np.float32([0.05 * index - 0.5, 0, 4]) for index in range(FRAMES)]
    still = [CORNERS * 3 + np.float32([0, 0, 8])] * FRAMES
    with WorldWriter(
        path, frames=FRAMES, height=HEIGHT, width=WIDTH, fps=FPS, intrinsics=intrinsics, extrinsic=np.eye(4)
    ) as out:
        out.mesh(1, still, [FACES] * FRAMES)
        out.mesh(2, moving, [FACES] * FRAMES)
        out.dynamics("body", np.stack(moving), np.full(len(CORNERS), 2), faces=FACES)
        out.render(pictures())


def python(*words: str) -> None:
    """Run a module with this interpreter; its output is shown when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stdout}")


def prove_agent(root: Path) -> None:
    """The baseline agent reconstructs a video and the checker accepts what it made."""
    video = root / REFERENCE_VIDEO
    write_video(video, pictures(), FPS)
    where = ("--workspace", str(root / WORKSPACE))
    python("harness.baseline", "--video", str(video), *where)
    python("checker", *where, "--video", str(video))


def prove_scorer(root: Path) -> None:
    """A world scores 1 against itself, and some number against a mask."""
    manifest = []
    for case in ("synthetic/proof", "real/proof"):
        data, run = root / "data" / case, root / "runs" / case / "a-m-e" / "1"
        (root / "cases" / case).mkdir(parents=True)
        write_video(root / "cases" / case / REFERENCE_VIDEO, pictures(), FPS)
        if case.startswith("real"):
            (data / ANNOTATION).mkdir(parents=True)
            mask = np.zeros((FRAMES, HEIGHT, WIDTH), np.uint8)
            mask[:, 24:40, 8:72] = 1
            np.savez_compressed(data / ANNOTATION / DYNAMIC_MASK, **{DYNAMIC_MASK_KEY: mask})
        else:
            data.mkdir(parents=True)
            write_world(data / WORLD)
        (run / WORKSPACE / SOLUTION).mkdir(parents=True)
        (run / WORKSPACE / SOLUTION / BUILD_SCRIPT).write_text("#!/bin/sh\n", encoding="ascii")
        write_world(run / WORKSPACE / WORLD)
        out = f"runs/{case}/a-m-e/1"
        manifest.append({"case": case, "world": f"{out}/{WORKSPACE}/{WORLD}", "out": out})
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="ascii")
    trees = [word for tree in ("cases", "data", "runs") for word in (f"--{tree}", str(root / tree))]
    python("scorer", "--manifest", str(root / "manifest.json"), "--allow-missing-models", *trees)
    for entry in manifest:
        reward = json.loads((root / entry["out"] / RESULTS / REWARD).read_text(encoding="utf-8"))
        print(entry["case"], reward)
        if not reward["dynamic_iou"] > 0 or (
            entry["case"].startswith("synthetic") and reward["dynamic_iou"] != 1
        ):
            raise SystemExit(f"{entry['case']}: unexpected scores: {reward}")


def prove_openvdb() -> None:
    """The distance to a tetrahedron's surface is negative at its centre and positive outside."""
    from scorer.liquid.helper import Helper

    distance = np.empty((16, 16, 16), np.float32)
    with Helper((16, 16, 16)) as helper:
        helper.ask_surface(CORNERS * 15 + 8, FACES)
        helper.answer(distance, "tetrahedron")
    print("scorer-vdb", distance[8, 8, 8], distance[0, 0, 0])
    if not distance[8, 8, 8] < 0 < distance[0, 0, 0]:
        raise SystemExit("scorer-vdb takes inside for outside")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        {"agent": prove_agent, "scorer": prove_scorer}[sys.argv[1]](Path(folder))
    if sys.argv[1] == "scorer":
        prove_openvdb()
    return EXIT_OK


if __name__ == "__main__":
    run_program(main)
