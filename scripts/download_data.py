"""Download the published cases: videos, masks, reference worlds and, if asked, estimates.

    python scripts/download_data.py [--kind KIND] [--cases A,B] [--videos-only] [--estimates]
    python scripts/download_data.py --offline DIR ...
    python scripts/download_data.py --verify

What is there already is kept; an interrupted download goes on where it ended. Everything is checked by its
SHA-256 before it takes its place, and worlds are unpacked beside theirs. Exit status: 0 everything is there,
1 something is not (one line each), 2 wrong usage or too little space, 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import fcntl
import importlib.util
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from case_tree import REPOSITORY
from dataset_cases import CaseRunner, CaseWork, DiskFull
from dataset_layout import ESTIMATES_REPO, REPO_OF
from dataset_plan import Plan, Planner, Wishes, check_space, work_size
from dataset_progress import DataProgress
from dataset_rebuild import rebuild
from dataset_sources import HubSource, LocalSource, Source
from dataset_verify import verify
from fetching import RefusedError, UnreachableError
from hub_files import commit_of, require_client
from unpack_slots import Slots

from contract.cases import KINDS
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, file_faults, one_line, run_program
from contract.names import CASES, DATA
from contract.record import read_json, write_json
from world.packed.deflate import ENGINE

SCRATCH = ".partial"
"""Directory of the data tree where files lie until they are complete and checked."""
REVISIONS = "revisions.json"
"""File of the data tree: the commit of each repository that was read first, and is read from then on."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    cases, data = options.cases_dir.absolute(), options.data_dir.absolute()
    kinds = (options.kind,) if options.kind else KINDS
    if options.verify:
        with file_faults():
            faults = verify(cases, data, kinds, options.cases, videos_only=options.videos_only)
        again = "run the same command without --verify to mend it"
        return _end([f"{label}: {fault}; {again}" for label, found in faults.items() for fault in found])
    wishes = Wishes(kinds, options.cases, options.videos_only, options.estimates, options.redo)
    with file_faults(), _alone(data) as scratch:
        try:
            source = _source(options, wishes, data)
            plan = Planner(source, cases, data, scratch, print).plan(wishes)
            _require_packages(plan, options.offline is None)
            check_space(plan, cases, data, scratch, downloading=not source.keeps)
            if plan.rebuild:
                rebuild(plan.rebuild, source, scratch, options.allow_script)
        except (RefusedError, UnreachableError) as error:
            return _end([one_line(str(error))])
        faults = _bring(plan, source, scratch, options.jobs)
        faults = [*_faults(plan.works), *faults]
        if not faults:
            shutil.rmtree(scratch, ignore_errors=True)
    _say_counts(plan, wishes)
    return _end(faults)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--kind", choices=KINDS, help="one kind of cases (default: both)")
    add("--cases", metavar="NAMES", action="append", help="some cases: A,B or kind/A; repeatable")
    add("--videos-only", action="store_true", help="neither masks nor worlds")
    add("--estimates", action="store_true", help="also the published estimates of the videos (about 53 GB)")
    add("--offline", metavar="DIR", type=Path, help="read a copy of the data sets below DIR, no network")
    add("--verify", action="store_true", help="check what was downloaded, byte by byte; download nothing")
    add("--redo", action="store_true", help="bring what is there once more (never estimates of your own)")
    add("--update", action="store_true", help="read the newest revision, not the one that was read first")
    add("--jobs", metavar="N", type=_count, help="processes that unpack (default: one per processor)")
    add("--allow-script", metavar="SHA256", help="let the data set's own script rebuild videos it lacks")
    add("--cases-dir", metavar="DIR", type=Path, default=REPOSITORY / CASES, help="tree of the videos")
    add("--data-dir", metavar="DIR", type=Path, default=REPOSITORY / DATA, help="tree of worlds and masks")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("a whole number from 1 is expected")
    return int(text)


def _source(options: argparse.Namespace, wishes: Wishes, data: Path) -> Source:
    if options.offline is not None:
        return LocalSource(options.offline.absolute())
    require_client("data")
    repos = [REPO_OF[kind] for kind in wishes.kinds] + [ESTIMATES_REPO] * wishes.estimates
    return HubSource(_commits(data / REVISIONS, repos, update=options.update), print)


def _commits(path: Path, repos: Sequence[str], *, update: bool) -> dict[str, str]:
    """The commit of each repository: the one that was read before, else where its default branch stands."""
    known: dict[str, str] = {}
    if path.exists():
        try:
            known = {str(repo): str(commit) for repo, commit in read_json(path).items()}
        except (ValueError, AttributeError) as error:
            raise UserError("cannot be read", where=path, next_step="remove it, or give --update") from error
    new = {repo: commit_of(repo, None) for repo in repos if update or repo not in known}
    if new:
        known |= new
        write_json(path, known)
    return known


def _require_packages(plan: Plan, published: bool) -> None:
    if not any(item.form == "world" for work in plan.works for item in work.lacking):
        return
    for name in ("h5py", *(("hdf5plugin",) if published else ())):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"package {name} is not installed", next_step="pip install 'fourdcodebench[data]'"
            )
    if ENGINE != "isal":
        print("package isal is not installed: unpacking takes several times as long")


def _bring(plan: Plan, source: Source, scratch: Path, jobs: int | None) -> list[str]:
    """Work off what is lacking; a line if the disk is full."""
    works = [work for work in plan.works if work.lacking]
    if works:
        size = sum(item.published.size or 0 for work in works for item in work.lacking)
        print(f"{len(works)} case(s) to bring, {size / 1e9:.2f} GB", flush=True)
    with Slots(jobs) as slots, DataProgress(len(works), work_size(works)) as progress:
        try:
            CaseRunner(source, slots, progress, scratch).run(works)
        except DiskFull as error:
            return [f"{error}; free some space and run the same command again to continue"]
    return []


def _faults(works: Sequence[CaseWork]) -> list[str]:
    return [f"{work.place.label}: {fault}" for work in works for fault in work.faults]


def _say_counts(plan: Plan, wishes: Wishes) -> None:
    for kind, names in plan.names.items():
        failed = sum(bool(work.faults) for work in plan.works if work.place.kind == kind)
        of = f"{len(names) - failed} of " if failed else ""
        print(f"{kind}: {of}{len(names)} cases")
        if wishes.estimates:
            print(f"{kind} estimates: {plan.estimated[kind]} cases")


def _end(lines: Sequence[str]) -> int:
    sys.stdout.flush()
    for line in lines:
        sys.stderr.write(f"error: {one_line(line)}\n")
    return EXIT_ITEM_FAILED if lines else EXIT_OK


@contextmanager
def _alone(data: Path) -> Iterator[Path]:
    """The only download into this tree, and its directory for what is not complete."""
    scratch = data / SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("another download into this directory is running", where=data) from None
        try:
            yield scratch
        finally:
            if scratch.exists() and {path.name for path in scratch.iterdir()} <= {".lock"}:
                shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    run_program(main)
