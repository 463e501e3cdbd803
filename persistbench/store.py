"""Files that are whole or not there: atomic JSON, locks between processes, hashes (spec 70 §4.6)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CHUNK = 1 << 20


def identifier(value: object) -> str:
    """The text of a case, model or object name that is safe as a folder's name. Errors: ``ValueError``."""
    text = str(value)
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"Invalid case/model identifier: {text!r}; use letters, digits, '_', '.' and '-'")
    return text


def plain(value: Any) -> Any:
    """``value`` with every non-finite float replaced by ``None``: JSON has no word for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def json_text(value: Any) -> str:
    """The text of a JSON file: indent 2, no NaN, a newline at the end."""
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """What a JSON file says. Errors: ``OSError``; ``ValueError`` naming the file when it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, with the permissions that the umask gives."""
    with replacing(path) as partial:
        partial.write_text(json_text(value), encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of ``path`` when the block ends well, and vanishes otherwise."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        # A temporary file is private; a result is for colleagues on shared storage too.
        partial.chmod(0o666 & ~_umask())
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _umask() -> int:
    """The umask, read without changing it: other threads write files meanwhile."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/status") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def locked(path: Path, *, held: str | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively. With ``held``, do not wait: raise ``RuntimeError(held)``."""
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if held else 0))
        except BlockingIOError:
            raise RuntimeError(held) from None
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def identity(value: Any) -> str:
    """SHA-256 of the JSON text with sorted keys, default separators: what a manifest is known by (§8.1)."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def shard(count: int, splits: int, index: int) -> range:
    """Positions of shard ``index`` of ``splits`` over ``count`` cases (§4.5). Errors: ``ValueError``."""
    if splits < 1 or not 0 <= index < splits:
        raise ValueError("Require num-splits >= 1 and 0 <= split-id < num-splits")
    return range(count * index // splits, count * (index + 1) // splits)
