"""Whether a file looks like a whole MP4, without a video library: its top-level boxes are walked.

The harness must not import a decoder. This finds what costs hours when found late: an empty file, a download
that stopped half way, a file of another kind. Scorer and checker decode every frame.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import IO

from contract.errors import UserError

_FIRST = frozenset({b"ftyp", b"moov", b"free", b"skip", b"wide", b"mdat", b"pdin"})
_MOST_BOXES = 100_000


def check_video(path: Path) -> None:
    """Raise ``UserError`` when ``path`` is missing, no regular file, unreadable, no MP4, or cut off."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise UserError(
            "the case has no video", where=path, next_step="scripts/add_case.py makes one"
        ) from error
    except OSError as error:
        raise UserError(f"the case's video cannot be read: {error.strerror}", where=path) from error
    if not stat.S_ISREG(status.st_mode):
        raise UserError("the case's video is no regular file", where=path)
    try:
        with path.open("rb") as stream:
            fault = _fault(stream, status.st_size)
    except OSError as error:
        raise UserError(f"the case's video cannot be read: {error.strerror}", where=path) from error
    if fault:
        raise UserError(
            f"the case's video cannot be used: {fault}",
            where=path,
            next_step="scripts/add_case.py re-encodes a video",
        )


def _fault(stream: IO[bytes], size: int) -> str:
    """What is wrong with the chain of boxes, or an empty text. Box layout: ISO/IEC 14496-12, 4.2."""
    if size == 0:
        return "it is empty"
    offset, found = 0, False
    for _ in range(_MOST_BOXES):
        if offset == size:
            break
        stream.seek(offset)
        head = stream.read(16)
        if len(head) < 8:
            return f"it is cut off at byte {size}"
        length, kind = int.from_bytes(head[:4]), head[4:8]
        if offset == 0 and kind not in _FIRST:
            return "it is no MP4 file"
        smallest = 8
        if length == 1 and len(head) == 16:
            length, smallest = int.from_bytes(head[8:]), 16
        elif length == 0:
            length = size - offset
        if length < smallest:
            return f"it is damaged at byte {offset}"
        if offset + length > size:
            return f"it is cut off: {size} bytes of at least {offset + length} are there"
        found = found or kind == b"moov"
        offset += length
    return "" if found else "it holds no index of frames (moov box), so its recording never ended"
