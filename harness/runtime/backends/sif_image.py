"""A .sif file: that it is one, and its digest, which is kept because reading 10 GB takes a while."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from contract.errors import UserError

_MAGIC, _AT = b"SIF_MAGIC", 32
"""The first line of the file is a call of the program that runs it; the mark follows."""


def check_image(image: Path, program: str) -> str:
    """``sha256:…`` of a readable .sif file. Raises ``UserError``."""
    hint = f"{program} build {image} docker-daemon://IMAGE, or correct the sif key of the runtime file"
    try:
        with image.open("rb") as file:
            start = file.read(_AT + len(_MAGIC))
    except FileNotFoundError as error:
        raise UserError("the image does not exist", where=image, next_step=hint) from error
    except OSError as error:
        raise UserError(f"the image cannot be read: {error.strerror}", where=image) from error
    if not start.endswith(_MAGIC) or len(start) != _AT + len(_MAGIC):
        raise UserError("the file is no .sif image", where=image, next_step=hint)
    return f"sha256:{digest(image)}"


def digest(path: Path, store: Path | None = None) -> str:
    """SHA-256 of a file; remembered for as long as its size, time and inode stay what they are."""
    store = store or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "4dcodebench" / "sif"
    status = path.stat()
    state = [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]
    note = store / f"{hashlib.sha256(str(state[0]).encode()).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["state"] == state:
            return str(known["sha256"])
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256").hexdigest()
    # A cache that cannot be written costs time only.
    with suppress(OSError):
        store.mkdir(parents=True, exist_ok=True)
        temporary = note.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps({"state": state, "sha256": value}), encoding="utf-8")
        temporary.replace(note)
    return value
