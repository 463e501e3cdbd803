"""A server that speaks enough of Anthropic's and OpenAI's streaming APIs to drive the real agent programs.

Every conversation is the same: the first answer calls a shell tool with ``command``, the second says "done".
What each answer claims to have used is fixed, so that a test can count by hand.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = dict[str, Any]


class ProviderServer:
    """``status`` other than 200 answers every request with that error. ``keys``: credentials it was sent."""

    def __init__(self, address: str, command: str, status: int = 200) -> None:
        self.command, self.status = command, status
        self.keys: set[str] = set()
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer((address, 0), self._handler())

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @contextmanager
    def running(self) -> Iterator[ProviderServer]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def anthropic(self, body: Event) -> list[Event]:
        """Answer ``turn`` is ``msg_<turn>`` and used 100 + turn, 1000 cached, 7 written, 50 + turn tokens."""
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn == 0:
            block: Event = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
            wanted = {"command": self.command, "description": "make the world"}
            delta: Event = {"type": "input_json_delta", "partial_json": json.dumps(wanted)}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
        usage = {
            "input_tokens": 100 + turn,
            "cache_creation_input_tokens": 7,
            "cache_read_input_tokens": 1000,
            "output_tokens": 1,
        }
        message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"],
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
        stop = {"stop_reason": "end_turn" if turn else "tool_use", "stop_sequence": None}
        return [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 50 + turn}},
            {"type": "message_stop"},
        ]

    def openai(self, body: Event) -> list[Event]:
        """Answer ``turn`` used 500 + 100 turn, of it 40 turn cached, and 30 + turn, of it 5 reasoning."""
        turn = sum(item.get("type") == "function_call_output" for item in body["input"])
        if turn == 0:
            item: Event = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec_command",
                           "arguments": json.dumps({"cmd": self.command})}  # fmt: skip
        else:
            text = {"type": "output_text", "text": "done"}
            item = {"type": "message", "id": "m_1", "role": "assistant", "content": [text]}
        usage = {
            "input_tokens": 500 + 100 * turn,
            "input_tokens_details": {"cached_tokens": 40 * turn},
            "output_tokens": 30 + turn,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 530 + 101 * turn,
        }
        answer = {"id": f"resp_{turn}", "usage": usage, "output": [item]}
        return [
            {"type": "response.created", "response": {"id": f"resp_{turn}"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": answer},
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
                outer.asked.append(self.path)
                outer.keys |= {self.headers.get("x-api-key", ""), self.headers.get("Authorization", "")} - {
                    ""
                }
                if outer.status != 200:
                    error = {"type": "authentication_error", "message": "invalid x-api-key"}
                    self.send(outer.status, "application/json", json.dumps({"type": "error", "error": error}))
                elif "/messages" in self.path and "count_tokens" not in self.path:
                    self.stream(outer.anthropic(body))
                elif "/responses" in self.path:
                    self.stream(outer.openai(body))
                else:
                    self.send(404, "application/json", "{}")

            def do_GET(self) -> None:
                self.send(404, "application/json", "{}")

            def do_HEAD(self) -> None:
                self.send(200, "text/plain", "")

            def stream(self, events: list[Event]) -> None:
                lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self.send(200, "text/event-stream", "".join(lines))

            def send(self, status: int, kind: str, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
