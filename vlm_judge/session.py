"""What ``vqa`` and ``pairwise`` share: checks before anything is spent, the client, and how it ended."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import EXIT_INTERRUPTED, EXIT_ITEM_FAILED, EXIT_OK, UserError
from vlm_judge import prices, prompting, questions
from vlm_judge.budget import Budget, Limits
from vlm_judge.client import Client
from vlm_judge.console import out, say, warn
from vlm_judge.framestore import FrameStore
from vlm_judge.prompting import Part, Prompt
from vlm_judge.replies import ReplyCache
from vlm_judge.service import OPENAI, OPENROUTER, Service
from vlm_judge.work import Ended

EXIT_REFUSED = 3
_KEY = "OPENROUTER_API_KEY"
_REPOSITORY = Path(__file__).resolve().parents[1]
_CACHE = Path(".local") / "vlm_judge"
"""In the repository; an installed package has none, then in the working directory."""
_FRAMES, _REPLIES = "frames", "replies"
_SHORT = 32


@dataclass
class Session:
    """One command that asks a model."""

    given: argparse.Namespace
    scenes: list[questions.Scene]
    prompt: Prompt
    client: Client
    store: FrameStore
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def service(self) -> Service:
        return self.client.service

    def key(self, *what: Any) -> str:
        """Digest of everything that can change an answer: ``what``, the prompt, the model and how it is
        asked. What has a record with it is not asked again.
        """
        everything = [self.service.asked, self.prompt.digest, *what]
        return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:_SHORT]


def opened(given: argparse.Namespace, own_prompt: Path, marks: tuple[str, ...]) -> Session:
    """Check what was given and make ready. Raises ``UserError``; nothing has been asked by then."""
    _sensible(given)
    path = given.questions or questions.default_file()
    scenes = questions.select(questions.load(path), given.split, given.scenes)
    if given.questions is None:
        say(f"questions: {path.name}")
    prompt = prompting.load(given.prompt or own_prompt, marks)
    service = _service(given)
    if given.max_usd is not None and service.price is None:
        raise UserError(
            f"no price is known for {service.model!r}, so that --max-usd cannot be kept",
            next_step="give --price IN,OUT (dollars per million tokens), or --max-calls in its place",
        )
    if not given.dry_run:
        service.prepare()
    root = _REPOSITORY if (_REPOSITORY / "pyproject.toml").is_file() else Path.cwd()
    folder = given.cache or root / _CACHE
    stop = threading.Event()
    client = Client(
        service,
        ReplyCache(folder / _REPLIES),
        Budget(Limits(given.max_usd, given.max_calls)),
        stop,
        attempts=given.attempts,
        backoff=given.backoff,
    )
    return Session(given, scenes, prompt, client, FrameStore(folder / _FRAMES), stop)


def dry_run(session: Session, asked: Sequence[tuple[str, list[Part], int]]) -> int:
    """Say what would be asked: (label, message, tokens of a usual reply) per call. Sends nothing."""
    known = session.service.price
    totals: dict[str, list[float]] = {}
    cached = 0
    for label, parts, reply in asked:
        if session.client.stored(parts) is not None:
            cached += 1
            continue
        images = sum(len(part) for part in parts if not isinstance(part, str))
        tokens = prices.prompt_tokens(parts)
        line = totals.setdefault(label, [0.0] * 4)
        cost = known.cost(tokens, reply) if known else 0.0
        for index, value in enumerate((1, images, tokens, cost)):
            line[index] += value
    everything = [sum((line[index] for line in totals.values()), 0.0) for index in range(4)]
    for label, line in [*sorted(totals.items()), ("all", everything)]:
        money = f"about ${line[3]:.2f}" if known else "no price known"
        out(
            f"{label:12} {line[0]:6.0f} calls {line[1]:8.0f} pictures {line[2]:12,.0f} prompt tokens  {money}"
        )
    if cached:
        out(f"{cached} more are answered from cached replies")
    if known:
        out(f"price: {known.input * 1e6:g} and {known.output * 1e6:g} dollars per million tokens, "
            f"from {known.source}")  # fmt: skip
    return EXIT_OK


def closing(session: Session, ended: Ended, left: int, failed: int) -> int:
    """Say how it ended, and return the exit status. left : calls not made. failed : calls without answer."""
    if ended.fatal is not None:
        warn(f"the provider refuses: {ended.fatal}")
    if ended.exhausted is not None:
        warn(str(ended.exhausted))
    if failed:
        warn(f"{failed} calls brought no answer; the same command asks again")
    if left:
        warn(f"{left} calls were not made; the same command makes them")
    if ended.interrupted:
        return EXIT_INTERRUPTED
    if ended.fatal is not None:
        return EXIT_REFUSED
    return EXIT_ITEM_FAILED if left or failed else EXIT_OK


def _sensible(given: argparse.Namespace) -> None:
    for name in ("workers", "attempts", "width", "max_tokens", "trial", "timeout", "frames", "fps"):
        if getattr(given, name, 1) <= 0:
            raise UserError("must be above 0", where=f"--{name.replace('_', '-')}")
    for name in ("max_usd", "max_calls", "backoff", "pairs"):
        if (getattr(given, name, None) or 0) < 0:
            raise UserError("cannot be negative", where=f"--{name.replace('_', '-')}")
    if not given.runs.is_dir():
        raise UserError("no such directory", where=given.runs, next_step="give --runs DIR")


def _service(given: argparse.Namespace) -> Service:
    """The model to ask, with its key. Raises ``UserError`` where the key is missing."""
    provider = given.provider or (OPENAI if given.base_url else OPENROUTER)
    # A key for one address is not sent to another.
    name = given.key_env or ("" if given.base_url else _KEY)
    key = os.environ.get(name, "") if name else ""
    if name and not key and not given.dry_run:
        raise UserError(
            "the environment variable is not set",
            where=name,
            next_step=f"export {name}=…, or name another one with --key-env",
        )
    return Service(
        provider=provider,
        model=given.model,
        base_url=given.base_url.rstrip("/"),
        key=key,
        max_tokens=given.max_tokens,
        timeout=given.timeout,
        price=prices.price(given.price, provider, given.model),
    )
