"""``split_status.json``: how far each shard of a run is, with a heartbeat (spec 70 §4.5)."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from .store import locked, read_json, write_json

HEARTBEAT_SECONDS = 10.0
FILE = "split_status.json"
_LOCK = ".split_status.lock"


def now() -> str:
    """The time as ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat()


class ShardProgress:
    """The record of one shard. Entering starts it; leaving ends it with ``success`` or ``fail``."""

    def __init__(self, run: Path, split_id: int, num_splits: int, total: int) -> None:
        self._run = run
        self._key = str(split_id)
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._beats, name=f"heartbeat-{split_id}", daemon=True)
        self._start = {
            "split_id": split_id,
            "num_splits": num_splits,
            "status": "running",
            "total": total,
            "completed": 0,
            "skipped": 0,
            "failed": 0,
            "current_uid": None,
            "started_at": now(),
            "finished_at": None,
            "heartbeat_at": None,
            "error_message": None,
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
        }

    def __enter__(self) -> ShardProgress:
        self._change(self._start, {})
        self._beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._beat.join()
        if error is not None:
            self._change({"error_message": f"{type(error).__name__}: {error}"}, {})
        failed = error is not None or self.record()["failed"] > 0
        self._change(
            {"status": "fail" if failed else "success", "finished_at": now(), "current_uid": None}, {}
        )

    def case(self, uid: str) -> None:
        """A case begins."""
        self._change({"current_uid": uid}, {})

    def done(self, *, skipped: bool = False) -> None:
        """A case is there; ``skipped`` if it was there before."""
        self._change({}, {"completed": 1, "skipped": int(skipped)})

    def fault(self, uid: str, error: BaseException) -> None:
        """A case failed; the others go on."""
        self._change({"error_message": f"{type(error).__name__}: {error} (case {uid})"}, {"failed": 1})

    def record(self) -> dict[str, Any]:
        """The shard's record as it stands on disk."""
        with locked(self._run / _LOCK):
            return _splits(self._run)[self._key]

    def _change(self, values: dict[str, Any], added: dict[str, int]) -> None:
        with locked(self._run / _LOCK):
            splits = _splits(self._run)
            record = {**splits.get(self._key, {}), **values, "heartbeat_at": now()}
            for name, amount in added.items():
                record[name] += amount
            splits[self._key] = record
            write_json(self._run / FILE, {"updated_at": now(), "splits": splits})

    def _beats(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                self._change({}, {})
            # A full disk now is no reason to stop beating: the next beat may get through.
            except (OSError, ValueError, KeyError):
                continue


def _splits(run: Path) -> dict[str, dict[str, Any]]:
    """Records by shard; a file that is not there or not whole counts as none."""
    try:
        content = read_json(run / FILE)
    except (OSError, ValueError):
        return {}
    splits = content.get("splits") if isinstance(content, dict) else None
    return splits if isinstance(splits, dict) else {}
