"""Prompts are files: text with marks for pictures and words. Their hash stands in every record."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.errors import UserError
from vlm_judge.framestore import Frames

_FOLDER = Path(__file__).resolve().parent / "prompts"
VQA, PAIRWISE = _FOLDER / "vqa.txt", _FOLDER / "pairwise.txt"
VQA_MARKS = ("images", "frames", "count", "questions")
PAIR_MARKS = ("reference", "reference_frames", "a", "a_frames", "b", "b_frames")
_OPTIONAL = ("frames", "count", "reference_frames", "a_frames", "b_frames")
"""Marks that a prompt of one's own may leave out."""
_MARK = re.compile(r"\{([a-z_]+)\}")

Part = str | Frames
"""A piece of a message: text, or the frames of a video one after the other."""


@dataclass(frozen=True)
class Prompt:
    """text : with ``{marks}``. digest : SHA-256 of the file."""

    text: str
    digest: str

    def filled(self, values: Mapping[str, str | Frames]) -> list[Part]:
        """The message's parts in order; text between pictures without the white space around it."""
        parts: list[Part] = []
        words = ""
        for index, piece in enumerate(_MARK.split(self.text)):
            value = piece if index % 2 == 0 else values[piece]
            if isinstance(value, str):
                words += value
                continue
            parts += [words.strip(), value]
            words = ""
        parts.append(words.strip())
        return [part for part in parts if isinstance(part, Frames) or part]


def load(path: Path, marks: tuple[str, ...]) -> Prompt:
    """Read a prompt. Raises ``UserError`` when it lacks a mark, repeats pictures or has an unknown mark."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise UserError((error.strerror or "cannot be read").lower(), where=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8", where=path) from error
    found = _MARK.findall(text)
    listed = ", ".join(f"{{{mark}}}" for mark in marks)
    for mark in found:
        if mark not in marks:
            raise UserError(f"unknown mark {{{mark}}}", where=path, expected=listed)
    for mark in marks:
        if found.count(mark) != 1 and mark not in _OPTIONAL:
            raise UserError(f"{{{mark}}} is there {found.count(mark)} times", where=path, expected="once")
    return Prompt(text, hashlib.sha256(data).hexdigest())
