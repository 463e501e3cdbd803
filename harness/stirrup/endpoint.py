"""The model behind an OpenAI-compatible endpoint, with patience for endpoints that come and go.

An endpoint of one's own is restarted, runs out of memory, or is still loading its weights: a request waits
for it instead of ending hours of work. Answers that do not fit are asked for again with another output
budget.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
from limits import Limits
from stirrup.clients.chat_completions_client import ChatCompletionsClient
from stirrup.core.exceptions import OutputTokenLimitError

DEFAULT_URL, DEFAULT_KEY = "http://127.0.0.1:8000/v1", "local"
SMALLER_BUDGETS = (32_768, 16_384, 8192, 4096, 2048)
FEWEST_TOKENS, MARGIN = 1024, 512
NO_EFFORT = ("", "none", "off")
LONGEST_PAUSE = 120.0

_AWAY = ("APIConnectionError", "APITimeoutError", "ConnectError", "ReadTimeout", "RemoteProtocolError")
_AWAY_TEXTS = (
    "Connection error",
    "Connection refused",
    "Error code: 502",
    "Error code: 503",
    "Error code: 504",
)
_SGLANG = re.compile(
    r"maximum context length of (\d+) tokens\. "
    r"You requested a total of (\d+) tokens: (\d+) tokens from the input"
)
_VLLM = re.compile(r"maximum context length is (\d+) tokens.*requested (\d+) output tokens", re.DOTALL)
_STILL_TOO_MANY = re.compile(r"requested \d+ output tokens|You requested a total of")
_EXHAUSTED = re.compile(r"context (?:length|window)", re.IGNORECASE)

Say = Callable[[str], None]


class Client(ChatCompletionsClient):
    """Stirrup's client; ``say`` is told about every retry."""

    def __init__(self, model: str, effort: str, limits: Limits, say: Say, base_url: str, key: str) -> None:
        super().__init__(
            model=model,
            max_tokens=limits.output_tokens,
            context_window_tokens=limits.context_window,
            base_url=base_url,
            api_key=key,
            reasoning_effort=None if effort.strip().lower() in NO_EFFORT else effort,
            timeout=limits.request_timeout,
            max_retries=0,
        )
        self._limits, self._say = limits, say
        self._health = f"{base_url.rstrip('/').removesuffix('/v1')}/health"
        self._ask = self._client.chat.completions.create
        self._client.chat.completions.create = self._create  # type: ignore[method-assign,assignment]

    async def _create(self, **request: Any) -> Any:
        """Some servers call the reasoning ``reasoning``; Stirrup looks for ``reasoning_content``."""
        response = await self._ask(**request)
        for choice in response.choices or []:
            reasoning = getattr(choice.message, "reasoning", None)
            if reasoning and not getattr(choice.message, "reasoning_content", None):
                choice.message.reasoning_content = reasoning
        return response

    async def generate(self, messages: list[Any], tools: dict[str, Any]) -> Any:
        """One answer; waits for an endpoint that is away, at most ``reconnect`` seconds."""
        deadline: float | None = None
        while True:
            try:
                return await self._fitted(messages, tools)
            except Exception as error:
                pause = busy_pause(error)
                if pause is None and not is_away(error):
                    raise
                deadline = deadline or time.monotonic() + self._limits.reconnect
                self._say(f"waiting for the endpoint: {type(error).__name__}: {one_line(error)}")
                if not await (self._healthy(deadline) if pause is None else _pause(pause, deadline)):
                    raise

    async def _healthy(self, deadline: float) -> bool:
        """Wait until the endpoint answers again; False when the deadline comes first.

        Only servers of one's own have a health page: any answer but a server error will do.
        """
        if not await _pause(self._limits.first_pause, deadline):
            return False
        async with httpx.AsyncClient(timeout=10.0) as client:
            while True:
                try:
                    answer = await client.get(self._health)
                    if answer.status_code < 500:
                        return True
                except httpx.HTTPError:
                    pass
                if not await _pause(self._limits.health_pause, deadline):
                    return False

    async def _fitted(self, messages: list[Any], tools: dict[str, Any]) -> Any:
        """One answer, asked for again with another output budget when it does not fit."""
        configured = self._max_tokens
        try:
            try:
                return await super().generate(messages, tools)
            except OutputTokenLimitError:
                if configured >= self._limits.retry_output_tokens:
                    raise
                self._max_tokens = self._limits.retry_output_tokens
                self._say(f"the answer was cut at {configured} tokens, asking with {self._max_tokens}")
                return await super().generate(messages, tools)
        except Exception as error:
            return await self._smaller(messages, tools, error)
        finally:
            self._max_tokens = configured

    async def _smaller(self, messages: list[Any], tools: dict[str, Any], error: Exception) -> Any:
        """Ask with ever smaller budgets while the window is what does not suffice; else raise ``error``."""
        for budget in smaller_budgets(str(error), self._max_tokens):
            self._max_tokens = budget
            self._say(f"prompt and answer exceed the context window, asking for {budget} tokens")
            try:
                return await super().generate(messages, tools)
            except Exception as later:
                if not _STILL_TOO_MANY.search(str(later)):
                    raise
                error = later
        raise error


def smaller_budgets(text: str, current: int) -> Iterator[int]:
    """Output budgets below ``current`` to try after an overflow message; none after any other message."""
    sglang = _SGLANG.search(text)
    if sglang is None and not _VLLM.search(text):
        return
    budgets = list(SMALLER_BUDGETS)
    if sglang is not None:
        window, prompt = int(sglang[1]), int(sglang[3])
        budgets.insert(0, max(FEWEST_TOKENS, window - prompt - MARGIN))
    yield from (budget for budget in budgets if budget < current)


def is_away(error: BaseException) -> bool:
    """Whether the endpoint could not be reached, as opposed to having refused."""
    text = str(error)
    return type(error).__name__ in _AWAY or any(part in text for part in _AWAY_TEXTS)


def busy_pause(error: BaseException) -> float | None:
    """Seconds to wait after "too many requests"; None for anything else."""
    if getattr(error, "status_code", None) != 429:
        return None
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        return min(LONGEST_PAUSE, max(1.0, float(headers.get("retry-after", 20))))
    except ValueError:
        return 20.0


def is_exhausted(error: BaseException) -> bool:
    """Whether the conversation outgrew the model's window for good."""
    text = str(error)
    return bool(_EXHAUSTED.search(text)) or "Input length" in text


def bypass_proxies_for(base_url: str) -> None:
    """Let requests to a server on this machine or its network go straight there; others keep the proxy."""
    host = urlsplit(base_url).hostname or ""
    if _is_near(host):
        for name in ("no_proxy", "NO_PROXY"):
            known = [part for part in os.environ.get(name, "").split(",") if part]
            os.environ[name] = ",".join(dict.fromkeys([*known, host]))


def _is_near(host: str) -> bool:
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(not ipaddress.ip_address(address).is_global for address in map(str, found))


async def _pause(seconds: float, deadline: float) -> bool:
    """Sleep; False when the deadline comes first."""
    left = deadline - time.monotonic()
    if left <= 0:
        return False
    await asyncio.sleep(min(seconds, left))
    return time.monotonic() < deadline


def one_line(error: BaseException) -> str:
    """The beginning of an error's text on one line."""
    return " ".join(str(error).split())[:300]
