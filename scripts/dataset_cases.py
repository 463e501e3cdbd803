"""The work of a download: cases side by side, each brought, unpacked and placed; one fault costs one case."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from case_tree import CasePlace
from dataset_layout import Item
from dataset_place import FULL, PlaceFault, place_file, place_world
from dataset_present import origin
from dataset_record import CaseRecord
from dataset_sources import Source
from fetching import RefusedError, UnreachableError
from world_unpacking import Written

from contract.errors import one_line

if TYPE_CHECKING:
    from dataset_progress import DataProgress
    from unpack_slots import Slots

AT_ONCE = 4
"""Cases that are worked on side by side: enough to keep line and processors busy at the same time."""
PATIENCE = 3.0
"""Seconds that cases get to tidy up when the program is stopped."""


@dataclass
class CaseWork:
    """One case: what it lacks, and why some of it cannot be had."""

    place: CasePlace
    record: CaseRecord
    lacking: list[Item] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Stopped(Exception):
    """The program is being stopped."""


class DiskFull(Exception):
    """Nothing more can be written; the message is one line."""


class CaseRunner:
    """Works cases off in threads. scratch : directory for what has not arrived completely."""

    def __init__(self, source: Source, slots: Slots, progress: DataProgress, scratch: Path) -> None:
        self._source, self._slots, self._progress, self._scratch = source, slots, progress, scratch
        self._stop = threading.Event()
        self._waiting: queue.SimpleQueue[CaseWork] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[CaseWork | BaseException] = queue.SimpleQueue()

    def run(self, cases: Sequence[CaseWork]) -> None:
        """Bring what the cases lack; what goes wrong is added to their faults.

        Raises ``DiskFull`` when the disk is full: what is complete stays, and no further case is begun.
        """
        for work in cases:
            self._waiting.put(work)
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(min(AT_ONCE, len(cases)))]
        for thread in threads:
            thread.start()
        try:
            for _ in cases:
                ended = self._next()
                if isinstance(ended, BaseException):
                    raise ended
        except BaseException:
            self._stop.set()
            self._slots.stop()
            end = time.monotonic() + PATIENCE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            raise

    def _next(self) -> CaseWork | BaseException:
        while True:
            try:
                return self._ended.get(timeout=0.2)  # Ctrl-C is noticed between
            except queue.Empty:
                continue

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                work = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._case(work)
                self._ended.put(work)
            except BaseException as error:
                self._ended.put(error)
                return

    def _case(self, work: CaseWork) -> None:
        done = []
        for item in work.lacking:
            try:
                self._bring(work, item)
                done.append(item.label)
            except (RefusedError, UnreachableError, PlaceFault) as error:
                if self._stop.is_set():
                    raise Stopped from error  # its worker was ended; nothing is wrong with the case
                work.faults.append(one_line(f"{item.label}: {error}"))
            except OSError as error:
                text = (error.strerror or str(error)).lower()
                if error.errno in FULL:
                    raise DiskFull(one_line(f"{work.place.label}: {item.label}: {text}")) from error
                where = f"{error.filename}: " if error.filename else ""
                work.faults.append(one_line(f"{item.label}: {where}{text}"))
        told = [", ".join(done)] if done else []
        if work.faults:
            told.append(f"{len(work.faults)} not placed")
        self._progress.finished(f"{work.place.label}: {'; '.join(told)}")

    def _bring(self, work: CaseWork, item: Item) -> None:
        part = self._scratch / part_name(item)
        arrived = self._progress.arriving()
        size = item.published.size or 0
        found = self._source.bring(item.repo, item.published, part, self._watched(arrived))
        keep = self._source.keeps
        if item.form == "file":
            place_file(item, found, move=not keep)
            digest = item.published.sha256  # checked just now
            known = [Written("", digest, item.target.stat().st_size)] if digest else None
            work.record.enter(item.label, origin(item, self._source), known)
            return
        entry = partial(work.record.enter, item.label, origin(item, self._source))
        place_world(item, found, self._slots, self._watched_share(size), entry)
        if not keep:
            found.unlink()

    def _watched(self, arrived: Callable[[int, int | None], None]) -> Callable[[int, int | None], None]:
        def told(have: int, total: int | None) -> None:
            if self._stop.is_set():
                raise Stopped
            arrived(have, total)

        return told

    def _watched_share(self, size: int) -> Callable[[float], None]:
        return lambda share: self._progress.advance(share * size)


def part_name(item: Item) -> str:
    """Name of an item's unfinished file: of the content where its hash is known, so that a beginning is only
    continued with more of the same.
    """
    content = item.published.sha256 or item.published.git or str(item.published.size)
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", f"{item.repo.split('/')[-1]}/{item.published.path}")
    return f"{content[:16]}--{plain[-120:]}"
