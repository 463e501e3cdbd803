"""JSON answers: strict, compressed where that pays, with a validator."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from viewer.files import known

_WORTH = 1_024
_LEVEL = 5


def encode(value: Any) -> bytes:
    """Compact strict JSON. Raises ``ValueError`` on a number that is not finite."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode("utf-8")


def packed(body: bytes) -> bytes:
    """The same, compressed; the time is left out, so equal bodies give equal bytes."""
    return gzip.compress(body, _LEVEL, mtime=0)


def respond(
    request: Request,
    body: bytes,
    *,
    zipped: bytes | None = None,
    etag: str | None = None,
    kind: str = "application/json",
    status: int = 200,
    compress: bool = True,
    headers: dict[str, str] | None = None,
) -> Response:
    """Send ``body``, compressed if the client takes that and it pays. ``zipped``: compressed beforehand."""
    etag = etag or f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    sent = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding", **(headers or {})}
    if status == 200 and known(request, etag):
        return Response(status_code=304, headers=sent)
    if compress and len(body) >= _WORTH and "gzip" in request.headers.get("accept-encoding", ""):
        sent["Content-Encoding"] = "gzip"
        body = packed(body) if zipped is None else zipped
    return Response(body, status_code=status, headers=sent, media_type=kind)


def problem(request: Request, status: int, message: str) -> Response:
    """An error as every route tells it."""
    return respond(request, encode({"error": message}), status=status)
