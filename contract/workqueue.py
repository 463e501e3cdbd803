"""Work that many processes, on several machines, take from one directory.

An item is one token: an empty file that lies in exactly one of ``ready/``, ``taken/<worker>/`` and ``done/``
and moves by rename, which is atomic on local and on network file systems. There is nothing else to lock::

    manifest.json               the items' contents, in the order in which they are taken
    ready/000012.0              item 12, never returned so far
    taken/<worker>/000012.0     a worker is at it
    done/000012.0~<worker>      it has ended; outcomes/000012.0~<worker> says how
    workers/<worker>            who the worker is; its time of change is the worker's heartbeat
    closed                      nothing more is to be taken

A worker that was given up wrongly cannot end its items any more: the rename that would do so finds nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from contract.record import read_json, write_json

MANIFEST = "manifest.json"
READY, TAKEN, DONE, OUTCOMES, WORKERS, CLOSED = "ready", "taken", "done", "outcomes", "workers", "closed"
HEARTBEAT_S = 10.0
"""Seconds between two signs of life of a worker."""
STALE_S = 120.0
"""A worker without a sign of life for so long counts as dead."""
MOST_RETURNS = 3
"""An item that came back so often without an end fails at the next time: it may be what kills its workers."""

OK, FAILED, LOST = "ok", "failed", "lost"
"""States of an outcome: done; done, and something is wrong with it; given up, since no worker ended it."""


class Item(NamedTuple):
    """A token. number : of its row in the manifest, from 0. returns : how often it came back unfinished."""

    number: int
    returns: int

    @property
    def name(self) -> str:
        return f"{self.number:06d}.{self.returns}"


def _item(name: str) -> Item | None:
    """The token that a file's name stands for; None for anything else in the directory."""
    number, dot, returns = name.partition(".")
    if not dot or not number.isdecimal() or not returns.isdecimal():
        return None
    item = Item(int(number), int(returns))
    # Another way to write the number would be an item that is there and can never be taken.
    return item if item.name == name else None


