"""Limits of a run, each with a variable that changes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Variables are named ``FDCB_`` and the field in capitals, as in ``FDCB_MAX_TURNS=200``.

    context_window, output_tokens, retry_output_tokens : tokens; the last is given once to an answer that did
    not fit. request_timeout, shell_timeout, reconnect : seconds; ``reconnect`` is how long one request waits
    for an endpoint that is away. summarise_at : part of the window at which the history is summarised.
    """

    max_turns: int = 500
    context_window: int = 262_144
    output_tokens: int = 65_536
    retry_output_tokens: int = 131_072
    request_timeout: float = 1800.0
    shell_timeout: float = 36_000.0
    reconnect: float = 2700.0
    first_pause: float = 30.0
    health_pause: float = 15.0
    summarise_at: float = 0.7

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """Raises ``ValueError`` that names the variable which is no positive number."""
        given = {}
        for field in fields(cls):
            name = f"FDCB_{field.name.upper()}"
            text = environment.get(name, "")
            if text:
                kind = type(field.default)
                try:
                    value = kind(text)
                except ValueError:
                    value = 0
                if not 0 < value < float("inf"):
                    raise ValueError(f"{name}={text!r} is no positive {kind.__name__}")
                given[field.name] = value
        limits = cls(**given)
        if limits.summarise_at > 1:
            raise ValueError(f"FDCB_SUMMARISE_AT={limits.summarise_at:g} is more than 1")
        return limits

    def inside(self, timeout: float) -> float:
        """Seconds after which the loop ends itself: a little before the harness, so that it can do so in
        order.
        """
        return max(timeout * 0.5, timeout - max(10.0, min(120.0, timeout * 0.02)))
