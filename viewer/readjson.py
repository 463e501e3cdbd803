"""JSON files of runs, which anybody may have written: bounded in size, broken shown as broken."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from viewer.trees import Absent, Root, read_file

LARGEST = 16 << 20
"""Bytes of a record that are parsed."""
DEEPEST = 64


class Broken(ValueError):
    """The file is there and no use; the message says why, in one line."""


def read_record(root: Root, parts: Sequence[str], limit: int = LARGEST) -> dict[str, Any] | None:
    """The JSON object in a file; None when there is no such file. Raises ``Broken``."""
    try:
        data = read_file(root, parts, limit)
    except Absent:
        return None
    except (OSError, ValueError) as error:
        raise Broken(str(error)) from error
    return parse(data, parts[-1])


def parse(data: bytes, name: str) -> dict[str, Any]:
    """The object that ``data`` holds. Raises ``Broken``."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Broken(f"{name} is not JSON: {reason}") from error
    if not isinstance(record, dict):
        raise Broken(f"{name} holds no object")
    return record


def shown(value: Any, depth: int = DEEPEST) -> Any:
    """A copy that strict JSON can hold: NaN and infinities become null, what nests too deeply a text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: shown(item, depth - 1) for key, item in value.items()} if depth else "…"
    if isinstance(value, list):
        return [shown(item, depth - 1) for item in value] if depth else "…"
    if isinstance(value, int) and abs(value) > 1 << 53:
        return str(value)
    if isinstance(value, str):
        # Lone surrogates are legal in JSON escapes and in no UTF-8 answer.
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def text(value: object, longest: int = 500) -> str:
    """A string member, cut; empty for anything else."""
    return shown(value)[:longest] if isinstance(value, str) else ""


def number(value: object) -> float | int | None:
    """A finite number member, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if abs(value) < 1e15 else None
