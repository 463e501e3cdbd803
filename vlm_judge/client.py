"""Asking: cached replies first, then tries with waits in between, within the budget, until told to stop."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vlm_judge.budget import Budget
from vlm_judge.prices import prompt_tokens
from vlm_judge.prompting import Part
from vlm_judge.records import now
from vlm_judge.replies import Reply, ReplyCache, request_key
from vlm_judge.service import Failed, Fatal, Rejected, Service

LONGEST_BACKOFF_S = 90.0
_EXTRA = 1
"""Times that a reply without any answer is asked for again."""
_HOPELESS = 3
"""Requests that are rejected before any succeeds until the fault is taken to be in all of them."""


class Stopped(Exception):
    """Somebody has asked all workers to stop; this call was not made."""


@dataclass(frozen=True)
class Answer:
    """The outcome of one call. text : None where no reply came, and ``error`` says why. cost : dollars of all
    its replies, None where nothing tells. cached : nothing was sent.
    """

    key: str
    text: str | None
    usage: dict[str, object]
    cost: float | None
    finish: str = ""
    cached: bool = False
    error: str = ""


class Client:
    """Shared by all workers. attempts : tries of one call. backoff : seconds of the first wait."""

    def __init__(
        self,
        service: Service,
        cache: ReplyCache,
        budget: Budget,
        stop: threading.Event,
        *,
        attempts: int,
        backoff: float,
    ) -> None:
        self.service, self.cache, self.budget, self.stop = service, cache, budget, stop
        self._attempts, self._backoff = attempts, backoff
        self._pause = _Pause(stop)
        self._lock = threading.Lock()
        self._rejected = 0
        self._hits = 0

    def ask(self, parts: Sequence[Part], useful: Callable[[str], bool]) -> Answer:
        """A reply to a message; ``useful`` says whether a reply answers anything.

        Raises ``Fatal``, ``Exhausted`` (budget) and ``Stopped``; what fails for this call alone is in the
        answer.
        """
        key = self.key(parts)
        stored = self.cache.get(key)
        if stored is not None and useful(stored.text):
            with self._lock:
                self._hits += 1
            return Answer(key, stored.text, stored.usage, 0.0, stored.finish, cached=True)
        tokens = self.service.max_tokens
        costs: list[float | None] = []
        for extra in range(_EXTRA + 1):
            try:
                reply = self._one(key, parts, tokens)
            except (Rejected, Failed) as failure:
                return Answer(key, None, {}, _sum(costs), error=str(failure))
            costs.append(reply.cost)
            if useful(reply.text) or extra == _EXTRA:
                break
            tokens = tokens * 2 if reply.finish == "length" else tokens
        error = (
            "" if useful(reply.text) else f"the reply answers nothing (finish: {reply.finish or 'not said'})"
        )
        return Answer(key, reply.text, reply.usage, _sum(costs), reply.finish, error=error)

    def stored(self, parts: Sequence[Part]) -> Reply | None:
        """The reply that is on disk already."""
        return self.cache.get(self.key(parts))

    def key(self, parts: Sequence[Part]) -> str:
        """Of a message to this judge, in the cache."""
        return request_key(self.service.asked, parts)

    def estimate(self, parts: Sequence[Part], reply_tokens: int) -> float | None:
        """Dollars that a call may cost; None where no price is known."""
        known = self.service.price
        return None if known is None else known.cost(prompt_tokens(parts), reply_tokens)

    def _one(self, key: str, parts: Sequence[Part], tokens: int) -> Reply:
        """One reply, after as many tries as it takes. Raises ``Failed`` after the last."""
        estimate = self.estimate(parts, tokens)
        for attempt in range(self._attempts):
            self._pause.wait()
            held = self.budget.reserve(estimate)
            begun = time.monotonic()
            try:
                reply = self.service.ask(parts, tokens)
            except (Fatal, Rejected, Failed) as error:
                maybe = isinstance(error, Failed) and error.maybe_charged
                self.budget.failed(held, maybe_charged=maybe)
                self._note(key, seconds=time.monotonic() - begun, error=str(error), maybe_charged=maybe)
                if not isinstance(error, Failed):
                    self._refused(error)
                    raise
                if attempt + 1 == self._attempts:
                    raise
                self._wait(error, attempt)
                continue
            self.cache.put(key, reply)
            self.budget.settle(held, estimate, reply.cost)
            self._note(key, seconds=reply.seconds, usage=reply.usage, cost=reply.cost, finish=reply.finish)
            with self._lock:
                self._hits += 1
            return reply
        raise AssertionError("at least one attempt")

    def _refused(self, error: Exception) -> None:
        """Rejections of single calls are borne, unless nothing else happens. Raises ``Fatal`` then."""
        if isinstance(error, Fatal):
            self.stop.set()
            return
        with self._lock:
            self._rejected += 1
            hopeless = not self._hits and self._rejected >= _HOPELESS
        if hopeless:
            self.stop.set()
            raise Fatal(f"{self._rejected} requests and no reply: {error}")

    def _wait(self, error: Failed, attempt: int) -> None:
        """As long as the provider asks, for all workers; else a random part of a doubling time."""
        if error.wait is not None:
            self._pause.until(time.monotonic() + error.wait)
            return
        longest = min(LONGEST_BACKOFF_S, self._backoff * 2**attempt)
        self.stop.wait(random.uniform(longest / 2, longest))

    def _note(self, key: str, **more: object) -> None:
        self.cache.note(time=now(), key=key, model=self.service.model, provider=self.service.provider, **more)


class _Pause:
    """A time before which no worker sends anything."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._until = 0.0

    def until(self, moment: float) -> None:
        with self._lock:
            self._until = max(self._until, moment)

    def wait(self) -> None:
        """Return when requests may be sent. Raises ``Stopped``."""
        while not self._stop.is_set():
            with self._lock:
                left = self._until - time.monotonic()
            if left <= 0:
                return
            self._stop.wait(left)
        raise Stopped


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
