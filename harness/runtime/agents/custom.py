"""Agents that a runtime file defines: an argument vector with placeholders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from contract.errors import UserError
from harness.runtime.agents.base import Agent, Context

PLACEHOLDERS = tuple(field.name for field in fields(Context) if not field.name.startswith("tools"))
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def check_template(words: Sequence[str]) -> None:
    """Raise ``UserError`` for an empty command, a NUL, a lone brace or an unknown placeholder."""
    if not words or not words[0]:
        raise UserError("command is empty", expected="the program and its arguments as a list")
    for word in words:
        if "\0" in word:
            raise UserError(f"the word {word!r} of command holds a NUL character")
        for token in _TOKEN.finditer(word):
            if token[0] not in ("{{", "}}") and token[1] not in PLACEHOLDERS:
                known = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise UserError(
                    f"unknown placeholder {token[0]!r} in command",
                    expected=f"one of {known}; a literal brace is written twice",
                )


def fill(words: Sequence[str], context: Context) -> tuple[str, ...]:
    """Replace the placeholders inside each word; what a placeholder inserts is never split or read again."""

    def value(token: re.Match[str]) -> str:
        return token[0][0] if token[0] in ("{{", "}}") else str(getattr(context, token[1]))

    return tuple(_TOKEN.sub(value, word) for word in words)


def custom_agent(
    name: str,
    words: Sequence[str],
    session_dir: str | None = None,
    efforts: Sequence[str] = (),
    task_on_stdin: bool = False,
) -> Agent:
    """An agent from its table in the runtime file. Raises ``UserError`` for a faulty template."""
    check_template(words)
    template = tuple(words)
    return Agent(name, lambda context: fill(template, context), session_dir, tuple(efforts), task_on_stdin)
