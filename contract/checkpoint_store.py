"""Whether the model store holds what scores rest on: presence, size and SHA-256 of each checkpoint's files.

A hash is taken once for each state of a file (size, time of change, inode) and remembered in the store, or in
the user's cache where the store is read only.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract.checkpoints import CHECKPOINTS, Checkpoint, CheckpointFile
from contract.errors import one_line
from contract.record import read_json, write_json

UNVERIFIED = "FOURDCB_UNVERIFIED_CHECKPOINTS"
"""Environment variable; ``1``: sizes and hashes are not looked at, presence is. For tests and own weights."""
NOTE = "checkpoint not verified"
"""Provenance of what was computed then."""
MEMORY = ".hashes.json"
ARCHITECTURE = "architecture.json"
"""Optional file beside a checkpoint: sizes of a network other than the published one."""
_BLOCK = 4 << 20
_said: set[str] = set()


def unverified() -> bool:
    """Whether the user has switched hashes off; said once on standard error."""
    off = os.environ.get(UNVERIFIED) == "1"
    if off and UNVERIFIED not in _said:
        _said.add(UNVERIFIED)
        sys.stderr.write(f"warning: {UNVERIFIED}=1: checkpoints are not verified\n")
    return off


def faults(
    root: Path, names: Iterable[str], *, hashes: bool = True, say: Callable[[str], None] | None = None
) -> dict[str, str]:
    """What is wrong with those checkpoints below ``root``: name → one line; empty when all are fine.

    hashes : also look at sizes and SHA-256, unless :func:`unverified`. say : told about each file that has to
    be read for its hash (gigabytes the first time, nothing afterwards).
    """
    verify = hashes and not unverified()
    found: dict[str, str] = {}
    for name in names:
        checkpoint = CHECKPOINTS[name]
        for file in checkpoint.files:
            fault = _fault(root, checkpoint, file, verify, say)
            if fault:
                again = f"python scripts/download_checkpoints.py {root} --only {name}"
                found[name] = one_line(f"{name}: {fault}; run: {again}")
                break
    return found


def identity(root: Path, name: str) -> str:
    """A digest of the contents of a model's files, hexadecimal; for fingerprints of what it computed.

    Raises ``OSError`` when one is missing.
    """
    directory = root / CHECKPOINTS[name].directory
    total = hashlib.sha256()
    paths = [directory / file.path for file in CHECKPOINTS[name].files]
    if (directory / ARCHITECTURE).is_file():
        paths.append(directory / ARCHITECTURE)
    for path in paths:
        total.update(f"{path.name}\0{file_hash(root, path)}\0".encode())
    return total.hexdigest()


def file_hash(root: Path, path: Path, say: Callable[[str], None] | None = None) -> str:
    """SHA-256 of a file of the store ``root``, hexadecimal; from memory when the file has not changed.

    Raises ``OSError`` when it cannot be read.
    """
    state = path.stat()
    key = str(path.relative_to(root))
    facts = [state.st_size, state.st_mtime_ns, state.st_ino]
    for memory in _memories(root):
        known = _remembered(memory).get(key)
        if isinstance(known, list) and known[:-1] == facts and isinstance(known[-1], str):
            return known[-1]
    if say is not None:
        say(f"checking {key} ({state.st_size / 1e6:,.0f} MB)")
    digest = content_hash(path)
    _remember(root, key, [*facts, digest])
    return digest


def content_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal, in bounded memory. Raises ``OSError``."""
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _fault(
    root: Path,
    checkpoint: Checkpoint,
    file: CheckpointFile,
    verify: bool,
    say: Callable[[str], None] | None,
) -> str:
    path = root / checkpoint.directory / file.path
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            return f"{path} is not a file"
        if not state.st_size:
            return f"{path} is empty"
        if not verify:
            return "" if os.access(path, os.R_OK) else f"{path} cannot be read"
        if file.size is not None and state.st_size != file.size:
            return f"{path} has {state.st_size} bytes, expected {file.size}"
        if file.sha256 and (held := file_hash(root, path, say)) != file.sha256:
            return f"{path} has SHA-256 {held[:16]}…, expected {file.sha256[:16]}…"
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    return ""


def _memories(root: Path) -> tuple[Path, ...]:
    """Where hashes are remembered, the preferred place first."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(cache).is_absolute():
        cache = f"{os.environ.get('HOME', '')}/.cache"
    places = [root / MEMORY]
    if Path(cache).is_absolute() and cache != "/.cache":
        store = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
        places.append(Path(cache, "4dcodebench", "checkpoints", f"{store}.json"))
    return tuple(places)


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        held = read_json(memory)
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _remember(root: Path, key: str, entry: list[Any]) -> None:
    """Best effort: where nothing can be written, the next call reads the file again."""
    for memory in _memories(root):
        with suppress(OSError):
            if memory.parent != root:
                memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(memory, _remembered(memory) | {key: entry})
            return
