"""One request to a model through litellm, and what its failure means."""

from __future__ import annotations

import base64
import importlib
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from contract.errors import UserError, one_line
from vlm_judge.prices import Price, cost_of
from vlm_judge.prompting import Part
from vlm_judge.records import now
from vlm_judge.replies import Reply

OPENROUTER, OPENAI, AS_NAMED = "openrouter", "openai", "litellm"
"""Providers by litellm's names; with the last one the model's name is litellm's own, provider included."""
FATAL = (401, 402, 403, 404)
"""Key, credit, permission, model or address: no other request would fare better."""
AGAIN = (408, 409, 425, 429)
LONGEST_WAIT_S = 600.0
_MESSAGE = 200
"""Characters of a provider's message that are kept."""
_NEVER_SENT = ("ConnectError", "ConnectTimeout")


class Fatal(Exception):
    """The provider refuses every request."""


class Rejected(Exception):
    """The provider refuses this request; the same one again would be refused too."""


class Failed(Exception):
    """This try has failed. wait : seconds that the provider asks for, None where it does not say.
    maybe_charged : the provider may have worked all the same.
    """

    def __init__(self, message: str, wait: float | None, *, maybe_charged: bool) -> None:
        super().__init__(message)
        self.wait, self.maybe_charged = wait, maybe_charged


@dataclass(frozen=True)
class Service:
    """Which model, where, and how it is asked. key : never written anywhere."""

    provider: str
    model: str
    base_url: str
    key: str
    max_tokens: int
    timeout: float
    price: Price | None

    @property
    def asked(self) -> dict[str, Any]:
        """What of this can change a reply."""
        return {"provider": self.provider, "model": self.model, "base_url": self.base_url, "temperature": 0,
                "max_tokens": self.max_tokens}  # fmt: skip

    def prepare(self) -> None:
        """Load litellm. Raises ``UserError`` where it is not installed."""
        _litellm()

    def ask(self, parts: Sequence[Part], max_tokens: int) -> Reply:
        """Send one request, once. Raises ``Fatal``, ``Rejected`` or ``Failed``."""
        name = self.model if self.provider == AS_NAMED else f"{self.provider}/{self.model}"
        more = {"api_base": self.base_url} if self.base_url else {}
        begun = time.monotonic()
        try:
            answer = _litellm().completion(
                model=name,
                messages=[{"role": "user", "content": list(content(parts))}],
                temperature=0,
                max_tokens=max_tokens,
                timeout=self.timeout,
                api_key=self.key or "none",
                num_retries=0,
                max_retries=0,
                **more,
            )
            reply = _reply(answer)
        except Exception as error:
            raise self._meaning(error) from None
        cost = cost_of(reply.usage, self.price)
        return Reply(reply.text, reply.usage, cost, reply.finish, round(time.monotonic() - begun, 3), now())

    def _meaning(self, error: Exception) -> Exception:
        """What a failure is. Messages are cut, and never hold the key."""
        message = one_line(str(error))
        message = (message.replace(self.key, "***") if self.key else message)[:_MESSAGE]
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        answered = bool(headers)
        status = getattr(error, "status_code", None)
        text = f"HTTP {status}: {message}" if answered else f"{type(error).__name__}: {message}"
        if status in FATAL:
            return Fatal(text)
        if isinstance(status, int) and 400 <= status < 500 and status not in AGAIN:
            return Rejected(text)
        sent = not any(name in _NEVER_SENT for name in _causes(error))
        return Failed(text, retry_after(headers.get("retry-after")), maybe_charged=sent and not answered)


def content(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """A message's parts as the chat-completions API has them; JPEGs as data URLs."""
    for part in parts:
        if isinstance(part, str):
            yield {"type": "text", "text": part}
            continue
        for jpeg in part.jpegs():
            data = base64.b64encode(jpeg).decode("ascii")
            yield {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}}


def retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (a number or a date), at most ``LONGEST_WAIT_S``."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(LONGEST_WAIT_S, max(0.0, seconds)) if math.isfinite(seconds) else None


def _reply(answer: Any) -> Reply:
    choice = answer.choices[0]
    text = choice.message.content
    usage = answer.usage.model_dump(exclude_none=True) if getattr(answer, "usage", None) else {}
    return Reply(text if isinstance(text, str) else "", usage, finish=str(choice.finish_reason or ""))


def _causes(error: BaseException | None) -> Iterator[str]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield type(error).__name__
        error = error.__cause__ or error.__context__


def _litellm() -> Any:
    # Its bundled price table; otherwise the import fetches a newer one.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # About its own definitions, dozens of lines, some of them only at the first request.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"pydantic\b")
    try:
        litellm: Any = importlib.import_module("litellm")
    except ImportError as error:
        raise UserError(
            "litellm is not installed", next_step='pip install "fourdcodebench[judge]"'
        ) from error
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm
