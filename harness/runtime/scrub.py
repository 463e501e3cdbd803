"""Taking known secret values out of the text files of a finished run, whoever wrote them there."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.record import replacing

MASK = b"***"
SHORTEST = 8
"""Values below this length stand in texts by chance; masking them would destroy more than it hides."""
_CHUNK = 8 << 20


def patterns(values: Iterable[str]) -> list[bytes]:
    """Byte forms of secret values: raw, as inside a JSON text, and in base64; longest first."""
    found = set()
    for value in values:
        if len(value) < SHORTEST:
            continue
        raw = value.encode(errors="surrogateescape")
        forms = {raw, base64.b64encode(raw).rstrip(b"="), base64.urlsafe_b64encode(raw).rstrip(b"=")}
        for ascii_only in (True, False):
            forms.add(json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode(errors="surrogateescape"))
        found |= forms
    return sorted(found, key=lambda form: (-len(form), form))


def scrub_tree(directory: Path, values: Iterable[str]) -> list[str]:
    """Mask the values in every regular text file below ``directory``. Returns the files changed, relative to
    it.
    """
    wanted = patterns(values)
    changed: list[str] = []
    if not wanted:
        return changed
    for place, directories, files in os.walk(directory, followlinks=False):
        directories.sort()
        for name in sorted(files):
            path = Path(place, name)
            if stat.S_ISREG(path.lstat().st_mode) and _is_text(path) and _scrub(path, wanted):
                changed.append(os.fsencode(path.relative_to(directory)).decode("utf-8", "backslashreplace"))
    return changed


def mask_text(text: str, forms: Iterable[bytes]) -> str:
    """``text`` with every form of :func:`patterns` masked; for lines that are shown."""
    data = text.encode(errors="surrogateescape")
    return _mask(data, list(forms)).decode(errors="surrogateescape")


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
    with path.open("rb") as stream:
        return b"\0" not in stream.read(8192)


def _scrub(path: Path, wanted: list[bytes]) -> bool:
    """Rewrite one file when it holds any of the patterns; chunks overlap so that none is missed at a
    border.
    """
    if not any(found for found in _scan(path, wanted)):
        return False
    overlap = max(map(len, wanted)) - 1
    with path.open("rb") as source, replacing(path, mode=stat.S_IMODE(path.lstat().st_mode)) as target:
        rest = b""
        while piece := source.read(_CHUNK):
            text = _mask(rest + piece, wanted)
            keep = min(overlap, len(text))
            target.write(text[: len(text) - keep])
            rest = text[len(text) - keep :]
        target.write(rest)
    return True


def _scan(path: Path, wanted: list[bytes]) -> Iterable[bool]:
    overlap = max(map(len, wanted)) - 1
    with path.open("rb") as stream:
        rest = b""
        while piece := stream.read(_CHUNK):
            data = rest + piece
            yield any(form in data for form in wanted)
            rest = data[-overlap:] if overlap else b""


def _mask(data: bytes, wanted: list[bytes]) -> bytes:
    for form in wanted:
        data = data.replace(form, MASK)
    return data
