"""Make a case from a video file.

    python scripts/add_case.py VIDEO [--kind real] [--name N] [--mask M.npz]
    python scripts/add_case.py VIDEO --kind synthetic --world DIR [--name N]

The video is decoded as a player shows it (rotation, edit lists, pixel aspect) and encoded again as the
benchmark wants it: H.264, 4:2:0, even sides, an integer frame rate. Nothing on disk changes unless all of it
worked.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from case_tree import CasePlace, add_tree_arguments, shown, staged
from source_clip import Plan, Source, images, inspect, plan

from contract.cases import KINDS, REAL, SYNTHETIC
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, one_line, run_program
from contract.names import DYNAMIC_MASK_KEY
from world.npz import Archive, ArchiveError
from world.video import probe, write_video

_APOSTROPHES = "'\u2018\u2019\u02bc"
MASK_BLOCK = 64 << 20
"""Bytes of a mask that are looked at together."""


class InvalidCase(Exception):
    """The case came out otherwise than planned; the fault is ours or the encoder's, not the user's."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    name = name_of(options.video) if options.name is None else options.name
    place = CasePlace(options.cases, options.data, options.kind, name)
    _check_options(options, place)
    source = inspect(options.video)
    made = plan(source, max_side=options.max_side, fps=options.fps, start=options.start, count=options.frames)
    mask = options.mask
    if mask is None and options.kind == REAL and place.mask.is_file():
        mask = place.mask  # a mask is days of somebody's work: --force does not throw it away
    if mask is not None:
        _check_fitting_mask(mask, made, kept=mask == place.mask)
    try:
        with staged(place) as draft:
            _encode(source, made, draft)
            if mask is not None:
                draft.mask.parent.mkdir(parents=True)
                shutil.copyfile(mask, draft.mask)
            if options.world is not None:
                _take_world(options.world, draft)
    except InvalidCase as error:
        sys.stderr.write(f"error: {one_line(f'{place.label}: {error}')}. Nothing was changed\n")
        return EXIT_ITEM_FAILED
    _report(source, made, place, kept=mask == place.mask)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("video", metavar="VIDEO", type=Path, help="any video file that FFmpeg can decode")
    add("--kind", choices=KINDS, default=REAL, help="real (default), or synthetic with its reference world")
    add("--name", help="name of the case (default: from the file's name)")
    add(
        "--mask",
        type=Path,
        metavar="M.npz",
        help="member 'mask', uint8 (F,H,W) of the result: 1 where things move",
    )
    add(
        "--world",
        type=Path,
        metavar="DIR",
        help="reference world of a synthetic case; it is checked and copied",
    )
    add(
        "--max-side",
        type=_whole(16),
        default=1280,
        metavar="N",
        help="longest side in pixels (default: 1280)",
    )
    add("--fps", type=_whole(1), metavar="N", help="frame rate (default: the nearest integer of the video's)")
    add("--start", type=_seconds, default=0.0, metavar="S", help="leave out the first S seconds")
    add("--frames", type=_whole(1), metavar="N", help="keep N frames of the result (default: all)")
    add_tree_arguments(parser)
    add("--force", action="store_true", help="replace a case of this name; its mask stays if it still fits")
    return parser


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return read


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def name_of(video: Path) -> str:
    """A case name from a file name: accents and apostrophes go, what a name may not hold becomes ``_``."""
    plain = unicodedata.normalize("NFKD", video.stem)
    plain = "".join(c for c in plain if not unicodedata.combining(c) and c not in _APOSTROPHES)
    name = re.sub(r"[^A-Za-z0-9._+-]+", "_", plain).lstrip(".+-").rstrip(".")
    if not name.strip("_"):
        raise UserError(
            "no case name can be made of this file's name", where=video, next_step="give --name N"
        )
    return name


