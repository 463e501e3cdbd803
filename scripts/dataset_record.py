"""``download.json`` beside a case's data: what was placed, where it is from, and what it must look like."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from case_tree import CasePlace
from world_unpacking import Written

from contract.names import REFERENCE_VIDEO
from contract.record import read_json, write_json
from world.packed.unpack import file_digest

NAME = "download.json"
_FORMAT = 1


class CaseRecord:
    """What is known of one case. An entry has ``source`` and ``files``: path below the label → sha256, size
    and the time of change at which it was right (0: not known to be).
    """

    def __init__(self, place: CasePlace) -> None:
        self._place = place
        self._path = place.data_dir / NAME
        self._lock = threading.Lock()
        self._entries: dict[str, Any] = {}
        try:
            found = read_json(self._path)
            if found["format"] == _FORMAT:
                self._entries = {label: _sound(entry) for label, entry in found["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._entries = {}  # nothing is known, so everything is looked at again

    def labels(self) -> list[str]:
        """What there are entries for."""
        return sorted(self._entries)

    def source(self, label: str) -> dict[str, Any]:
        """Where an entry is from, empty without one."""
        return dict(self._entries.get(label, {}).get("source", {}))

    def target(self, label: str) -> Path:
        """Where the thing of that label lies."""
        return self._place.video if label == REFERENCE_VIDEO else self._place.data_dir / label

    def enter(
        self,
        label: str,
        source: dict[str, Any],
        written: Iterable[Written] | None = None,
        at: Path | None = None,
    ) -> None:
        """Note what has been placed, or is about to be moved from ``at``, and save.

        written : the files of a directory; None for a single file, which is then read.
        """
        target = self.target(label) if at is None else at
        if written is None:
            written = [Written("", file_digest(target), target.stat().st_size)]
        files = {
            one.path: {
                "sha256": one.sha256,
                "size": one.size,
                "mtime_ns": (target / one.path).stat().st_mtime_ns,
            }
            for one in written
        }
        with self._lock:
            self._entries[label] = {"source": source, "files": files}
            self._save()

    def changed(self, label: str) -> list[str]:
        """Files of an entry that are not, by size and time, what they were; nothing is read."""
        return [path for path, one in self._files(label) if not _same_state(self._at(label, path), one)]

    def damaged(self, label: str, paths: Iterable[str] | None = None) -> dict[str, str]:
        """Files (of those given, or all) whose content is not what it was, with what is wrong. Reads them."""
        only = None if paths is None else set(paths)
        found = {}
        for path, one in self._files(label):
            if only is None or path in only:
                fault = _fault(self._at(label, path), one)
                if fault:
                    found[path] = fault
        return found

    def confirm(self, label: str) -> None:
        """All files of the entry have been found right as they are now."""
        with self._lock:
            for path, one in self._files(label):
                one["mtime_ns"] = self._at(label, path).stat().st_mtime_ns
            self._save()

    def doubt(self, label: str, paths: Iterable[str]) -> None:
        """Have these files looked at again by the next download."""
        with self._lock:
            for path, one in self._files(label):
                if path in set(paths):
                    one["mtime_ns"] = 0
            self._save()

    def _files(self, label: str) -> list[tuple[str, dict[str, Any]]]:
        return list(self._entries.get(label, {}).get("files", {}).items())

    def _at(self, label: str, path: str) -> Path:
        target = self.target(label)
        return target / path if path else target

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"format": _FORMAT, "files": self._entries})


def _sound(entry: Any) -> dict[str, Any]:
    """The entry, if it has the form that is written; raises otherwise."""
    files = {
        str(path): {"sha256": str(one["sha256"]), "size": int(one["size"]), "mtime_ns": int(one["mtime_ns"])}
        for path, one in entry["files"].items()
    }
    if any(path.startswith("/") or ".." in path.split("/") for path in files):
        raise ValueError("a path leads outside")
    return {"source": dict(entry["source"]), "files": files}


def _same_state(path: Path, one: dict[str, Any]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (one["size"], one["mtime_ns"])


def _fault(path: Path, one: dict[str, Any]) -> str:
    try:
        size = path.stat().st_size
        if size != one["size"]:
            return f"has {size} bytes, expected {one['size']}"
        digest = file_digest(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"
    return "" if digest == one["sha256"] else f"SHA-256 is {digest[:16]}…, expected {one['sha256'][:16]}…"
