"""Place published renders where the scorer looks for runs.

    python scripts/place_renders.py SOURCE [--runs DIR] [--copy] [--dry-run]

SOURCE is a copy of the data set 4DCodeBench/Results: <system>/<kind>/<case>.mp4. Each render becomes
<runs>/<kind>/<case>/<system>/1/workspace/world/render.mp4, a hard link where the file system allows it. The
copy stays as it is, and the run.json beside a render says that it was placed, not made here. Exit status: 0
all are there, 1 some are not (one line each), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from case_tree import REPOSITORY, no_empty_levels, shown, workshop
from dataset_layout import RESULTS_REPO

from contract.cases import KINDS, valid_segment
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, file_faults, one_line, run_program
from contract.names import LONGEST_LEVEL, RENDER, RUN_RECORD, RUNS, WORKSPACE, WORLD
from contract.record import read_json, sync_directory
from harness.runtime.mp4boxes import check_video
from harness.runtime.runrecord import DONE, RunRecord
from world.packed.unpack import file_digest

ORIGIN = "origin"
"""Member of ``run.json`` that no run of our own has."""
PLACED = "placed_render"
_TRIAL = "1"


@dataclass(frozen=True)
class Render:
    """A published render and the run directory that it goes to."""

    source: Path
    name: str
    run: Path

    @property
    def target(self) -> Path:
        return self.run / WORKSPACE / WORLD / RENDER


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    source, runs = options.source.absolute(), options.runs.absolute()
    if not source.is_dir():
        raise UserError("no such directory", where=options.source, expected=f"a copy of {RESULTS_REPO}")
    renders = list(_renders(source, runs))
    if not renders:
        raise UserError("holds no render", where=options.source, expected="<system>/<kind>/<case>.mp4")
    counts: Counter[str] = Counter()
    for render in renders:
        try:
            counts[_place(render, copy=options.copy, dry=options.dry_run)] += 1
        except (UserError, OSError) as error:
            counts["failed"] += 1
            text = error.line() if isinstance(error, UserError) else f"{error.filename}: {error.strerror}"
            sys.stderr.write(f"error: {one_line(text)}\n")
    verb = "would be placed" if options.dry_run else "placed"
    failed = f", {counts['failed']} not placed" if counts["failed"] else ""
    print(f"{counts['placed']} renders {verb} under {shown(runs)}, {counts['there']} already there{failed}")
    return EXIT_ITEM_FAILED if failed else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", type=Path, help=f"copy of the data set {RESULTS_REPO}")
    add("--runs", metavar="DIR", type=Path, default=REPOSITORY / RUNS, help="tree of the runs")
    add("--copy", action="store_true", help="copy, also where a hard link would do")
    add("--dry-run", action="store_true", help="only say what would be done")
    return parser


def _renders(source: Path, runs: Path) -> Iterator[Render]:
    with file_faults():
        for path in sorted(source.glob("*/*/*.mp4")):
            system, kind, name = path.relative_to(source).parts
            if kind in KINDS and not system.startswith("."):
                yield Render(path, f"{system}/{kind}/{name}", runs / kind / path.stem / system / _TRIAL)


def _place(render: Render, *, copy: bool, dry: bool) -> str:
    """``placed`` or ``there``. Raises ``UserError``, ``OSError``; then nothing has changed."""
    if os.path.lexists(render.target):
        return "there"
    for level in (render.source.stem, render.run.parent.name):
        if not valid_segment(level) or len(level) > LONGEST_LEVEL:
            raise UserError(f"{level!r} cannot be a directory of the runs", where=render.source)
    if os.path.lexists(render.run) and not _ours(render.run):
        raise UserError(
            f"{render.name} is not placed: a run that was not placed stands there", where=shown(render.run)
        )
    try:
        check_video(render.source)
    except UserError as error:
        fault = error.what.partition(": ")[2] or error.what
        raise UserError(fault, where=render.source, next_step="download it again") from error
    if dry:
        print(f"{shown(render.source)} -> {shown(render.target)}")
        return "placed"
    with no_empty_levels(render.run.parent), workshop(render.run.parent) as directory:
        draft = directory / _TRIAL
        (draft / WORKSPACE / WORLD).mkdir(parents=True)
        linked = _bring(render.source, draft / WORKSPACE / WORLD / RENDER, copy)
        _write_record(draft, render, linked)
        if render.run.exists():
            shutil.rmtree(render.run)  # one of ours that lost its render
        draft.rename(render.run)
        sync_directory(render.run.parent)
    return "placed"


def _ours(run: Path) -> bool:
    """Whether only this program has made the directory, or nobody has put anything into it."""
    if not any(run.iterdir()):
        return True
    try:
        record = read_json(run / RUN_RECORD)
        return bool(record[ORIGIN]["kind"] == PLACED)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _bring(source: Path, target: Path, copy: bool) -> bool:
    """Put the file there; whether it is a link."""
    if not copy:
        try:
            os.link(source.resolve(), target)
            return True
        except OSError:
            pass  # another file system, or one without links
    shutil.copyfile(source, target)
    with target.open("rb") as stream:
        os.fsync(stream.fileno())
    return False


def _write_record(run: Path, render: Render, linked: bool) -> None:
    origin = {
        "kind": PLACED,
        "dataset": RESULTS_REPO,
        "file": render.name,
        "sha256": file_digest(run / WORKSPACE / WORLD / RENDER),
        "linked": linked,
    }
    record = RunRecord(run, {"delivered": False, ORIGIN: origin})
    record.enter(DONE)


if __name__ == "__main__":
    run_program(main)
