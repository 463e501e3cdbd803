"""Taking known secret values out of the text files of a finished run, whoever wrote them there."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from contract.record import replacing

MASK = b"***"
SHORTEST = 8
"""Values below this length stand in texts by chance; masking them would destroy more than it hides."""
_CHUNK = 8 << 20


def patterns(values: Iterable[str]) -> list[bytes]:
    """Byte forms of secret values: raw, as inside a JSON text or an address, and in base64; longest first."""
    found = set()
    for value in values:
        if len(value) < SHORTEST:
            continue
        raw = value.encode(errors="surrogateescape")
        found |= {raw, quote(raw, safe="").encode(), *_base64_forms(raw)}
        for ascii_only in (True, False):
            found.add(json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode(errors="surrogateescape"))
    return sorted(found, key=lambda form: (-len(form), form))


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The value encoded by itself, and what of it is the same in base64 whatever stands around it, for each
    of the three ways in which it can fall on groups of three bytes (``user:password`` is encoded as a whole).
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).rstrip(b"=")
        for skip in range(3):
            whole = raw[skip : skip + (len(raw) - skip) // 3 * 3]
            if len(whole) >= SHORTEST - 2:
                yield encode(whole)


def scrub_tree(directory: Path, values: Iterable[str]) -> list[str]:
    """Mask the values in every regular text file below ``directory``, and in names. Returns the files
    changed, relative to it.

    A file that cannot be read or written does not spare the others: ``OSError`` is raised at the end.
    """
    wanted = patterns(values)
    changed: list[str] = []
    fault: OSError | None = None
    if not wanted:
        return changed
    for place, directories, files in os.walk(directory, topdown=False, followlinks=False):
        for name in files:
            path = Path(place, name)
            try:
                if stat.S_ISREG(path.lstat().st_mode) and _is_text(path) and _scrub(path, wanted):
                    shown = os.fsencode(path.relative_to(directory)).decode("utf-8", "backslashreplace")
                    changed.append(mask_text(shown, wanted))
            except OSError as error:
                fault = error
        for name in (*files, *directories):
            _mask_name(Path(place, name), wanted)
    if fault is not None:
        raise fault
    return sorted(changed)


def _mask_name(path: Path, wanted: list[bytes]) -> None:
    old = os.fsencode(path.name)
    new = _mask(old, wanted)
    if new == old:
        return
    target = path.with_name(os.fsdecode(new))
    number = 1
    while os.path.lexists(target):
        number += 1
        target = path.with_name(f"{os.fsdecode(new)}-{number}")
    path.rename(target)


def mask_text(text: str, forms: Iterable[bytes]) -> str:
    """``text`` with every form of :func:`patterns` masked; for lines that are shown."""
    data = text.encode(errors="surrogateescape")
    return _mask(data, forms).decode(errors="surrogateescape")


def mask_texts(value: Any, forms: Sequence[bytes]) -> Any:
    """A copy of nested lists and dictionaries with every text masked; for records."""
    if isinstance(value, str):
        return mask_text(value, forms) if forms else value
    if isinstance(value, dict):
        return {name: mask_texts(item, forms) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_texts(item, forms) for item in value]
    return value


def _is_text(path: Path) -> bool:
    if not os.access(path, os.R_OK):
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) | 0o600)
    with path.open("rb") as stream:
        return b"\0" not in stream.read(8192)


def _scrub(path: Path, wanted: list[bytes]) -> bool:
    """Rewrite one file when it holds any of the patterns; chunks overlap so that none is missed at a
    border. Holes stay holes.
    """
    overlap = max(map(len, wanted)) - 1
    with path.open("rb") as source:
        if not any(_holds(source, start, end, wanted, overlap) for start, end in _extents(source)):
            return False
        with replacing(path, mode=stat.S_IMODE(path.lstat().st_mode)) as target:
            reached = 0
            for start, end in _extents(source):
                target.seek(start - reached, os.SEEK_CUR)
                _rewrite(source, start, end, target, wanted, overlap)
                reached = end
            target.seek(os.fstat(source.fileno()).st_size - reached, os.SEEK_CUR)
            target.truncate()
    return True


def _extents(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Start and end of each stretch of a file that is no hole; a secret has no zeros and lies within one."""
    handle, position = stream.fileno(), 0
    size = os.fstat(handle).st_size
    while position < size:
        try:
            start = os.lseek(handle, position, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole up to the end
        position = min(os.lseek(handle, start, os.SEEK_HOLE), size)
        yield start, position


def _pieces(stream: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    stream.seek(start)
    while start < end and (piece := stream.read(min(_CHUNK, end - start))):
        start += len(piece)
        yield piece


def _holds(stream: IO[bytes], start: int, end: int, wanted: list[bytes], overlap: int) -> bool:
    rest = b""
    for piece in _pieces(stream, start, end):
        data = rest + piece
        if any(form in data for form in wanted):
            return True
        rest = data[-overlap:] if overlap else b""
    return False


def _rewrite(
    source: IO[bytes], start: int, end: int, target: IO[bytes], wanted: list[bytes], overlap: int
) -> None:
    rest = b""
    for piece in _pieces(source, start, end):
        text = _mask(rest + piece, wanted)
        keep = min(overlap, len(text))
        target.write(text[: len(text) - keep])
        rest = text[len(text) - keep :]
    target.write(rest)


def _mask(data: bytes, wanted: Iterable[bytes]) -> bytes:
    for form in wanted:
        data = data.replace(form, MASK)
    return data
