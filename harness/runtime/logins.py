"""Login files: are they there, whose are they, how long do they last.

Files of Claude Code (``claudeAiOauth.expiresAt`` in milliseconds), Codex (``tokens.access_token``, a JWT with
``exp``) and Antigravity (``expiry`` as text or ``expiry_date``) are understood, and so is every JSON document
that names its tokens and their end in a similar way. Of anything else only existence and permissions are
checked.
"""

from __future__ import annotations

import base64
import json
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.errors import UserError

LARGEST = 1 << 20
"""Bytes of a login file; more is none."""
_EXPIRY = re.compile(r"expires?_?(at|on|date)?|expiry(_?date)?|exp", re.IGNORECASE)
_REFRESH_EXPIRY = re.compile(r"refresh_?token_?(expires?_?(at|on)|expiry)", re.IGNORECASE)
_REFRESH = re.compile(r"refresh_?token", re.IGNORECASE)
_ACCESS = re.compile(r"access_?token", re.IGNORECASE)
_MILLISECONDS = 10**11
"""Numbers from here on are milliseconds since 1970, smaller ones seconds."""
_LATEST = 253_402_300_800
"""Seconds from 1970 to the year 10000. What says it ends later, or before 1970, does not say when it ends."""


@dataclass(frozen=True)
class Validity:
    """How long a login lasts. ``expires``: seconds since 1970, None when it does not say.

    refreshable : it holds a token by which the agent gets itself a new one.
    """

    expires: float | None = None
    refreshable: bool = False


def read_login(source: Path, agent: str) -> bytes:
    """Content of a login file. Raises ``UserError`` when it is missing, empty, unreadable or no file."""
    try:
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"the credential of {agent} is no file", where=source)
        if status.st_size > LARGEST:
            raise UserError(f"the credential of {agent} has {status.st_size} bytes", where=source,
                            expected=f"at most {LARGEST}")  # fmt: skip
        content = source.read_bytes()
    except FileNotFoundError as error:
        raise UserError(
            f"the credential of {agent} does not exist",
            where=source,
            next_step="put or link the file there, see docs/agents.md",
        ) from error
    except OSError as error:
        raise UserError(
            f"the credential of {agent} cannot be read: {error.strerror}", where=source
        ) from error
    if not content.strip():
        raise UserError(
            f"the credential of {agent} is empty", where=source, next_step="log in with the agent's CLI"
        )
    return content


def check_login(source: Path, agent: str, timeout: int, now: float | None = None) -> list[str]:
    """Everything about a login that can be checked before a run of ``timeout`` seconds. Returns warnings.

    Raises ``UserError`` for a file that is missing, empty, writable by others, or expired for good.
    """
    content = read_login(source, agent)
    warnings = _check_mode(source, agent)
    validity = validity_of(parse(content))
    if validity.expires is None or validity.refreshable:
        return warnings
    left = validity.expires - (time.time() if now is None else now)
    end = f"{datetime.fromtimestamp(validity.expires, UTC):%Y-%m-%d %H:%M} UTC"
    if left <= 0:
        raise UserError(
            f"the credential of {agent} expired at {end}",
            where=source,
            next_step="log in with the agent's CLI again",
        )
    if left < timeout:
        warnings.append(
            f"the credential of {agent} expires at {end}, before a run of {timeout} s would end, "
            "and cannot be refreshed"
        )
    return warnings


def _check_mode(source: Path, agent: str) -> list[str]:
    real = source.resolve()
    mode = stat.S_IMODE(real.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(
            f"the credential of {agent} can be written by others (mode {mode:04o})",
            where=real,
            next_step=f"chmod 600 {real}",
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        return [
            f"the credential of {agent} can be read by others (mode {mode:04o}); mend it: chmod 600 {real}"
        ]
    return []


def parse(content: bytes) -> Any:
    """The JSON document in a login file, None when it is none; ``Infinity`` and ``NaN`` are no JSON."""
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def validity_of(document: Any, now: float | None = None) -> Validity:
    """When the login in ``document`` ends, the earliest of its access tokens counting."""
    now = time.time() if now is None else now
    ends: list[float] = []
    refreshable = False
    for table in tables(document):
        if any("token" in name.lower() and isinstance(value, str) for name, value in table.items()):
            ends += [end for name, value in table.items() if (end := _end(name, value)) is not None]
        last = [_instant(value) for name, value in table.items() if _REFRESH_EXPIRY.fullmatch(name)]
        alive = all(end is None or end > now for end in last)
        refreshable |= alive and any(
            isinstance(value, str) and value for name, value in table.items() if _REFRESH.fullmatch(name)
        )
    return Validity(min(ends, default=None), refreshable)


def _end(name: str, value: object) -> float | None:
    """When the access token that a member holds or speaks of ends."""
    if _ACCESS.fullmatch(name):
        return _jwt_end(value)
    return _instant(value) if _EXPIRY.fullmatch(name) else None


def tables(document: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object inside a document, the outermost first."""
    todo = [document]
    while todo:
        item = todo.pop(0)
        if isinstance(item, dict):
            yield item
            todo += item.values()
        elif isinstance(item, list):
            todo += item


def _instant(value: object) -> float | None:
    """A point in time as seconds since 1970: a number of seconds or milliseconds, or ISO 8601 text.

    None for anything else, and for what no calendar holds: an agent may have written it, and Go writes the
    year 1 for "never".
    """
    moment = _seconds(value)
    return moment if moment is not None and 0 < moment < _LATEST else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) and 0 < value < _LATEST * 1000:
        return float(value) / 1000 if value >= _MILLISECONDS else float(value)
    if isinstance(value, str):
        # Go writes nanoseconds; datetime takes six digits.
        text = re.sub(r"(\.\d{6})\d+", r"\1", value.strip())
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _jwt_end(value: object) -> float | None:
    claims = jwt_claims(value)
    return _instant(claims.get("exp")) if claims else None


def jwt_claims(value: object) -> dict[str, Any] | None:
    """Claims of a JSON Web Token (not verified: only its owner's clock is asked), None when it is none."""
    if not isinstance(value, str) or value.count(".") != 2:
        return None
    body = value.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def last_use(document: Any) -> float | None:
    """The latest moment that a login speaks of (``last_refresh``, ends of tokens): the newer login has the
    later one.
    """
    found = []
    for table in tables(document):
        for name, value in table.items():
            if _EXPIRY.fullmatch(name) or _REFRESH_EXPIRY.fullmatch(name) or name == "last_refresh":
                found.append(_instant(value))
            elif "token" in name.lower():
                found.append(_jwt_end(value))
    return max((moment for moment in found if moment is not None), default=None)


def secret_texts(content: bytes) -> list[str]:
    """Long texts inside a JSON document (its tokens), or the whole content when it is none."""
    document = parse(content)
    if document is None:
        return [content.decode("utf-8", "surrogateescape").strip()]
    return [
        text
        for table in tables({"": document})
        for value in table.values()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str) and len(text) >= 16
    ]
