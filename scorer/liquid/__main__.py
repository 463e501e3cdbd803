"""``python -m scorer.liquid WORLD``: extract the tracers of a world's liquid ahead of scoring."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from contract.errors import EXIT_OK, UserError, run_program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scorer.liquid", description=__doc__)
    parser.add_argument("world", type=Path, help="world directory with a solver/")
    parser.add_argument("--out", type=Path, help="copy the archive to this file as well")
    parser.add_argument("--scratch", type=Path, help="directory for scratch files (default: $TMPDIR)")
    options = parser.parse_args()
    if options.scratch is not None:
        tempfile.tempdir = str(options.scratch)
    # After the usage is checked: numba and scipy take their time to load.
    from contract.record import replacing
    from scorer.liquid.tracers import extract
    from world.materials import Material
    from world.reader import World

    try:
        with World(options.world) as world:
            path = extract(world)
        if options.out is not None:
            with path.open("rb") as source, replacing(options.out) as target:
                shutil.copyfileobj(source, target)
        found = Material(path)
    except (ValueError, OSError, RuntimeError) as error:
        raise UserError(str(error)) from error
    print(json.dumps({"frames": found.frames, "columns": found.columns}))
    return EXIT_OK


if __name__ == "__main__":
    run_program(main)
