"""Collecting what an agent delivers: ``world/`` and ``solution/``, regular files only, within bounds.

Called after every process of the agent is gone. Links (at any level), pipes, sockets and devices stay behind
and are recorded; so is every file that could not be taken, without costing the others.

A file with several names (hard links) is taken only where all of them lie inside the workspace: one that has
a name elsewhere may be any file of this machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.names import BUILD_SCRIPT, DYNAMICS, MESHES, SOLUTION, WORLD
from harness.runtime.hardlinks import OUTSIDE, Names

MAX_DEPTH = 64
MAX_NOTES = 200
"""Names that a record lists; beyond that they are only counted."""
_MIB = 1 << 20
_FIRST = frozenset(f"{WORLD}/{name}" for name in (MESHES, DYNAMICS))
"""Taken before other directories, so that a cache full of files cannot use up the bounds first."""
_SPECIAL = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@dataclass(frozen=True)
class Bounds:
    """How much is taken. Sizes are apparent ones: a sparse file counts in full."""

    max_files: int = 20_000
    max_file_bytes: int = 8_192 * _MIB
    max_total_bytes: int = 32_768 * _MIB


@dataclass
class Delivery:
    """What was taken and what was not. Names are relative to the workspace."""

    files: int = 0
    bytes: int = 0
    artifacts: list[str] = field(default_factory=list)
    entries: int = 0
    links: list[str] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    left_out: int = 0
    cut: str = ""
    """Why collection stopped early, empty when it did not."""

    def note(self, name: str, why: str) -> None:
        self.left_out += 1
        if len(self.skipped) < MAX_NOTES:
            self.skipped.append({"path": name, "why": why})

    def record(self) -> dict[str, Any]:
        """Fields for ``run.json``."""
        fields: dict[str, Any] = {
            "artifacts": self.artifacts,
            "delivery": {
                "files": self.files,
                "bytes": self.bytes,
                "left_out": self.left_out,
                "skipped": self.skipped,
                "cut": self.cut or None,
            },
        }
        if self.links:
            fields["symlinks_dropped"] = self.links
        return fields


class _Stop(Exception):
    """A bound of the whole delivery was reached."""


def collect(workspace: Path, target: Path, bounds: Bounds = Bounds()) -> Delivery:
    """Move the delivery from ``workspace`` into ``target`` (made). Never raises for what an agent left."""
    target.mkdir(parents=True, exist_ok=True)
    delivery = Delivery(*_taken_before(target))
    names = Names(workspace)
    # The solution first: it is small, and whatever bound the world reaches must not cost it.
    for name in (SOLUTION, WORLD):
        path = workspace / name
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISDIR(mode):
            _leave(name, mode, delivery)
            continue
        try:
            if mode & 0o700 != 0o700:
                path.chmod(0o700)
            with _directory(path) as source:
                (target / name).mkdir(exist_ok=True)
                delivery.artifacts.append(name)
                with _directory(target / name) as sink:
                    _collect(source, sink, name, 1, delivery, bounds, names)
        except _Stop:
            delivery.cut = delivery.cut or "bound reached"
        except OSError as error:
            delivery.note(name, str(error.strerror))
    delivery.artifacts.sort()
    return delivery


def _taken_before(target: Path) -> tuple[int, int]:
    """Files and bytes that an earlier collection, killed half-way, has taken already."""
    taken = [path.lstat() for path in target.rglob("*") if not path.is_dir()]
    return len(taken), sum(status.st_size for status in taken)


def is_delivered(workspace: Path) -> bool:
    """Whether a collected workspace holds ``world/``, ``solution/`` and ``solution/build.sh``."""
    script = workspace / SOLUTION / BUILD_SCRIPT
    return (workspace / WORLD).is_dir() and script.is_file() and not script.is_symlink()


@contextmanager
def _directory(path: Path | str, parent: int | None = None) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _collect(
    source: int, sink: int, place: str, depth: int, delivery: Delivery, bounds: Bounds, names: Names
) -> None:
    """Take one directory: its files in order of name, then its directories."""
    directories = []
    for name in _names(source, place, delivery, bounds):
        shown = f"{place}/{printable(name)}"
        try:
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
        except OSError as error:
            delivery.note(shown, str(error.strerror))
            continue
        if stat.S_ISDIR(status.st_mode):
            directories.append((name, shown, status.st_mode))
        elif stat.S_ISREG(status.st_mode) and not names.all_inside(status):
            delivery.note(shown, OUTSIDE)
        elif stat.S_ISREG(status.st_mode):
            _take_file(source, sink, name, shown, status, delivery, bounds)
        else:
            _leave(shown, status.st_mode, delivery)
    directories.sort(key=lambda entry: (entry[1] not in _FIRST, entry[0]))
    for name, shown, mode in directories:
        if depth >= MAX_DEPTH:
            delivery.note(shown, f"more than {MAX_DEPTH} levels deep")
            continue
        try:
            if mode & 0o700 != 0o700:
                os.chmod(name, 0o700, dir_fd=source)
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=sink)
            with _directory(name, source) as below, _directory(name, sink) as below_sink:
                _collect(below, below_sink, shown, depth + 1, delivery, bounds, names)
        except OSError as error:
            delivery.note(shown, str(error.strerror))


def _names(source: int, place: str, delivery: Delivery, bounds: Bounds) -> list[str]:
    """Entries of a directory, sorted; never more than the bound on files, however many there are."""
    names = []
    with os.scandir(source) as entries:
        for entry in entries:
            delivery.entries += 1
            if delivery.entries > 2 * bounds.max_files:
                delivery.cut = f"more than {2 * bounds.max_files} entries, reached in {place}"
                raise _Stop
            names.append(entry.name)
    return sorted(names)


def _take_file(
    source: int, sink: int, name: str, shown: str, status: os.stat_result, delivery: Delivery, bounds: Bounds
) -> None:
    if delivery.files >= bounds.max_files:
        delivery.cut = f"more than {bounds.max_files} files, reached at {shown}"
        raise _Stop
    if status.st_size > bounds.max_file_bytes:
        delivery.note(
            shown, f"{status.st_size} bytes, more than the {bounds.max_file_bytes} allowed for one file"
        )
        return
    if delivery.bytes + status.st_size > bounds.max_total_bytes:
        delivery.note(shown, f"the delivery would exceed {bounds.max_total_bytes} bytes")
        return
    with suppress(FileNotFoundError):  # half a copy, of a collection that was killed
        half = os.stat(name, dir_fd=sink, follow_symlinks=False)
        delivery.files, delivery.bytes = delivery.files - 1, delivery.bytes - half.st_size
        os.unlink(name, dir_fd=sink)
    try:
        _move(source, sink, name, status)
    except OSError as error:
        delivery.note(shown, str(error.strerror))
        return
    delivery.files += 1
    delivery.bytes += status.st_size


def _move(source: int, sink: int, name: str, status: os.stat_result) -> None:
    """Rename a file over; copy it where that cannot be done (other file system or owner, hard links)."""
    if status.st_nlink == 1:
        with suppress(OSError):
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=sink)
            _settle(source, sink, name)
            return
    _copy(source, sink, name, status)
    with suppress(OSError):
        os.unlink(name, dir_fd=source)


def _settle(source: int, sink: int, name: str) -> None:
    """Give a moved file a plain mode that its reader can rely on; no set-id bits."""
    moved = os.stat(name, dir_fd=sink, follow_symlinks=False)
    if not stat.S_ISREG(moved.st_mode):
        os.rename(name, name, src_dir_fd=sink, dst_dir_fd=source)
        raise OSError(0, "it changed while it was collected")
    with suppress(PermissionError):  # somebody else's file that we could move all the same
        os.chmod(name, 0o755 if moved.st_mode & 0o111 else 0o644, dir_fd=sink)


def _copy(source: int, sink: int, name: str, status: os.stat_result) -> None:
    """Copy a regular file's data, holes staying holes."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    reader = os.open(name, flags, dir_fd=source)
    try:
        if not stat.S_ISREG(os.fstat(reader).st_mode):
            raise OSError(0, "it changed while it was collected")
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        writer = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=sink)
        try:
            _copy_data(reader, writer, status.st_size)
        except BaseException:
            os.unlink(name, dir_fd=sink)
            raise
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_data(reader: int, writer: int, size: int) -> None:
    position = 0
    while position < size:
        try:
            position = os.lseek(reader, position, os.SEEK_DATA)
        except OSError:
            break  # nothing but a hole up to the end
        end = min(os.lseek(reader, position, os.SEEK_HOLE), size)
        os.lseek(reader, position, os.SEEK_SET)
        os.lseek(writer, position, os.SEEK_SET)
        while position < end:
            piece = os.read(reader, min(_MIB, end - position))
            if not piece:
                break
            position += os.write(writer, piece)
        if position < end:
            break
    os.ftruncate(writer, size)


def _leave(shown: str, mode: int, delivery: Delivery) -> None:
    if stat.S_ISLNK(mode):
        delivery.left_out += 1
        if len(delivery.links) < MAX_NOTES:
            delivery.links.append(shown)
    else:
        delivery.note(shown, _SPECIAL.get(stat.S_IFMT(mode), "a file where a directory is expected"))


def printable(name: str) -> str:
    """A file name as text that JSON can hold; bytes that are no UTF-8 are shown escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
