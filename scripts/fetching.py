"""Fetching one large file over HTTP: what arrived before an interruption is kept and continued."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

TIMEOUT = 60.0
ATTEMPTS = 5
"""Attempts in a row that bring nothing before a file is given up."""
FIRST_WAIT = 1.0
_BLOCK = 1 << 20
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class RefusedError(Exception):
    """The server will not give this file, however often it is asked; the message is one line."""


class UnreachableError(Exception):
    """The server could not be asked, or the answer broke off; asking again may help."""


@dataclass(frozen=True)
class Remote:
    """Where a file can be had right now.

    size : bytes, None when not told. etag : the server's name of the content. headers : secrets for this
    server only; they are not sent on to where it redirects.
    """

    url: str
    size: int | None = None
    etag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


Locate = Callable[[], Remote]
Arrived = Callable[[int, int | None], None]
"""Told the bytes on disk and the bytes expected."""


def fetch(locate: Locate, part: Path, arrived: Arrived) -> Remote:
    """Complete the file ``part``, which may hold a beginning; what was fetched from.

    ``locate`` is asked again before each attempt, since signed addresses expire. Raises ``RefusedError``, or
    ``UnreachableError`` after several attempts that brought nothing; ``part`` keeps what arrived.
    """
    failures = 0
    while True:
        before = _size(part)
        try:
            remote = locate()
            _continue(remote, part, arrived)
            return remote
        except UnreachableError:
            failures = 0 if _size(part) > before else failures + 1
            if failures >= ATTEMPTS:
                raise
        time.sleep(FIRST_WAIT * 2**failures)


def probe(url: str) -> Remote:
    """Size of what lies at ``url``. Raises ``RefusedError`` or ``UnreachableError``."""
    with _open(urllib.request.Request(url, method="HEAD")) as response:
        length = response.headers.get("Content-Length", "")
        return Remote(url, int(length) if length.isdigit() else None)


def _continue(remote: Remote, part: Path, arrived: Arrived) -> None:
    """One request for what ``part`` lacks."""
    have = _size(part)
    if remote.size is not None and have > remote.size:
        part.unlink()  # the beginning of something else
        have = 0
    if have and have == remote.size:
        arrived(have, remote.size)
        return
    request = urllib.request.Request(remote.url, headers={"Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    for name, value in remote.headers.items():
        request.add_unredirected_header(name, value)
    with _open(request) as response:
        have = _start(response, have)
        length = response.headers.get("Content-Length", "")
        total = remote.size if remote.size is not None else (have + int(length) if length.isdigit() else None)
        with part.open("r+b" if part.exists() else "wb") as stream:
            stream.seek(have)
            stream.truncate()
            arrived(have, total)
            while block := _read(response):
                stream.write(block)
                have += len(block)
                arrived(have, total)
    if total is not None and have != total:
        raise UnreachableError(f"{_host(remote.url)}: the connection ended after {have} of {total} bytes")


def _start(response: http.client.HTTPResponse, wanted: int) -> int:
    """Offset of the first byte of the answer: ``wanted``, or 0 from a server that ignores ranges."""
    if response.status != 206:
        return 0
    told = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if told is None or int(told[1]) != wanted:
        raise RefusedError("the server answered another range than it was asked for")
    return wanted


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    host = _host(request.full_url)
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        kind = UnreachableError if error.code in _TRANSIENT else RefusedError
        raise kind(f"{host}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"{host}: {reason or type(error).__name__}") from error


def _read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes, as soon as some have arrived; empty at the end."""
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"the connection broke: {error or type(error).__name__}") from error


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
