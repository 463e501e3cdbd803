"""A server on the loopback that resolves files as the Hugging Face hub does, and misbehaves on request."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """One file. large : kept outside Git, so resolving it redirects to a signed address.

    refuse : (status, X-Error-Code) instead of it. cut_after : bytes after which the next answers break off,
    one entry an answer. ranges : whether Range is honoured. hold_after : bytes after which the answer stands
    still until the server is told to go on. etag : other than the content's own.
    """

    content: bytes
    large: bool = True
    refuse: tuple[int, str] | None = None
    cut_after: list[int] = field(default_factory=list)
    ranges: bool = True
    hold_after: int | None = None
    etag: str = ""

    @property
    def name(self) -> str:
        """The hub's name of the content: SHA-256, or Git's name for a small file."""
        if self.etag:
            return self.etag
        if self.large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class Hub:
    """files : path of the request (``/repo/resolve/revision/name``, or any other) → what lies there.

    requests : (method, path, Range header) in order. authorized : (path, Authorization header). holding : set
    when an answer stands still; resume : set it to let it go on.
    """

    url: str
    files: dict[str, Served]
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    authorized: list[tuple[str, str]] = field(default_factory=list)
    holding: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)

    def add(self, repo: str, revision: str, name: str, served: Served) -> Served:
        """Serve a file of a repository."""
        self.files[f"/{repo}/resolve/{revision}/{name}"] = served
        return served

    def gets(self, part: str = "") -> list[tuple[str, str]]:
        """(path, Range) of the GET requests whose path contains ``part``."""
        return [(path, wanted) for method, path, wanted in self.requests if method == "GET" and part in path]


@contextmanager
def hub() -> Iterator[Hub]:
    """A running server."""
    state = Hub("", {})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Silence."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.split("?")[0]
            state.requests.append((self.command, path, self.headers.get("Range", "")))
            if "Authorization" in self.headers:
                state.authorized.append((path, self.headers["Authorization"]))
            signed = path.startswith("/signed/")
            served = state.files.get(path.removeprefix("/signed"))
            if served is None:
                return self._refuse(404, "EntryNotFound")
            if served.refuse is not None:
                return self._refuse(*served.refuse)
            if "/resolve/" in path and served.large and not signed:
                # Another host, as far as a client can tell.
                there = state.url.replace("127.0.0.1", "localhost")
                return self._head(
                    302, served, {"Location": f"{there}/signed{path}?key=1", "Content-Length": "0"}
                )
            return self._content(served, body=body)

        def _content(self, served: Served, *, body: bool) -> None:
            start, status, extra = 0, 200, {}
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if wanted and served.ranges:
                start, status = int(wanted[1]), 206
                extra["Content-Range"] = f"bytes {start}-{len(served.content) - 1}/{len(served.content)}"
            content = served.content[start:]
            self._head(status, served, {"Content-Length": str(len(content)), **extra})
            if not body:
                return
            cut = served.cut_after.pop(0) if served.cut_after else None
            if cut is not None:
                content = content[:cut]
            if served.hold_after is not None:
                self.wfile.write(content[: served.hold_after])
                self.wfile.flush()
                state.holding.set()
                state.resume.wait(120)
                content = content[served.hold_after :]
            try:
                self.wfile.write(content)
                self.wfile.flush()
            except OSError:
                pass  # the client has left
            if cut is not None:
                self.close_connection = True

        def _head(self, status: int, served: Served, extra: dict[str, str]) -> None:
            self.send_response(status)
            self.send_header("ETag", f'"{served.name}"')
            revision = re.search(r"/resolve/([0-9a-f]+)/", self.path)
            if revision:
                self.send_header("X-Repo-Commit", revision[1])
                self.send_header("X-Linked-Etag", f'"{served.name}"')
                self.send_header("X-Linked-Size", str(len(served.content)))
            for key, value in extra.items():
                self.send_header(key, value)
            self.end_headers()

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        state.resume.set()
        server.shutdown()
        server.server_close()
        thread.join()
