"""Replies on disk, shared by all commands, and a ledger of every request: what was paid for is never lost.

A reply is stored, flushed to the disk, before anything else is done with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract.record import finite, replacing
from vlm_judge.framestore import Frames
from vlm_judge.prompting import Part

VERSION = 1
LEDGER = "calls.jsonl"


@dataclass(frozen=True)
class Reply:
    """What came back. cost : dollars, None where nothing tells. finish : why the model stopped."""

    text: str
    usage: dict[str, Any] = field(default_factory=dict)
    cost: float | None = None
    finish: str = ""
    seconds: float = 0.0
    time: str = ""


def request_key(asked: dict[str, Any], parts: Sequence[Part]) -> str:
    """SHA-256 of everything that can change a reply: provider, address, model, parameters (``asked``), and
    the message with pictures by their digests.
    """
    content = [part.digests if isinstance(part, Frames) else part for part in parts]
    return hashlib.sha256(json.dumps([VERSION, asked, content], sort_keys=True).encode()).hexdigest()


class ReplyCache:
    """One file a reply. Safe with several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def get(self, key: str) -> Reply | None:
        """The stored reply; None where there is none, or only something unreadable."""
        try:
            return Reply(**json.loads(self._path(key).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, reply: Reply) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(finite(asdict(reply)), ensure_ascii=False, allow_nan=False)
        with replacing(path) as stream:
            stream.write(data.encode("utf-8", "surrogatepass"))

    def note(self, **entry: Any) -> None:
        """Add a request to the ledger: one line in one write, on the disk when this returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(finite(entry), ensure_ascii=False, allow_nan=False) + "\n"
        with self._lock:
            handle = os.open(
                self._folder / LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            try:
                os.write(handle, line.encode("utf-8", "surrogatepass"))
                os.fsync(handle)
            finally:
                os.close(handle)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