class Queue:
    """A queue directory. All methods may be called by many processes at the same time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, directory: Path, rows: Sequence[Mapping[str, Any]]) -> Queue:
        """Make the directory (its parent exists, it does not) with one item a row. Raises ``OSError``."""
        directory.mkdir()
        for name in (TAKEN, DONE, OUTCOMES, WORKERS):
            (directory / name).mkdir()
        write_json(directory / MANIFEST, list(rows))
        filling = directory / f".{READY}"
        filling.mkdir()
        for number in range(len(rows)):
            (filling / Item(number, 0).name).touch()
        filling.rename(directory / READY)  # whoever finds it finds it whole
        return cls(directory)

    def rows(self) -> list[Any]:
        """Contents of the items. Raises ``OSError``, ``ValueError``."""
        rows = read_json(self.directory / MANIFEST)
        if not isinstance(rows, list):
            raise ValueError(f"{self.directory / MANIFEST} is no list")
        return rows

    def ready(self) -> list[Item]:
        """What waits, in the order in which it is taken."""
        return self._items(self.directory / READY)

    def taken(self) -> dict[str, list[Item]]:
        """What is being worked on, by worker; workers that hold nothing are left out."""
        found = {name: self._items(self.directory / TAKEN / name) for name in _names(self.directory / TAKEN)}
        return {name: items for name, items in found.items() if items}

    def ended(self) -> dict[int, str]:
        """Items that have ended: number → name of the outcome."""
        found = {}
        for name in _names(self.directory / DONE):
            item = _item(name.partition("~")[0])
            if item is not None and item.number < self._count:
                found[item.number] = name
        return found

    def outcome(self, name: str) -> dict[str, Any]:
        """How an item ended, by its name in :meth:`ended`. One that cannot be read counts as lost."""
        try:
            outcome = read_json(self.directory / OUTCOMES / name)
        except (OSError, ValueError) as error:
            return {"state": LOST, "note": f"its outcome cannot be read: {error}"}
        return outcome if isinstance(outcome, dict) else {"state": LOST, "note": "its outcome is no record"}

    def workers(self) -> dict[str, int]:
        """Every worker that ever was, with its last sign of life (nanoseconds of the file system's clock)."""
        found = {}
        for name in _names(self.directory / WORKERS):
            with suppress(OSError):
                found[name] = (self.directory / WORKERS / name).stat().st_mtime_ns
        return found

    @property
    def closed(self) -> bool:
        return (self.directory / CLOSED).exists()

    def close(self) -> None:
        """Let nothing more be taken; what is being worked on may end."""
        (self.directory / CLOSED).touch()

    def give_back(self, worker: str, why: str = "", *, counts: bool = True) -> int:
        """Return what ``worker`` holds, and count it; for a worker that is gone or lets go.

        counts : it was a try. An item that has had ``MOST_RETURNS`` of them ends as lost instead, ``why`` its
        last worker did not end it in its note.
        """
        count = 0
        for item in self._items(self.directory / TAKEN / worker):
            held = self.directory / TAKEN / worker / item.name
            if counts and item.returns >= MOST_RETURNS:
                note = f"given up after {item.returns + 1} tries" + (f": {why}" if why else "")
                self._end(held, f"{item.name}~{worker}", {"state": LOST, "note": note})
                continue
            back = Item(item.number, item.returns + counts)
            count += _moved(held, self.directory / READY / back.name)
        return count

    def _end(self, held: Path, name: str, outcome: Mapping[str, Any]) -> bool:
        """Write the outcome, then end the item; False when it was no longer held."""
        record = self.directory / OUTCOMES / name
        write_json(record, dict(outcome))
        if _moved(held, self.directory / DONE / name):
            return True
        with suppress(OSError):
            record.unlink()
        return False

    def _items(self, directory: Path) -> list[Item]:
        items = (_item(name) for name in _names(directory))
        return sorted(item for item in items if item is not None and item.number < self._count)

    @cached_property
    def _count(self) -> int:
        """How many items there can be: a stray file with a higher number is none. A manifest that cannot be
        read bounds nothing; whoever works from it reports that by itself (see :meth:`rows`).
        """
        try:
            return len(self.rows())
        except (OSError, ValueError):
            return sys.maxsize


class Worker:
    """One process that takes items. A context: the heartbeat runs inside it, and what is still held at its
    end goes back.

    name : unique among all workers of the queue, without ``/`` and ``~``. facts : for people who look on.
    """

    def __init__(self, queue: Queue, name: str, facts: Mapping[str, Any] | None = None) -> None:
        if not name or set(name) & set("/~\0") or name.startswith("."):
            raise ValueError(f"{name!r} is no name of a worker")
        self.queue, self.name = queue, name
        self._place = queue.directory / TAKEN / name
        self._beat = queue.directory / WORKERS / name
        self._facts = dict(facts or {})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._place.mkdir(exist_ok=True)
        write_json(self._beat, self._facts)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self.queue.give_back(self.name, counts=False)

    def take(self) -> Item | None:
        """The first item that waits, now held by this worker; None when none does or the queue is closed."""
        if self.queue.closed:
            return None
        for item in self.queue.ready():
            if _moved(self.queue.directory / READY / item.name, self._place / item.name):
                return item
        return None

    def finish(self, item: Item, outcome: Mapping[str, Any]) -> bool:
        """End an item; False when it had been taken away meanwhile, so that another worker's outcome counts.

        outcome : ``state`` (``ok``, ``failed`` or ``lost``), ``note`` and whatever else is worth knowing.
        """
        ended = {"worker": self.name, **outcome}
        return self.queue._end(self._place / item.name, f"{item.name}~{self.name}", ended)

    def _live(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            with suppress(OSError):
                os.utime(self._beat)


class Watch:
    """Notices workers that are dead without anybody having said so, such as those of a machine that is gone.

    Only changes of a heartbeat are looked at, and timed by the watcher's own clock: clocks of machines and
    file servers differ.
    """

    def __init__(
        self, queue: Queue, stale: float = STALE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.queue, self.stale, self._clock = queue, stale, clock
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self) -> list[str]:
        """Workers that hold items and have shown no sign of life for so long. To be asked again and again."""
        moment, beats = self._clock(), self.queue.workers()
        found = []
        for worker in self.queue.taken():
            beat = beats.get(worker, 0)
            last = self._seen.get(worker)
            if last is None or last[0] != beat:
                self._seen[worker] = (beat, moment)
            elif moment - last[1] >= self.stale:
                found.append(worker)
        return found


def _names(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []


def _moved(source: Path, target: Path) -> bool:
    """Rename, unless another process has done so before."""
    try:
        source.rename(target)
    except FileNotFoundError:
        # A network file system may repeat a request whose answer was lost, and report the second one's fate.
        return target.exists()
    return True
