"""What tokens cost: litellm's bundled table, read offline, and a table of the user's own over it.

A model whose price is not known costs ``None``, never 0; a price of 0 is a price. Source of the rules:
protocol 4dcb-1, usage and cost.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from contract.errors import UserError
from harness.runtime.tomlfile import Table, parse, read_toml
from harness.runtime.transcripts.base import Usage

OVERLAY = "FOURDCB_PRICES"
"""Environment variable that names a table of the user's own."""
CACHE_HITS = 0.95
"""Part of what a loop sends again that endpoints serve from their cache, where they do not say."""

_TABLE = "model_prices_and_context_window_backup.json"
_RATES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
_VARIANTS = ("-sglang", "-vllm", "-fp8", "-nvfp4", "-awq", "-int4", "-int8")
"""Endings of names that say how a model is served, not which one it is."""
_OPENROUTER = "openrouter/"

Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Own(Table):
    """One table of the user's own price file: dollars per million tokens."""

    input: Rate
    output: Rate
    cached: Rate | None = None
    written: Rate | None = None


@dataclass(frozen=True)
class Price:
    """Dollars a token. ``cached`` and ``written`` None: as ``input``. ``source``: where it stands."""

    input: float
    output: float
    cached: float | None
    written: float | None
    source: str

    def cost(self, usage: Usage, *, assumed_hits: bool = False) -> float:
        """Dollars of ``usage``, rounded to six places. ``assumed_hits``: its ``cached`` is an assumption, of
        which ``CACHE_HITS`` are billed as such.
        """
        hits = round(CACHE_HITS * usage.cached) if assumed_hits else usage.cached
        misses = usage.input + usage.cached - hits
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        total = misses * self.input + hits * cached + usage.written * written + usage.output * self.output
        return round(total, 6)


def price(model: str, *, openrouter_first: bool = False) -> Price | None:
    """Price of a model by the name that a job gives it; None when unknown or ambiguous.

    openrouter_first : prefer the prices of openrouter to the maker's own, as for open models.
    Raises ``UserError`` for a faulty price file of the user's own.
    """
    wanted = normal(model)
    own = _own(os.environ.get(OVERLAY, ""))
    if wanted in own:
        return own[wanted]
    table, by_name = _litellm()
    keys = by_name.get(wanted, [])
    exact = [key for key in keys if key == wanted]
    routed = [key for key in keys if key.startswith(_OPENROUTER)]
    for key in [*routed, *exact] if openrouter_first else [*exact, *routed]:
        found = _price(table[key])
        if found is not None:
            return found
    offers = {tuple(table[key].get(rate) for rate in _RATES) for key in keys}
    return _price(table[keys[0]]) if keys and len(offers) == 1 else None


def use(path: Path | None) -> None:
    """Let ``path`` be the table of the user's own for this process, instead of one that the environment
    names; None changes nothing. Raises ``UserError`` when it is missing or faulty.
    """
    if path is not None:
        os.environ[OVERLAY] = str(path)
        _own(str(path))


def installed() -> bool:
    """Whether there is any table: litellm's, or one of the user's own."""
    return bool(_litellm()[0] or _own(os.environ.get(OVERLAY, "")))


def why_unpriced(model: str) -> str:
    """One sentence about a model that has no price."""
    if not _litellm()[0]:
        return (
            'the price table is not installed (pip install "fourdcodebench[prices]"), '
            f"and {OVERLAY} names no other"
        )
    return f"no price is known for {normal(model)!r}; {OVERLAY} may name a file with one"


def normal(model: str) -> str:
    """The name that price tables know: lower case, no provider, no ending that says how it is served."""
    name = model.lower().rsplit("/", 1)[-1]
    while name.endswith(_VARIANTS):
        name = name[: name.rindex("-")]
    return name


def _price(entry: Mapping[str, Any]) -> Price | None:
    """None without both of the rates that nothing can stand in for."""
    given = [_number(entry.get(name)) for name in _RATES]
    if given[0] is None or given[1] is None:
        return None
    return Price(given[0], given[1], given[2], given[3], _source())


def _number(value: Any) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


@cache
def _source() -> str:
    return f"litellm {metadata.version('litellm')}"


@cache
def _litellm() -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """The bundled table, and its keys by their last segment, sorted. Empty where litellm is not installed.

    The file is read without importing the package, which takes seconds and may ask the network for a newer
    one.
    """
    found = importlib.util.find_spec("litellm")
    if found is None or not found.submodule_search_locations:
        return {}, {}
    path = Path(found.submodule_search_locations[0]) / _TABLE
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}, {}
    table = {key: value for key, value in loaded.items() if isinstance(value, dict)}
    by_name: dict[str, list[str]] = {}
    for key in sorted(table):
        by_name.setdefault(key.lower().rsplit("/", 1)[-1], []).append(key)
    return table, by_name


@cache
def _own(text: str) -> dict[str, Price]:
    """Prices of the user's own file; empty without one."""
    if not text:
        return {}
    path = Path(text).expanduser()
    data = read_toml(path, "write one, see docs/configuration.md#prices-prices-of-your-own")
    prices = {}
    for name, value in data.items():
        if not isinstance(value, dict):
            raise UserError(
                f"{name!r} is no table",
                where=path,
                expected='["model name"] with input and output, dollars per million tokens',
            )
        own = parse(Own, value, path, (name,))
        prices[normal(name)] = Price(
            own.input / 1e6, own.output / 1e6, _per_token(own.cached), _per_token(own.written), str(path)
        )
    return prices


def _per_token(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e6