def _check_options(options: argparse.Namespace, place: CasePlace) -> None:
    """What can be refused before anything is decoded."""
    if options.kind == SYNTHETIC and options.world is None:
        raise UserError("a synthetic case needs its reference world", next_step="add --world DIR")
    if options.kind == REAL and options.world is not None:
        raise UserError("a real case has no reference world", next_step="leave out --world")
    if options.kind == SYNTHETIC and options.mask is not None:
        raise UserError("a synthetic case takes its mask from its world", next_step="leave out --mask")
    if options.mask is not None and not options.mask.is_file():
        raise UserError("no such file", where=options.mask)
    if options.world is not None and not options.world.is_dir():
        raise UserError("no such directory", where=options.world)
    if place.taken and not options.force:
        raise UserError(
            f"the case {place.label} is there already",
            next_step="choose another --name, or add --force",
        )


def _check_fitting_mask(mask: Path, made: Plan, *, kept: bool) -> None:
    try:
        check_mask(mask, made.shape)
    except UserError as error:
        if not kept:
            raise
        raise UserError(
            f"the case's own mask does not fit the new video ({error.what})",
            where=mask,
            expected=error.expected,
            next_step="add --mask M.npz, or move the old mask away",
        ) from error


def check_mask(path: Path, shape: tuple[int, int, int]) -> None:
    """Refuse a mask that is not uint8 of ``shape`` with values 0 and 1, some of them 1."""
    wanted = f"member {DYNAMIC_MASK_KEY!r}, uint8 {shape} as (frames, height, width), 0 and 1"
    try:
        with Archive.open(path) as archive:
            if DYNAMIC_MASK_KEY not in archive:
                raise UserError(f"holds {', '.join(archive.names) or 'nothing'}", where=path, expected=wanted)
            header = archive.header(DYNAMIC_MASK_KEY)
            if header.dtype.str != "|u1" or header.shape != shape:
                raise UserError(f"mask is {header.dtype} {header.shape}", where=path, expected=wanted)
            marked, step = False, max(1, MASK_BLOCK // (shape[1] * shape[2]))
            for first in range(0, shape[0], step):
                block = archive.rows(DYNAMIC_MASK_KEY, first, min(shape[0], first + step))
                if block.max() > 1:
                    raise UserError(f"mask holds the value {block.max()}", where=path, expected=wanted)
                marked |= bool(block.any())
    except ArchiveError as error:
        raise UserError(str(error), where=path, expected=wanted) from error
    if not marked:
        raise UserError("mask is 0 everywhere", where=path, expected="1 where something moves")


def _encode(source: Source, made: Plan, draft: CasePlace) -> None:
    write_video(draft.video, images(source, made), made.fps)
    written = probe(draft.video)
    if written.shape != made.shape or written.fps != Fraction(made.fps):
        raise InvalidCase(f"encoded {written.shape} at {written.fps} fps, not {made.shape} at {made.fps}")


def _take_world(world: Path, draft: CasePlace) -> None:
    """Copy a reference world that passes every check against the new video."""
    from world.validation import check_world

    faults = check_world(world, scorer=True, video=draft.video)
    if faults:
        more = f" (and {len(faults) - 1} more; python -m checker lists them)" if len(faults) > 1 else ""
        raise UserError(f"is not a valid world of this video: {faults[0]}{more}", where=world)
    shutil.copytree(world, draft.world, symlinks=True)


def _report(source: Source, made: Plan, place: CasePlace, *, kept: bool) -> None:
    info = source.info
    rate = f"{float(info.fps):.6g} fps" if not info.variable else "no steady rate"
    print(f"{source.path}: {info.frames} frames, {info.width}×{info.height}, {rate}, {info.codec}")
    for note in made.notes:
        print(f"  {note}")
    frames, height, width = made.shape
    print(f"wrote {shown(place.video)}: {frames} frames, {width}×{height}, {made.fps} fps")
    if frames == 1:
        print("warning: one frame cannot show any motion", file=sys.stderr)
    if place.kind == SYNTHETIC:
        print(f"wrote {shown(place.world)}")
    elif place.mask.is_file():
        print(f"{'kept' if kept else 'wrote'} {shown(place.mask)}")
    else:
        print(f"no mask, so dynamic_iou cannot be computed; --force --mask takes uint8 {made.shape}")
    print(f'Next: a [[job]] with case = "{place.label}" in .local/jobs.toml, then')
    print("  python harness/runtime/infer.py --jobs .local/jobs.toml --runtime .local/runtime.toml")


if __name__ == "__main__":
    run_program(lambda: main(sys.argv[1:]))
