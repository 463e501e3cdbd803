"""What a call costs, and what it will cost by estimate. Unknown is None, never 0."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import UserError
from vlm_judge.prompting import Part

_TABLE = "model_prices_and_context_window_backup.json"
IMAGE_TOKENS = 1_100
"""Prompt tokens of a picture, whatever its width: measured on 83 % of the published comparisons."""
_CHARACTERS = 4
"""Of a prompt token, roughly."""
_PUBLISHED = {"google/gemini-3.8-flash": 0.80}
"""Dollars per million prompt tokens, replies included, that the published results cost; for the judge that no
table knows.
"""


@dataclass(frozen=True)
class Price:
    """Dollars a token, and where they stand."""

    input: float
    output: float
    source: str

    def cost(self, prompt: float, reply: float) -> float:
        return prompt * self.input + reply * self.output


def price(given: str, provider: str, model: str) -> Price | None:
    """Price of a judge: ``given`` (IN,OUT in dollars per million tokens), else litellm's bundled table, else
    what the published results cost. Raises ``UserError`` when ``given`` is no pair of numbers.
    """
    if given:
        try:
            rates = [float(part) / 1e6 for part in given.split(",")]
        except ValueError:
            rates = []
        if len(rates) != 2 or not all(0 <= rate < 1 for rate in rates):
            raise UserError(f"{given!r} is no price", where="--price", expected="IN,OUT, such as 0.3,2.5")
        return Price(rates[0], rates[1], "--price")
    table = _table()
    for name in (f"{provider}/{model}", model):
        entry = table.get(name)
        if isinstance(entry, dict):
            into, out = number(entry.get("input_cost_per_token")), number(entry.get("output_cost_per_token"))
            if into is not None and out is not None:
                return Price(into, out, "litellm's table")
    if model in _PUBLISHED:
        return Price(_PUBLISHED[model] / 1e6, 0.0, "the published results")
    return None


def prompt_tokens(parts: Sequence[Part]) -> int:
    """Estimate of a message's tokens."""
    return sum(
        len(part) // _CHARACTERS + 1 if isinstance(part, str) else IMAGE_TOKENS * len(part) for part in parts
    )


def cost_of(usage: dict[str, Any], known: Price | None) -> float | None:
    """Dollars of a call: what the provider says, else tokens by price, else None."""
    said = number(usage.get("cost"))
    if said is not None:
        return said
    prompt, reply = number(usage.get("prompt_tokens")), number(usage.get("completion_tokens"))
    if known is None or prompt is None or reply is None:
        return None
    return known.cost(prompt, reply)


def number(value: Any) -> float | None:
    """A JSON number as float."""
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def _table() -> dict[str, Any]:
    """litellm's bundled table, read without importing it: that takes seconds and may ask the network."""
    found = importlib.util.find_spec("litellm")
    if found is None or not found.submodule_search_locations:
        return {}
    try:
        loaded = json.loads((Path(found.submodule_search_locations[0]) / _TABLE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
