"""Make the demo cases: small seeded simulations with their reference worlds, and a clip with a mask.

    python scripts/make_demo_case.py [--only NAME …] [--force]

Cases that are there are left alone unless --force is given; the same command always makes the same arrays.
Several cases are made at once where there are several processors.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from case_tree import CasePlace, add_tree_arguments, no_empty_levels, shown, staged
from demo_cases import side_by_side

from contract.cases import REAL, SYNTHETIC
from contract.errors import EXIT_INTERRUPTED, EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line, run_program
from contract.names import DYNAMIC_MASK_KEY, RENDER

DEMOS = {
    "demo_rigid": SYNTHETIC,
    "demo_cloth": SYNTHETIC,
    "demo_grains": SYNTHETIC,
    "demo_jelly": SYNTHETIC,
    "demo_clip": REAL,
}
Say = Callable[[str], None]


class InvalidCase(Exception):
    """A case came out otherwise than the benchmark wants it; the fault is ours, not the user's."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    begun = time.monotonic()
    places = [place_of(name, options.cases, options.data) for name in dict.fromkeys(options.only)]
    todo = [place for place in places if options.force or not complete(place)]
    for place in places:
        if place not in todo:
            print(f"{place.label}: there already (--force makes it again)", flush=True)
    todo.sort(key=lambda place: place.kind != REAL)  # the longest first
    slots = min(len(todo), options.processes or side_by_side.processors())
    statuses = _by_children(todo, options, slots) if slots > 1 else [_one(place) for place in todo]
    failed = sum(status != EXIT_OK for status in statuses)
    if options.part:
        return max(statuses, default=EXIT_OK)
    count = f"{len(places) - failed} case{'s' if len(places) - failed != 1 else ''}"
    where = f"{shown(options.cases)} and {shown(options.data)}"
    print(f"{count} in {where} after {time.monotonic() - begun:.1f} s")
    return max(statuses, default=EXIT_OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0], allow_abbrev=False)
    add = parser.add_argument
    add_tree_arguments(parser)
    add("--only", nargs="+", metavar="NAME", default=list(DEMOS), help=f"some of: {', '.join(DEMOS)}")
    add("--force", action="store_true", help="make a case again that is there already")
    add(
        "--processes",
        type=int,
        choices=range(1, len(DEMOS) + 1),
        metavar="N",
        help="cases made at once (default: one per processor)",
    )
    add("--part", action="store_true", help=argparse.SUPPRESS)  # a child of this program: no summary
    return parser


def _one(place: CasePlace) -> int:
    """Make one case in this process; the status."""
    try:
        make(place, lambda text: print(f"{place.label}: {text}", flush=True))
    except InvalidCase as error:
        sys.stdout.flush()
        sys.stderr.write(f"error: {one_line(f'{place.label}: {error}')}. Nothing was changed\n")
        return EXIT_ITEM_FAILED
    return EXIT_OK


def _by_children(todo: Sequence[CasePlace], options: argparse.Namespace, slots: int) -> list[int]:
    """Make each case in a process of its own, ``slots`` at a time; the statuses."""
    trees = ["--cases", str(options.cases), "--data", str(options.data)]
    force = ["--force"] if options.force else []
    commands = [[sys.executable, __file__, *trees, *force, "--part", "--only", place.label] for place in todo]
    # Each child tidies up after itself, but not levels that another one made.
    with no_empty_levels(*(parent for place in todo for parent in (place.case_dir, place.data_dir))):
        statuses = side_by_side.Crew(slots).run(commands, [f"{place.label}: " for place in todo])
    if EXIT_INTERRUPTED in statuses:
        raise KeyboardInterrupt
    # One that was killed has a negative status.
    return [status if status >= 0 else EXIT_ITEM_FAILED for status in statuses]


def place_of(name: str, cases: Path, data: Path) -> CasePlace:
    """Place of a demo case given as ``demo_x`` or ``<kind>/demo_x``."""
    short = name.split("/")[-1]
    if short not in DEMOS or name not in (short, f"{DEMOS[short]}/{short}"):
        raise UserError(
            f"no demo case is called {name!r}", where="--only", expected=f"one of {', '.join(DEMOS)}"
        )
    return CasePlace(cases, data, DEMOS[short], short)


def complete(place: CasePlace) -> bool:
    """Whether the case lies there as a whole."""
    return place.video.is_file() and (
        place.world.is_dir() if place.kind == SYNTHETIC else place.mask.is_file()
    )


def make(place: CasePlace, say: Say) -> None:
    """Simulate, render, check and put one case in its place."""
    try:
        import numba  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"the package {error.name} is missing",
            next_step="pip install -e '.[score]', then this command again",
        ) from error
    with staged(place) as draft:
        (make_clip if place.kind == REAL else make_world)(draft, say)
    say(f"wrote {shown(place.video)} and {shown(place.data_dir)}")


def make_world(draft: CasePlace, say: Say) -> None:
    """A synthetic case: reference world and the video rendered from it."""
    from importlib import import_module

    from demo_cases import shading
    from demo_cases.scene import Scene

    from world.validation import check_world
    from world.writer import WorldWriter

    begun = time.monotonic()
    scene: Scene = import_module(f"demo_cases.{draft.name.removeprefix('demo_')}").build()
    say(f"simulated {scene.frames} frames, {len(scene.bodies)} bodies in {time.monotonic() - begun:.1f} s")
    camera, begun = scene.camera, time.monotonic()
    with WorldWriter(
        draft.world,
        frames=scene.frames,
        height=camera.height,
        width=camera.width,
        fps=scene.fps,
        intrinsics=camera.intrinsics,
        extrinsic=camera.extrinsic,
    ) as out:
        for body in scene.bodies:
            out.mesh(body.id, body.vertices, body.faces)
        for material in scene.materials:
            out.dynamics(material.name, material.pos, material.ids, faces=material.faces, tets=material.tets)
        out.render(shading.images(scene))
    shutil.copyfile(draft.world / RENDER, draft.video)
    say(f"rendered and written in {time.monotonic() - begun:.1f} s")
    begun = time.monotonic()
    for scorer in (False, True):
        faults = check_world(draft.world, scorer=scorer, video=draft.video)
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise InvalidCase(f"the world that was made is not valid: {faults[0]}{more}")
    say(f"checked in {time.monotonic() - begun:.1f} s")


def make_clip(draft: CasePlace, say: Say) -> None:
    """The real case: a noisy clip without a world, and its hand-made mask."""
    from demo_cases import real

    from world.npz import write_archive
    from world.video import write_video

    begun = time.monotonic()
    scene, mask = real.build()
    say(f"simulated {scene.frames} frames and drew the mask in {time.monotonic() - begun:.1f} s")
    begun = time.monotonic()
    write_video(draft.video, real.images(scene), scene.fps, crf=20)
    draft.mask.parent.mkdir(parents=True)
    write_archive(draft.mask, {DYNAMIC_MASK_KEY: mask})
    say(f"rendered and written in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    run_program(lambda: main(sys.argv[1:]))
