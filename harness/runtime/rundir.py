"""Run directories on disk: a lock per run, a staging directory beside its place, and a swap by rename.

While a run goes on, everything about it lies in ``.<trial>.staging-<id>/`` beside its place: ``run/`` is the
coming run directory (``run.json`` from the first second, ``logs/``, ``session/``), the rest is the agent's
scratch. Only a run that has ended takes its place, in one rename; whatever stood there before stays untouched
until then.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.names import RUN_RECORD
from contract.record import clear_unfinished, sync_directory
from contract.runs import RunKey
from harness.runtime.runrecord import FINISHED, read_record, state_of
from harness.runtime.trees import remove_tree

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Place:
    """Where one run lies below the runs root, and what may lie beside it."""

    root: Path
    key: RunKey

    @property
    def final(self) -> Path:
        return self.root / self.key.path

    @property
    def lock(self) -> Path:
        return self._beside("lock")

    @property
    def attempt(self) -> Path:
        """The last attempt that did not finish although a finished run stood in its place already."""
        return self._beside("attempt")

    def stagings(self) -> list[Path]:
        return sorted(self.final.parent.glob(f".{self.key.trial}.staging-*"))

    def replaced(self) -> list[Path]:
        """Directories on their way out, left by a launcher that died in the middle of a swap."""
        return sorted(self.final.parent.glob(f".{self.key.trial}.replaced-*"))

    def _beside(self, what: str) -> Path:
        return self.final.parent / f".{self.key.trial}.{what}"

    def staging(self, run_id: str) -> Path:
        """Where the run ``run_id`` lies until it ends."""
        return self._beside(f"staging-{run_id}")


@contextmanager
def locked(place: Place) -> Iterator[bool]:
    """Hold the run's lock; yields False when another launcher holds it. The kernel frees it when its holder
    dies.
    """
    place.lock.parent.mkdir(parents=True, exist_ok=True)
    handle = _lock(place.lock)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            # Unlinked while held, so that nobody can lock a file that is about to vanish (see _lock).
            place.lock.unlink(missing_ok=True)
            os.close(handle)


def _lock(path: Path) -> int | None:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        try:
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)


def unfinished(place: Place) -> list[Path]:
    """Staging directories of runs that were begun and have not ended, the oldest first."""
    found = []
    for staging in place.stagings():
        record = read_record(staging / "run")
        if record is not None and _is_own(record, staging) and state_of(record) not in FINISHED:
            found.append(staging)
    return found


def _is_own(record: Mapping[str, object], staging: Path) -> bool:
    """After a swap the staging directory holds the run that was replaced: its record carries another id."""
    return record.get("run_id") == staging.name.rsplit("-", 1)[1]


def take_back(place: Place) -> None:
    """Stage a run again that stands in its place without having finished, and an attempt beside a finished
    one; the caller holds the lock and nothing else is staged.
    """
    for standing in (place.final, place.attempt):
        record = read_record(standing)
        run_id = (record or {}).get("run_id")
        if record is None or state_of(record) in FINISHED or not isinstance(run_id, str):
            continue
        staging = place.staging(run_id)
        staging.mkdir()
        standing.rename(staging / "run")
        return


def recover(place: Place, keep: Collection[Path] = ()) -> list[str]:
    """Tidy up after a launcher that was killed; the caller holds the lock. Returns what was done, as
    sentences.

    A finished run that had not reached its place is put there, a half-done swap is completed, scratch is
    removed; staging directories in ``keep`` are left alone.
    """
    notes = []
    for staging in place.stagings():
        if staging in keep:
            continue
        record = read_record(staging / "run")
        own = record is not None and _is_own(record, staging)
        if own and state_of(record) in FINISHED:
            clear_unfinished(staging / "run")
            publish(place, staging)
            notes.append("a finished run of a killed launcher was put in its place")
        else:
            notes.append(remove_tree(staging) or "the remains of a killed launcher were removed")
    for old in place.replaced():
        if not place.final.exists():
            old.rename(place.final)
            notes.append("a run that a killed launcher had moved away was put back")
        else:
            notes.append(remove_tree(old))
    return [note for note in notes if note]


def publish(place: Place, staging: Path, *, remove: bool = True) -> list[str]:
    """Put ``staging/run`` in the run's place and remove the rest of the staging directory.

    A finished run is never replaced by one that did not finish: such an attempt is kept beside it instead.
    Without ``remove`` the scratch stays (somebody may still write to it) until the next launch. Returns
    warnings about what could not be removed.
    """
    new = staging / "run"
    warnings = []
    if new.is_dir():
        target = place.final
        old_state, new_state = state_of(read_record(target)), state_of(read_record(new))
        if target.exists() and new_state not in FINISHED and old_state in (*FINISHED, None):
            warnings.append(remove_tree(place.attempt))
            target = place.attempt
        elif new_state in FINISHED:
            warnings.append(remove_tree(place.attempt))
        warnings.append(
            _swap(new, target, target.with_name(f".{place.key.trial}.replaced-{staging.name[-8:]}"))
        )
    if remove:
        warnings.append(remove_tree(staging))
    return [warning for warning in warnings if warning]


def _swap(new: Path, target: Path, aside: Path) -> str:
    """Make ``new`` the directory ``target``; what stood there is removed. One atomic step where the system
    can.
    """
    if not target.exists():
        new.rename(target)
        sync_directory(target.parent)
        return ""
    if _exchange(new, target):
        sync_directory(target.parent)
        return remove_tree(new)
    target.rename(aside)
    new.rename(target)
    sync_directory(target.parent)
    return remove_tree(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically (renameat2); False where kernel or file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    status: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return status == 0


def new_run_id() -> str:
    """A word that tells this attempt from every other one."""
    return secrets.token_hex(4)


def has_foreign_content(place: Place) -> bool:
    """Whether something stands in the run's place that has no readable record of ours."""
    final = place.final
    return final.exists() and not (final / RUN_RECORD).is_file() and any(final.iterdir())
