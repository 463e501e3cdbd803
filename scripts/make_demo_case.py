"""Make the demo cases: small seeded simulations with their reference worlds, and a clip with a mask.

    python scripts/make_demo_case.py [--only NAME …] [--force]

Cases that are there are left alone unless --force is given; the same command always makes the same arrays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from case_tree import CasePlace, staged

from contract.cases import REAL, SYNTHETIC
from contract.errors import EXIT_OK, UserError, run_program
from contract.names import CASES, DATA, DYNAMIC_MASK_KEY, RENDER

DEMOS = {
    "demo_rigid": SYNTHETIC,
    "demo_cloth": SYNTHETIC,
    "demo_grains": SYNTHETIC,
    "demo_jelly": SYNTHETIC,
    "demo_clip": REAL,
}
Say = Callable[[str], None]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", type=Path, default=Path(CASES), help="tree of the videos (default: cases)")
    parser.add_argument(
        "--data", type=Path, default=Path(DATA), help="tree of worlds and masks (default: data)"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=list(DEMOS), help=f"some of: {', '.join(DEMOS)}"
    )
    parser.add_argument("--force", action="store_true", help="make a case again that is there already")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    places = [place_of(name, options.cases, options.data) for name in dict.fromkeys(options.only)]
    for place in places:
        if complete(place) and not options.force:
            print(f"{place.label}: there already (--force makes it again)", flush=True)
            continue
        print(f"{place.label}:", flush=True)
        make(place, lambda text: print(f"  {text}", flush=True))
    count = f"{len(places)} case{'s' if len(places) != 1 else ''}"
    print(f"{count} in {options.cases} and {options.data} after {time.monotonic() - begun:.1f} s")
    return EXIT_OK


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
    say(f"wrote {place.video} and {place.data_dir}")


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
            raise RuntimeError(f"{draft.label} is not valid: " + "; ".join(map(str, faults)))
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
