"""Download the learned models that scores rest on.

    python scripts/download_checkpoints.py [DIR] [--only NAMES]
    python scripts/download_checkpoints.py [DIR] --verify

Revisions are pinned and every weight file is checked against its SHA-256 before it takes its place. What is
there already is kept; an interrupted download goes on where it ended. Exit status: 0 everything is there, 1
something is not, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from checkpoint_progress import Progress
from checkpoint_sources import content_fault, locate, require_hub_client
from fetching import RefusedError, UnreachableError, fetch

from contract.checkpoint_store import content_hash, faults, file_hash
from contract.checkpoints import CHECKPOINTS, HUB, Checkpoint, CheckpointFile
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, file_faults, one_line, run_program

STORE = Path(__file__).resolve().parents[1] / "checkpoints"
PARTIAL = ".partial"
"""Directory of the store where files lie until they are complete and checked."""
SPARE = 64 << 20
"""Bytes that stay free on the disk."""


@dataclass(frozen=True)
class Wanted:
    """A file that the store lacks. size : bytes, None when the server did not tell."""

    checkpoint: Checkpoint
    file: CheckpointFile
    path: Path
    part: Path
    size: int | None = None


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    store = options.directory.absolute()
    names = _names(options.only)
    if options.verify:
        failed = _verify(store, names)
    else:
        with file_faults(), _alone(store):
            failed = _download(store, names)
    for line in failed.values():
        sys.stderr.write(f"error: {line}\n")
    if failed:
        return EXIT_ITEM_FAILED
    print(f"checkpoints ready in {options.directory}")
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "directory",
        metavar="DIR",
        type=Path,
        nargs="?",
        default=STORE,
        help="model store (default: checkpoints)",
    )
    add("--only", metavar="NAMES", action="append", help=f"of {', '.join(CHECKPOINTS)}; comma-separated")
    add("--verify", action="store_true", help="check what is there; download nothing")
    return parser


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return tuple(CHECKPOINTS)
    asked = [name for item in given for name in item.split(",") if name]
    for name in asked:
        if name not in CHECKPOINTS:
            raise UserError(f"--only {name}: no such model", expected=", ".join(CHECKPOINTS))
    if not asked:
        raise UserError("--only names no model", expected=", ".join(CHECKPOINTS))
    return tuple(name for name in CHECKPOINTS if name in asked)


def _verify(store: Path, names: Sequence[str]) -> dict[str, str]:
    failed: dict[str, str] = {}
    for name in names:
        failed |= faults(store, [name], say=print)
        if name not in failed:
            print(f"{name}: ok")
    return failed


def _download(store: Path, names: Sequence[str]) -> dict[str, str]:
    """Bring the store up to date; name of a model → what went wrong with it."""
    lacking = [wanted for name in names for wanted in _lacking(store, CHECKPOINTS[name])]
    if any(wanted.checkpoint.source == HUB for wanted in lacking):
        require_hub_client()
    failed: dict[str, str] = {}
    planned = []
    for wanted in lacking:
        try:
            size = locate(wanted.checkpoint, wanted.file).size
        except UnreachableError:
            size = None  # asked again, more patiently, when its turn comes
        except RefusedError as error:
            failed.setdefault(wanted.checkpoint.name, one_line(f"{wanted.checkpoint.name}: {error}"))
            continue
        planned.append(Wanted(wanted.checkpoint, wanted.file, wanted.path, wanted.part, size))
    _check_space(store, planned)
    with Progress([wanted.size for wanted in planned]) as progress:
        for wanted in planned:
            name = wanted.checkpoint.name
            try:
                _bring(store, wanted, progress)
            except (RefusedError, UnreachableError) as error:
                failed.setdefault(name, one_line(f"{name}: {error}"))
    return failed


def _lacking(store: Path, checkpoint: Checkpoint) -> Iterator[Wanted]:
    for file in checkpoint.files:
        path = store / checkpoint.directory / file.path
        _take_from_old_place(store / checkpoint.directory, file, path)
        if path.is_file() and path.stat().st_size:
            if not file.sha256 or file_hash(store, path, print) == file.sha256:
                print(f"{checkpoint.directory}/{file.path}: already there")
                continue
            print(f"{checkpoint.directory}/{file.path}: not the published file, downloading it again")
        yield Wanted(checkpoint, file, path, store / PARTIAL / f"{checkpoint.name}--{file.path}")


def _take_from_old_place(directory: Path, file: CheckpointFile, path: Path) -> None:
    """A file that was downloaded by hand lies below the directories of its repository."""
    old = directory / file.source
    if not file.origin or path.exists() or not old.is_file() or content_hash(old) != file.sha256:
        return
    old.replace(path)
    with suppress(OSError):  # other files lie there
        for parent in old.relative_to(directory).parents[:-1]:
            (directory / parent).rmdir()


def _check_space(store: Path, planned: Sequence[Wanted]) -> None:
    sizes = [max(0, wanted.size - _size(wanted.part)) for wanted in planned if wanted.size is not None]
    free = shutil.disk_usage(store).free
    if sizes and sum(sizes) + SPARE > free:
        raise UserError(
            f"not enough space: {sum(sizes) / 1e9:.1f} GB to download, {free / 1e9:.1f} GB free",
            where=store,
            next_step="free some, give another directory, or name fewer models with --only",
        )


def _bring(store: Path, wanted: Wanted, progress: Progress) -> None:
    """Fetch one file, check it and put it in its place."""
    file, part = wanted.file, wanted.part
    label = f"{wanted.checkpoint.directory}/{file.path}"
    part.parent.mkdir(parents=True, exist_ok=True)
    begun = _size(part)
    fault = _fetch_checked(wanted, progress.of(label))
    if fault and begun:
        # The beginning that lay there may have been damaged: once more, from the start.
        fault = _fetch_checked(wanted, progress.of(label))
    if fault:
        raise RefusedError(f"{file.path}: {fault}; nothing was kept")
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(wanted.path)
    with suppress(OSError):
        file_hash(store, wanted.path)  # remembered for the stages
    progress.done(label)


def _fetch_checked(wanted: Wanted, arrived: object) -> str:
    remote = fetch(partial(locate, wanted.checkpoint, wanted.file), wanted.part, arrived)  # type: ignore[arg-type]
    fault = content_fault(wanted.part, wanted.file, remote.etag, content_hash(wanted.part))
    if fault:
        wanted.part.unlink()
    return fault


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """The only download into this store; what is complete leaves no trace behind."""
    directory = store / PARTIAL
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("another download into this directory is running", where=store) from None
        yield
        if {path.name for path in directory.iterdir()} == {".lock"}:
            shutil.rmtree(directory, ignore_errors=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    run_program(main)
