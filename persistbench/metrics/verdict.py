"""The judge's verdict in what it wrote (spec 70 §7.6)."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_LONGEST = 64 << 10  # of a text that is parsed: a verdict is some hundred characters


def _parsed(text: str) -> Any:
    if len(text) > _LONGEST:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def parse_answer(raw: str) -> dict[str, Any] | None:
    """The object in the first ``<answer>``, else in the whole text; None where there is none."""
    answer = _ANSWER.search(raw)
    whole = _OBJECT.search(raw)
    for text in (answer and answer.group(1), whole and whole.group(0)):
        value = _parsed(text) if text else None
        if value:
            # Of a list or a number there is nothing to read: an invalid answer, not a crash.
            return value if isinstance(value, dict) else None
    return None


def verdict(answer: dict[str, Any] | None, frame_tag: str) -> bool | None:
    """Whether the object is there according to a parsed answer; None when it does not say."""
    if answer is None:
        return None
    if answer.get("tag") == frame_tag and isinstance(answer.get("visible"), bool):
        return bool(answer["visible"])
    for item in _list(answer.get("frame_assessments")):
        if isinstance(item, dict) and item.get("tag") == frame_tag and isinstance(item.get("visible"), bool):
            return bool(item["visible"])
    for key, meaning in (("visible_tags", True), ("not_visible_tags", False)):
        if frame_tag in _list(answer.get(key)):
            return meaning
    return None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
