"""Who started an instance: a small file for each, since Apptainer keeps no labels.

The file is written before the instance is started and removed when it is confirmed to be gone, by the warden
when the launcher is dead. Files lie by machine: a home directory may be shared by many.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.runtime import owner


@dataclass(frozen=True)
class Record:
    """owner : as ``owner.this_process`` describes it. scratch : folder to remove with it; empty for none."""

    name: str
    run: str
    owner: Mapping[str, Any]
    scratch: str = ""

    @property
    def dead_owner(self) -> bool:
        """Whether the launcher certainly runs no more."""
        return not owner.alive(self.owner)


class Registry:
    """The files of one user on this machine."""

    def __init__(self, root: Path | None = None) -> None:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        self.root = (root or home / "4dcodebench" / "sif") / socket.gethostname()

    def path(self, name: str) -> Path:
        """The file of an instance."""
        return self.root / f"{name}.json"

    def claim(self, name: str, run: str, scratch: str) -> Path:
        """Write the file that names this process as owner. Raises ``FileExistsError`` where there is one."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        record = {"name": name, "run": run, "scratch": scratch, "owner": owner.this_process()}
        temporary = self.root / f".{name}.{os.getpid()}.part"
        temporary.write_text(json.dumps(record), encoding="utf-8")
        try:
            # A link, not a rename: it never replaces.
            os.link(temporary, self.path(name))
        finally:
            temporary.unlink()
        return self.path(name)

    def read(self, name: str) -> Record | None:
        """The record of an instance; None when there is none or it cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(self.path(name).read_text(encoding="utf-8"))
            if isinstance(data["owner"], dict):
                return Record(name, str(data["run"]), data["owner"], str(data["scratch"]))
        return None

    def all(self) -> list[Record]:
        """Every readable record, by name."""
        names = sorted(path.name.removesuffix(".json") for path in self.root.glob("*.json"))
        return [record for name in names if (record := self.read(name)) is not None]

    def forget(self, name: str) -> None:
        """Remove the file."""
        self.path(name).unlink(missing_ok=True)
