"""A server that speaks chat completions over real HTTP, with replies that a test scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass
class Reply:
    """What one request gets. ``drop``: the connection is cut instead. ``cut``: it is cut in the middle of the
    answer. ``raw``: these bytes in place of ``body``. ``hold``: not before this is set.
    """

    body: Body = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: bool = False
    raw: bytes | None = None
    hold: threading.Event | None = None


def says(text: str = "", *calls: tuple[str, Body], read: int = 100, written: int = 10, **more: Any) -> Reply:
    """An answer with a text and tool calls, and what it used."""
    message: Body = {"role": "assistant", "content": text, **more}
    if calls:
        message["tool_calls"] = [
            {"id": f"call-{index}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for index, (name, arguments) in enumerate(calls)
        ]  # fmt: skip
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return Reply({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice],
                  "usage": usage})  # fmt: skip


def fails(status: int, text: str, **headers: str) -> Reply:
    """An error in the form that OpenAI's SDK reads."""
    return Reply({"error": {"message": text}}, status, headers)


class ChatServer:
    """Requests in their order, and the next replies; a callable makes its reply from the request's body."""

    def __init__(self) -> None:
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.replies: list[Reply | Callable[[Body], Reply]] = []
        self.otherwise: Callable[[Body], Reply] = lambda _: fails(400, "no reply is scripted")
        self.health: list[int] = []
        self.health_asked = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def next(self, body: Body, headers: dict[str, str]) -> Reply:
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            reply = self.replies.pop(0) if self.replies else self.otherwise
        return reply(body) if callable(reply) else reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = outer.next(body, {name.lower(): value for name, value in self.headers.items()})
                if reply.hold is not None:
                    reply.hold.wait(60)
                if reply.drop:
                    self.connection.close()
                    return
                data = json.dumps(reply.body).encode() if reply.raw is None else reply.raw
                with suppress(OSError):  # who asked may have left
                    part = data[: len(data) // 2] if reply.cut else data
                    self.send(reply.status, part, reply.headers, length=len(data))
                if reply.cut:
                    self.close_connection = True

            def do_GET(self) -> None:
                outer.health_asked += 1
                self.send(outer.health.pop(0) if outer.health else 404, b"{}", {}, length=2)

            def send(self, status: int, data: bytes, headers: dict[str, str], *, length: int) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    @contextmanager
    def running(self) -> Iterator[ChatServer]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
