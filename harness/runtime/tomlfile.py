"""TOML files checked against pydantic models; an error names file, table, key and the nearest known key."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli
from pydantic import BaseModel, ConfigDict, ValidationError

from contract.errors import UserError

Model = TypeVar("Model", bound=BaseModel)


class Table(BaseModel):
    """A TOML table: unknown keys are forbidden, and no type is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, or None when nothing comes close."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.5)
    return found[0] if found else None


_FROM_TEMPLATE = "copy one from harness/runtime/templates/ and fill it in"


def read_toml(path: Path, if_missing: str = _FROM_TEMPLATE) -> dict[str, Any]:
    """Parse a TOML file. Raises ``UserError`` when it is missing, unreadable or no TOML.

    if_missing : what to do about a file that is not there.
    """
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError("no such file", where=path, next_step=if_missing) from error
    except IsADirectoryError as error:
        raise UserError(
            "is a directory", where=path, expected="a TOML file", next_step="name the file inside it"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot be read ({(error.strerror or type(error).__name__).lower()})",
            where=path,
            next_step="make it readable for you, or name another file",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"cannot be read: byte {error.start} is no UTF-8", where=path, next_step="save it as UTF-8 text"
        ) from error
    except (ValueError, RecursionError) as error:  # of tomli, and of int() for thousands of digits
        raise UserError(f"is not valid TOML: {error}", where=path) from error


def parse(model: type[Model], data: object, path: Path, table: Sequence[str] = ()) -> Model:
    """``data`` as ``model``; the first fault becomes a ``UserError`` that names file, table and key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = error.errors()
        # A misspelt key often leaves its right name missing as well: name the cause, not the consequence.
        fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
        where = [*table, *fault["loc"]]
        if fault["type"] == "extra_forbidden":
            known = known_keys(model, fault["loc"][:-1])
            raise unknown_key(path, where[:-1], str(where[-1]), known) from error
        raise _bad_value(path, where, fault) from error


def unknown_key(path: Path, table: Sequence[str | int], key: str, known: Iterable[str]) -> UserError:
    """The error for a key that means nothing, with the nearest key that does."""
    known = sorted(known)
    like = nearest(key, known)
    advice = f"did you mean {like!r}?" if like else ""
    return UserError(
        f"{_place(table)}: unknown key {key!r}",
        where=path,
        expected=f"one of {', '.join(known)}" if known else "",
        next_step=advice,
    )


def _bad_value(path: Path, where: Sequence[str | int], fault: Any) -> UserError:
    *table, key = where or ["the file"]
    if isinstance(key, int) and table:
        *table, name = table
        key = f"{name}, item {key + 1}"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "missing":
        return UserError(f"{_place(table)}: key {key!r} is missing", where=path)
    shown = "" if isinstance(fault.get("input"), dict | list) else f" = {fault.get('input')!r}"
    return UserError(f"{_place(table)}: {key}{shown}: {message}", where=path)


def _place(table: Sequence[str | int]) -> str:
    """``[agent.limits]``; the tables of an array are counted from 1: ``[[job]] number 1``."""
    if not table:
        return "top level"
    *names, last = table
    if isinstance(last, int):
        return f"[[{'.'.join(map(str, names))}]] number {last + 1}"
    return f"[{'.'.join(map(str, table))}]"


def known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Keys of the table that ``location`` leads to, starting at ``model``."""
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return []
        if isinstance(part, str) and part in _fields(current):
            current = _table_of(_fields(current)[part])
    return sorted(_fields(current)) if current else []


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """The table model inside an annotation such as ``X | None``, ``tuple[X, ...]`` or ``dict[str, X]``."""
    if inspect.isclass(annotation) and typing.get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in typing.get_args(annotation):
        found = _table_of(argument)
        if found:
            return found
    return None
