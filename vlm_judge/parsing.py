"""What a reply says: the published rules, generous ones included."""

from __future__ import annotations

import re

_WORDS = r"(yes|no|missing)\b"
_LINE = re.compile(rf"^\s*(\d+)\s*[.):]\s*{_WORDS}", re.IGNORECASE | re.MULTILINE)
_WORD = re.compile(rf"\b{_WORDS}", re.IGNORECASE)
_LETTER = re.compile(r"\b([AB])\b")


def parse_answers(text: str | None, count: int) -> list[str | None]:
    """Answers to ``count`` numbered questions, capitalised; None where the reply gives none.

    Numbered lines count, later ones over earlier ones. Only if there is none at all, the first words Yes, No
    and Missing anywhere are taken in order.
    """
    found: list[str | None] = [None] * count
    if not text:
        return found
    for number, word in _LINE.findall(text):
        # Longer numbers are none of ours, and Python refuses to read the longest.
        if len(number) <= 9 and 1 <= int(number) <= count:
            found[int(number) - 1] = word.capitalize()
    if not any(found):
        words = _WORD.findall(text)[:count]
        found[: len(words)] = [word.capitalize() for word in words]
    return found


def parse_pick(text: str | None) -> str | None:
    """The first A or B that stands alone, in any case; None without one."""
    match = _LETTER.search((text or "").upper())
    return match[1] if match else None
