"""Every run of the tree in memory, kept up by times of change: only what changed is read again.

A directory's own time changes when an entry comes or goes, a file's when it is replaced or rewritten. A time
that is too close to the moment at which it was read proves nothing (clocks of file systems tick), so such
entries are read once more.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.cases import KINDS
from contract.names import RESULTS, REWARD, REWARD_DETAIL, RUN_RECORD
from report.runs import ScoredRun
from viewer.rows import RunPlace, read_run

_STAGING = re.compile(r"\.([0-9]+)\.staging-[^/]+")
_TICK_NS = 50_000_000
"""Coarsest clock of the file systems that we expect to meet, with room."""
FRESH_SEC, RETRY_SEC = 1.0, 0.1
"""Age of the index that an answer may have; and one that says that something is missing."""
Stamp = tuple[int, int, int]
_NONE: Stamp = (0, 0, 0)


@dataclass
class _Folder:
    """A listed directory: its time when it was listed, and the names of directories in it."""

    stamp: Stamp
    names: list[str]
    settled: bool


@dataclass
class Entry:
    """One run. ``version``: number of the change of the index that brought it."""

    place: RunPlace
    stamps: tuple[Stamp, ...]
    row: list[Any]
    run: ScoredRun
    version: int
    settled: bool


@dataclass
class Snapshot:
    """The index at one moment. ``version`` goes up with every change; ``gone`` maps ids to that number."""

    version: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)


class Index:
    """Use from any thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = f"{time.time_ns():x}"
        """Changes with every start, so that version numbers of another life mean nothing."""
        self._folders: dict[str, _Folder] = {}
        self._snapshot = Snapshot()
        self._lock = threading.Lock()
        self._checked = float("-inf")

    def snapshot(self, oldest: float = FRESH_SEC) -> Snapshot:
        """The index, looked through again when the last look is more than ``oldest`` seconds ago."""
        if time.monotonic() - self._checked > oldest:
            with self._lock:
                if time.monotonic() - self._checked > oldest:
                    self._refresh()
                    self._checked = time.monotonic()
        return self._snapshot

    def entry(self, name: str) -> Entry | None:
        """The run with this id; before it is said to be missing, the tree is looked through again."""
        return self.snapshot().entries.get(name) or self.snapshot(RETRY_SEC).entries.get(name)

    def of_case(self, case: str) -> list[Entry]:
        """The runs of a case, in the same way."""
        for oldest in (FRESH_SEC, RETRY_SEC):
            found = [entry for entry in self.snapshot(oldest).entries.values() if entry.run.case == case]
            if found:
                break
        return found

    def _refresh(self) -> None:
        old = self._snapshot
        version = old.version + 1
        entries: dict[str, Entry] = {}
        touched = False
        for place in self._places():
            known = old.entries.get(place.id)
            # Where a finished run is being done again, both are there; the one that goes on is shown.
            if place.id in entries and not place.staging:
                continue
            stamps = self._stamps(place)
            if stamps[0] == _NONE and stamps[1] == _NONE:
                continue
            same = known is not None and known.settled and known.stamps == stamps and known.place == place
            if same and known is not None:
                entries[place.id] = known
                continue
            newest = max(stamp[0] for stamp in stamps)
            found = read_run(self.root, place, newest / 1e9)
            if found is None:
                continue
            row, run = found
            settled = time.time_ns() - newest > _TICK_NS
            if known is not None and known.row == row and known.run == run and known.place == place:
                known.stamps, known.settled = stamps, settled
                entries[place.id] = known
                continue
            entries[place.id] = Entry(place, stamps, row, run, version, settled)
            touched = True
        gone = {name: at for name, at in old.gone.items() if name not in entries}
        for name in old.entries.keys() - entries.keys():
            gone[name], touched = version, True
        if touched or set(gone) != set(old.gone):
            self._snapshot = Snapshot(version, entries, gone)
        elif list(entries) != list(old.entries):
            self._snapshot = Snapshot(old.version, entries, gone)

    def _places(self) -> Iterator[RunPlace]:
        for kind in KINDS:
            for case in self._names(kind):
                for system in self._names(f"{kind}/{case}"):
                    staged: list[RunPlace] = []
                    for name in self._names(f"{kind}/{case}/{system}", hidden=True):
                        match = _STAGING.fullmatch(name)
                        if match:
                            staged.append(RunPlace(kind, case, system, match[1], name))
                    yield from staged
                    for name in self._names(f"{kind}/{case}/{system}"):
                        yield RunPlace(kind, case, system, name)

    def _names(self, path: str, *, hidden: bool = False) -> list[str]:
        full = os.path.join(self.root, path)  # noqa: PTH118 - thousands a second
        stamp = _stamp(full)
        known = self._folders.get(path)
        if known is None or not known.settled or known.stamp != stamp:
            known = _Folder(stamp, _directories(full), time.time_ns() - stamp[0] > _TICK_NS)
            self._folders[path] = known
        return [name for name in known.names if name.startswith(".") == hidden]

    def _stamps(self, place: RunPlace) -> tuple[Stamp, ...]:
        base = os.path.join(self.root, *place.parts)  # noqa: PTH118
        return (
            _stamp(f"{base}/{RUN_RECORD}"),
            _stamp(f"{base}/{RESULTS}/{REWARD}"),
            _stamp(f"{base}/{RESULTS}/{REWARD_DETAIL}"),
        )


def _stamp(path: str) -> Stamp:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return _NONE
    return status.st_mtime_ns, status.st_size, status.st_ino


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    # Names that no answer could carry are no runs of ours.
    return sorted(name for name in found if name.isprintable() or _utf8(name))


def _utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
