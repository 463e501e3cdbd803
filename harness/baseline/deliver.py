"""Handing in: write ``solution/`` and let it build ``world/``, so that what is delivered is what can be
rebuilt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import world
from contract.names import BUILD_SCRIPT, SOLUTION
from harness.baseline import solution_program
from harness.baseline.lift import STEPS_PER_PIXEL, Scene, Thing

PACKAGE = "scene"
MODULES = ("__init__.py", "__main__.py", "camera.py", "drawing.py", "shapes.py", "things.py")

BUILD = """#!/bin/sh
# Recreates ../world from the numbers in scene/measured.py. Needs a Python with numpy and the package "world";
# set PYTHON to choose one.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for python in "${PYTHON:-}" python3 python; do
    [ -n "$python" ] || continue
    # -B: compiled files would not belong in a solution.
    if command -v "$python" >/dev/null 2>&1 && "$python" -B -c 'import numpy, world.writer' >/dev/null 2>&1;
    then cd -- "$here"
        exec "$python" -B -m scene "$(dirname -- "$here")/world"
    fi
done
echo "build.sh: found no Python that has numpy and the package world; set PYTHON to one that has" >&2
exit 1
"""


def write_solution(scene: Scene, workspace: Path) -> Path:
    """Write ``workspace/solution`` (what was there is replaced) and return the path of its build script."""
    destination = workspace / SOLUTION
    staging = Path(tempfile.mkdtemp(prefix=".solution.", dir=workspace))
    try:
        package = staging / PACKAGE
        package.mkdir()
        source = Path(solution_program.__file__).parent
        for module in MODULES:
            shutil.copyfile(source / module, package / module)
        (package / "measured.py").write_text(measured_module(scene), encoding="utf-8")
        script = staging / BUILD_SCRIPT
        script.write_text(BUILD, encoding="utf-8")
        script.chmod(0o755)
        staging.chmod(0o755)
        if destination.is_symlink() or destination.is_file():
            destination.unlink()
        elif destination.exists():
            shutil.rmtree(destination)
        staging.replace(destination)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return destination / BUILD_SCRIPT


def build(script: Path) -> int:
    """Run the build script with this interpreter; returns its exit status, its messages go where ours go."""
    home = str(Path(world.__file__).resolve().parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([str(script)], env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def measured_module(scene: Scene) -> str:
    """Text of ``measured.py``."""
    footage = scene.footage
    head = [
        '"""Numbers measured in the video: sizes, mean colours, outlines of what moves; not one pixel."""',
        "",
        f"FRAMES, HEIGHT, WIDTH = {footage.frames}, {footage.height}, {footage.width}",
        f"FPS = ({footage.fps.numerator}, {footage.fps.denominator})",
        f"WALL_COLOUR = {scene.wall}",
        f"GROUND_COLOUR = {scene.ground}",
        f"STEPS_PER_PIXEL = {STEPS_PER_PIXEL}",
        "# outline: a line a frame, in steps: column and row of the centre, then radii at equal angles,",
        "# clockwise from the right.",
        "THINGS = (",
    ]
    return "\n".join([*head, *(_entry(thing) for thing in scene.things), ")"]) + "\n"


def _entry(thing: Thing) -> str:
    rows = "\n".join(" ".join(map(str, row)) for row in thing.outline)
    return (
        f'    {{"id": {thing.id}, "first": {thing.first}, "colour": {thing.colour}, '
        f'"depth": {thing.depth}, "half": {thing.half}, "outline": """\n{rows}\n"""}},'
    )
