"""Files over HTTP: streamed in pieces, ranges answered (RFC 9110, section 14), validators sent."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from email.utils import formatdate

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

PIECE = 1 << 18
_RANGE = re.compile(r"bytes=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)
_DIGITS = 18
TYPES = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".json": "application/json",
    ".bin": "application/octet-stream",
}
"""What is served as it lies there; everything else is shown as text by our own pages, never by its own type.
"""


class Unsatisfiable(ValueError):
    """The range lies outside the file: 416."""


def wanted(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and byte behind the last that a ``Range`` header asks for; None means the whole file.

    A header that is no single range of bytes is ignored, as the standard allows. Raises ``Unsatisfiable``.
    """
    match = _RANGE.fullmatch(header) if header else None
    if match is None or not (match[1] or match[2]) or max(len(match[1]), len(match[2])) > _DIGITS:
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        if length == 0:
            raise Unsatisfiable
        return size - length, size
    first = int(match[1])
    last = int(match[2]) if match[2] else size - 1
    if match[2] and last < first:
        return None
    if first >= size:
        raise Unsatisfiable
    return first, min(last, size - 1) + 1


class _Owned(StreamingResponse):
    """Closes the descriptor however sending ends."""

    def __init__(self, handle: int, start: int, stop: int, **options: object) -> None:
        self.handle = handle
        super().__init__(_pieces(handle, start, stop), **options)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self.handle)


async def _pieces(handle: int, start: int, stop: int) -> AsyncIterator[bytes]:
    while start < stop:
        piece = await run_in_threadpool(os.pread, handle, min(PIECE, stop - start), start)
        if not piece:
            # The file shrank meanwhile: the answer ends short of Content-Length, which the client notices.
            raise OSError("the file was cut while it was being sent")
        start += len(piece)
        yield piece


def file_response(request: Request, handle: int, kind: str) -> Response:
    """Answer with the open file ``handle``, which is closed afterwards."""
    status = os.fstat(handle)
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Last-Modified": formatdate(status.st_mtime, usegmt=True),
        "Cache-Control": "no-cache",
    }
    if known(request, etag):
        os.close(handle)
        return Response(status_code=304, headers=headers)
    range_header = request.headers.get("range")
    condition = request.headers.get("if-range")
    if condition is not None and condition not in (etag, headers["Last-Modified"]):
        range_header = None
    try:
        span = wanted(range_header, status.st_size)
    except Unsatisfiable:
        os.close(handle)
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{status.st_size}"})
    first, behind = span or (0, status.st_size)
    headers["Content-Length"] = str(behind - first)
    if span:
        headers["Content-Range"] = f"bytes {first}-{behind - 1}/{status.st_size}"
    code = 206 if span else 200
    if request.method == "HEAD":
        os.close(handle)
        return Response(status_code=code, headers=headers, media_type=kind)
    return _Owned(handle, first, behind, status_code=code, headers=headers, media_type=kind)


def known(request: Request, etag: str) -> bool:
    """Whether the client has this version already."""
    header = request.headers.get("if-none-match", "")
    return etag in {item.strip().removeprefix("W/") for item in header.split(",")}
