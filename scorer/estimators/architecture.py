"""Sizes of our own networks: the official ones, unless a file beside the weights states others.

The file is an extension of ours, for checkpoints of other sizes in the official layout; the tests' tiny ones
are such. No official checkpoint has it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from contract.errors import UserError

FILE = "architecture.json"

Sizes = TypeVar("Sizes")


def stored(directory: Path, official: Sizes) -> Sizes:
    """``official`` (a dataclass of integers and tuples of them) with what ``architecture.json`` replaces.

    Raises ``UserError`` for a file that is no JSON object, a name that is no field, or a value that is not
    of the field's kind.
    """
    path = directory / FILE
    if not path.is_file():
        return official
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"not JSON ({error})", where=path) from error
    if not isinstance(given, dict):
        raise UserError("not a JSON object", where=path, expected="names and sizes")
    fields = {field.name: getattr(official, field.name) for field in dataclasses.fields(official)}  # type: ignore[arg-type]
    for name in given:
        if name not in fields:
            raise UserError(f"unknown member {name!r}", where=path, expected=", ".join(fields))
    try:
        changed = {name: _like(value, fields[name]) for name, value in given.items()}
        return dataclasses.replace(official, **changed)  # type: ignore[type-var]
    except ValueError as error:
        raise UserError(str(error), where=path) from error


def _like(value: object, official: Any) -> Any:
    if isinstance(official, tuple):
        if not isinstance(value, list) or len(value) != len(official):
            raise ValueError(f"{value!r} is not a list of {len(official)} integers")
        return tuple(_like(each, one) for each, one in zip(value, official, strict=True))
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value
