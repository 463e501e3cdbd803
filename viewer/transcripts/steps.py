"""Read a JSON-lines transcript into steps. Lines are bounded, what cannot be read is shown as it is."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from contract.names import AGENT_LOG, LOGS, SESSION
from viewer.readjson import shown
from viewer.transcripts.formats import parts_of
from viewer.trees import Absent, Trees, open_file, walk

LONGEST_LINE = 32 << 20
MOST_LINES = 200_000
MOST_BYTES = 512 << 20
LONGEST_TEXT = 20_000
"""Characters of one part that are sent; the rest is in the file."""
_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


@dataclass(frozen=True)
class Step:
    """One part of a transcript.

    role : ``user``, ``assistant``, ``thinking``, ``call``, ``result``, ``image``, ``event`` or ``raw``.
    title : tool name, or kind of event. at : byte of its line in the file. image : position of the picture
    in that line, or −1. tokens : counts of the message that it belongs to.
    """

    role: str
    title: str
    text: str
    at: int
    time: str = ""
    image: int = -1
    cut: int = 0
    link: str = ""
    tokens: dict[str, int] = field(default_factory=dict)


def transcript_files(trees: Trees, run: tuple[str, ...]) -> list[dict[str, Any]]:
    """Transcripts of a run, the agent's log last, with sizes."""
    found = [
        {"path": f"{SESSION}/{path}", "bytes": size}
        for path, size in walk(trees.runs, (*run, SESSION))
        if path.endswith((".jsonl", ".ndjson")) and size
    ]
    found += [
        {"path": f"{LOGS}/{path}", "bytes": size}
        for path, size in walk(trees.runs, (*run, LOGS), depth=1)
        if path == AGENT_LOG and size
    ]
    return found


def transcript_page(trees: Trees, run: tuple[str, ...], path: str, start: int, count: int) -> dict[str, Any]:
    """Steps ``start`` … ``start + count − 1`` of a transcript, and how many there are. Raises ``Absent``."""
    parts = (*run, *_levels(path))
    handle = open_file(trees.runs, parts)
    try:
        status = os.fstat(handle)
        steps, note = _steps(str(trees.runs), parts, status.st_mtime_ns, status.st_size)
    finally:
        os.close(handle)
    page = [asdict(step) for step in steps[max(start, 0) : max(start, 0) + min(max(count, 0), 500)]]
    return {"path": path, "total": len(steps), "start": start, "note": note, "steps": page}


def transcript_image(
    trees: Trees, run: tuple[str, ...], path: str, at: int, number: int
) -> tuple[bytes, str]:
    """Bytes and type of a picture inside a transcript. Raises ``Absent`` when it is none."""
    handle = open_file(trees.runs, (*run, *_levels(path)))
    with os.fdopen(handle, "rb") as stream:
        size = os.fstat(handle).st_size
        if not 0 <= at < size:
            raise Absent("no such line")
        stream.seek(at)
        line = stream.readline(LONGEST_LINE)
    try:
        images = [part.image for part in parts_of(json.loads(line)) if part.image]
        data = base64.b64decode(images[number], validate=False) if 0 <= number < len(images) else b""
    except (ValueError, RecursionError, binascii.Error):
        data = b""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return data, kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return data, "image/webp"
    raise Absent("no picture there")


def _levels(path: str) -> tuple[str, ...]:
    parts = tuple(path.split("/"))
    if len(parts) < 2 or parts[0] not in (SESSION, LOGS):
        raise Absent("not a transcript of this run")
    return parts


@lru_cache(maxsize=8)
def _steps(root: str, parts: tuple[str, ...], mtime_ns: int, size: int) -> tuple[list[Step], str]:
    handle = open_file(Path(root), parts)
    steps: list[Step] = []
    note = ""
    total = 0
    for count, (at, line) in enumerate(_lines(handle)):
        total += len(line)
        if count >= MOST_LINES or total > MOST_BYTES:
            note = f"Only the first {count} lines are shown; the file holds {size} bytes."
            break
        steps += _line(at, line)
    return _merged(steps), note


def _lines(handle: int) -> Iterator[tuple[int, bytes]]:
    with os.fdopen(handle, "rb") as stream:
        at = 0
        while line := stream.readline(LONGEST_LINE):
            yield at, line
            at += len(line)


def _line(at: int, line: bytes) -> list[Step]:
    text = line.strip()
    if not text:
        return []
    value: Any = None
    if text.startswith(b"{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict):
        return [_step("raw", "", text.decode("utf-8", "replace"), at)]
    found: list[Step] = []
    images = 0
    for part in parts_of(value):
        number = -1
        if part.image:
            number, images = images, images + 1
        found.append(_step(part.role, part.title, part.text, at, part.time, number, part.link, part.tokens))
    return found


def _step(
    role: str,
    title: str,
    text: str,
    at: int,
    time: str = "",
    image: int = -1,
    link: str = "",
    tokens: Any = None,
) -> Step:
    cut = max(0, len(text) - LONGEST_TEXT)
    return Step(
        role,
        shown(title[:200]),
        shown(text[:LONGEST_TEXT]),
        at,
        shown(time[:40]),
        image,
        cut,
        shown(link[:200]),
        tokens or {},
    )


def _merged(steps: list[Step]) -> list[Step]:
    """Neighbouring raw lines (a plain log) become blocks of up to 100 lines."""
    found: list[Step] = []
    held: list[Step] = []

    def flush() -> None:
        if held:
            found.append(_step("raw", "", "\n".join(step.text for step in held), held[0].at))
            held.clear()

    for step in steps:
        if step.role != "raw" or len(held) >= 100:
            flush()
        if step.role == "raw":
            held.append(step)
        else:
            found.append(step)
    flush()
    return found
