"""``python -m harness.baseline --video VIDEO --workspace DIRECTORY``: reconstruct a video without any
learning.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import sys
import time
from pathlib import Path

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, run_program
from harness.baseline.background import Background, learn
from harness.baseline.deliver import build, write_solution
from harness.baseline.lift import lift
from harness.baseline.observe import Footage, open_footage
from harness.baseline.outlines import sightings
from harness.baseline.tracks import Track, Tracker


def main() -> int:
    """Run the agent; returns the exit status."""
    options = _options()
    started = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - started:6.1f} s] {text}\n")
        sys.stderr.flush()

    footage = open_footage(options.video)
    _make(options.workspace)
    say(f"{options.video}: {footage.frames} frames of {footage.width}×{footage.height}, {footage.fps} fps")
    background = learn(footage)
    say("learnt the background")
    tracks = follow(footage, background)
    say(f"followed {len(tracks)} moving thing{'' if len(tracks) == 1 else 's'}")
    script = write_solution(lift(footage, background.plate, tracks), options.workspace)
    say(f"wrote {script.parent}; building the world with it")
    status = build(script)
    if status != 0:
        say(f"{script} ended with status {status}; there is no world")
        return EXIT_ITEM_FAILED
    say(f"wrote {options.workspace / 'world'}")
    return EXIT_OK


def follow(footage: Footage, background: Background) -> list[Track]:
    """Tracks of everything that moves in ``footage`` (one pass over the file)."""
    tracker = Tracker(footage.working_shape)
    for frame, picture in enumerate(footage.pictures()):
        tracker.update(frame, sightings(picture, background, tracker.seeds(frame)))
    return tracker.tracks(footage.frames)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.baseline", description=__doc__)
    parser.add_argument("--video", type=Path, required=True, help="the video to reconstruct")
    parser.add_argument(
        "--workspace", type=Path, required=True, help="where world/ and solution/ are written"
    )
    parser.add_argument("--model", default="", help="ignored; every agent is given one")
    parser.add_argument("--effort", default="", help="ignored; every agent is given one")
    return parser.parse_args()


def _make(workspace: Path) -> None:
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot be used as a workspace ({error.strerror})", where=workspace) from error


if __name__ == "__main__":
    run_program(main)
