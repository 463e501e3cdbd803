"""Where a case lies, and how a new one gets there: staged beside its place, swapped in by rename."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contract.cases import KINDS, valid_segment
from contract.errors import UserError
from contract.names import (
    ANNOTATION,
    CASES,
    DATA,
    DYNAMIC_MASK,
    LONGEST_LEVEL,
    REFERENCE_VIDEO,
    WORLD,
)
from contract.record import sync_directory

REPOSITORY = Path(__file__).resolve().parents[1]
"""Its trees are those of the launchers, wherever a program is called from."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_PREFIX = ".partial-"
_LOCK = ".lock"


def add_tree_arguments(parser: argparse.ArgumentParser) -> None:
    """The options ``--cases`` and ``--data``."""
    parser.add_argument(
        "--cases",
        type=Path,
        default=REPOSITORY / CASES,
        help="tree of the videos, relative to where you are (default: cases/ of the repository)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=REPOSITORY / DATA,
        help="tree of worlds and masks, the same (default: data/ of the repository)",
    )


@dataclass(frozen=True)
class CasePlace:
    """The two directories of one case: what agents see below ``cases``, what scorers see below ``data``."""

    cases: Path
    data: Path
    kind: str
    name: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"unknown kind {self.kind!r}", expected=" or ".join(KINDS))
        if not valid_segment(self.name):
            raise UserError(
                f"{self.name!r} cannot be the name of a case",
                expected="letters, digits and . _ + - or spaces, starting with a letter, a digit or _",
                next_step="give --name N",
            )
        if len(self.name) > LONGEST_LEVEL:
            raise UserError(
                f"a name of {len(self.name)} characters is too long for a case",
                expected=f"at most {LONGEST_LEVEL}",
                next_step="give --name N",
            )

    @property
    def label(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def case_dir(self) -> Path:
        return self.cases / self.kind / self.name

    @property
    def data_dir(self) -> Path:
        return self.data / self.kind / self.name

    @property
    def video(self) -> Path:
        return self.case_dir / REFERENCE_VIDEO

    @property
    def world(self) -> Path:
        return self.data_dir / WORLD

    @property
    def mask(self) -> Path:
        return self.data_dir / ANNOTATION / DYNAMIC_MASK

    @property
    def taken(self) -> bool:
        return os.path.lexists(self.case_dir) or os.path.lexists(self.data_dir)


def shown(path: Path) -> Path:
    """``path`` as people would type it: relative where it lies below the working directory."""
    with suppress(ValueError, OSError):
        return path.relative_to(Path.cwd())
    return path


@contextmanager
def staged(place: CasePlace) -> Iterator[CasePlace]:
    """A place with empty directories to fill; when the block ends well they replace those of ``place``.

    The data directory is swapped in first and the case directory last, so that whoever sees the video finds
    the rest. Both replace what was there as a whole: estimates of an old video do not survive it. An empty
    data directory is not kept. On any error nothing has changed, and directories made on the way are gone.

    Raises ``UserError`` where a tree cannot be written.
    """
    with ExitStack() as stack:
        try:
            cases = stack.enter_context(workshop(place.case_dir.parent))
            data = stack.enter_context(workshop(place.data_dir.parent))
            draft = CasePlace(cases, data, place.kind, place.name)
            draft.case_dir.mkdir(parents=True)
            draft.data_dir.mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"cannot be written ({error.strerror})", where=error.filename or place.label
            ) from error
        try:
            yield draft
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UserError(f"cannot be written ({error.strerror})", where=place.label) from error
        if not any(draft.data_dir.iterdir()):
            draft.data_dir.rmdir()
        undo = swap(draft.data_dir, place.data_dir, data / "old")
        try:
            swap(draft.case_dir, place.case_dir, cases / "old")
        except BaseException:
            undo()
            raise


def swap(new: Path, target: Path, old: Path) -> Callable[[], None]:
    """Put ``new`` (nothing, if absent) at ``target``, which moves to ``old``; returns the way back."""
    had, has = os.path.lexists(target), new.exists()

    def undo() -> None:
        if has and os.path.lexists(target):
            target.rename(new)
        if os.path.lexists(old):
            old.rename(target)

    try:
        if had:
            target.rename(old)
        if has:
            new.rename(target)
    except BaseException:
        undo()
        raise
    sync_directory(target.parent)
    return undo


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A locked temporary directory inside ``parent``; those that killed programs left are removed."""
    with no_empty_levels(parent):
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        with _claimed(parent) as directory:
            yield directory


@contextmanager
def no_empty_levels(*directories: Path) -> Iterator[None]:
    """Of these directories and those above them, remove what did not exist before and is empty afterwards."""
    levels = {level for path in directories for level in (path, *path.parents) if not level.exists()}
    try:
        yield
    finally:
        for level in sorted(levels, key=lambda path: -len(path.parts)):
            with suppress(OSError):
                level.rmdir()


@contextmanager
def _claimed(parent: Path) -> Iterator[Path]:
    """A new directory inside ``parent`` whose lock this process holds."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            directory.chmod(0o755)
            with (directory / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another program that tidies up may have come between opening and locking; then once more.
                if (directory / _LOCK).exists():
                    yield directory
                    return
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the temporary directories that killed programs left inside ``parent``."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError), (directory / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
