"""``python -m checker.preview``: the render and the exported geometry side by side."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import sys
from pathlib import Path

import numpy as np

from checker.png import write_png
from checker.preview_draw import draw
from checker.preview_fit import describe, outlines
from checker.preview_scene import load_scene
from checker.program import existing_workspace, parser, run
from contract.constants import MAX_MESH_FRAMES
from contract.errors import EXIT_OK, UserError
from contract.names import WORLD

DESCRIPTION = """Draw one frame: the render on the left, the exported meshes on the right, one colour per id.
Writes a PNG and prints nothing to standard output; what it measures goes to standard error."""
_OUTLINE = (255, 0, 255)


def main(arguments: list[str] | None = None) -> int:
    """Draw and write; returns the exit status."""
    options = parser("checker.preview", DESCRIPTION)
    options.add_argument("--frame", type=_frame, default=0, metavar="N", help="frame to draw (default: 0)")
    options.add_argument(
        "--output", type=Path, metavar="FILE", help="PNG to write (default: DIR/tmp/preview_NNNN.png)"
    )
    options.add_argument("--outlines", action="store_true", help="draw the meshes' outlines over the render")
    given = options.parse_args(arguments)
    workspace = existing_workspace(given.workspace)
    output = given.output or workspace / "tmp" / f"preview_{given.frame:04d}.png"
    preview(workspace / WORLD, given.frame, output, over=given.outlines)
    return EXIT_OK


def preview(world: Path, frame: int, output: Path, *, over: bool = False) -> None:
    """Write the picture, height H and width 2W, to ``output``. ``UserError`` when it cannot be drawn."""
    scene = load_scene(world, frame)
    drawing = draw(scene)
    left = scene.image.copy()
    if over:
        left[outlines(drawing.ids)] = _OUTLINE
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_png(output, np.concatenate([left, drawing.image], axis=1))
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror or error})", where=output) from error
    sys.stderr.write("".join(f"{line}\n" for line in describe(drawing.ids, scene.image)))


def _frame(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) >= MAX_MESH_FRAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is no frame number from 0 to {MAX_MESH_FRAMES - 1}")
    return int(text)


if __name__ == "__main__":
    run(main, "checker.preview")
