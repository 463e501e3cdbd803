"""A run's private copy of a login, and bringing back what the agent refreshed in it.

An access token lasts hours, a run may last longer: the agent's program then gets itself a new one, and with
some providers the old one is void from that moment. So a refreshed copy is written back to the operator's
file. An agent could have put anything into its copy, hence the conditions: it is the same document with
nothing but tokens and their dates changed, and it is newer than what the operator's file holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from contract.record import replacing
from harness.runtime.logins import LARGEST, jwt_claims, last_use, parse
from harness.runtime.plainfile import open_plain

_CHANGEABLE = re.compile(r".*token.*|.*expir.*|exp|last_refresh|.*refresh.*at", re.IGNORECASE)
"""Names of members that a refresh may change."""
_SUBJECT = ("sub", "email", "https://api.openai.com/auth.chatgpt_account_id")
_LONGEST_TEXT = 65_536


def copy_login(content: bytes, copy: Path) -> None:
    """Write a private copy, readable by its owner only from its first moment."""
    handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(content)


def read_copy(copy: Path) -> bytes | None:
    """What an agent has left of its copy; None when there is no such plain, small file."""
    try:
        with open_plain(copy) as stream:
            content = stream.read(LARGEST + 1)
    except OSError:
        return None
    return content if len(content) <= LARGEST else None


def write_back(source: Path, left: bytes | None, given: bytes | None = None) -> str:
    """Put a refreshed login into the operator's file. Returns what happened, empty when nothing was to do.

    source : the operator's file or a link to it. left : what the run left of its copy. given : what the copy
    was, where that is known; an untouched copy is nobody's refresh.
    """
    if left is None or left == given:
        return ""
    real = source.resolve()
    try:
        with _locked(real.parent):
            now = real.read_bytes()
            if now == left:
                return ""
            why = _unfit(parse(now), parse(left))
            if why:
                return f"the agent's copy of the login was not taken over: {why}"
            with replacing(real, mode=stat.S_IMODE(real.stat().st_mode)) as stream:
                stream.write(left)
    except OSError as error:
        return f"the agent's refreshed login could not be taken over: {error.strerror}"
    return "the agent refreshed its login, and the new one was taken over"


def clear_temporaries(source: Path) -> None:
    """Remove what a write-back of a killed launcher left beside a login."""
    real = source.resolve()
    pattern = re.compile(rf"\.{re.escape(real.name)}\.[a-z0-9_]{{8}}\.tmp")
    with suppress(OSError), _locked(real.parent):
        for path in real.parent.iterdir():
            if pattern.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One launcher at a time; the directory itself is the lock, so that none is left behind."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _unfit(old: Any, new: Any) -> str:
    """Why ``new`` is no refreshed ``old``; empty when it is."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return "it is no JSON object"
    changed = _difference(old, new, "")
    if changed:
        return f"{changed} was changed, which no refresh does"
    if not _newer(new, old):
        return "it is not newer than the file"
    return ""


def _newer(new: Any, old: Any) -> bool:
    one, other = last_use(new), last_use(old)
    return one is not None and (other is None or one > other)


def _difference(old: Any, new: Any, place: str) -> str:
    """The first member that a refresh does not change and that differs; empty when there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            here = f"{place}.{name}".lstrip(".")
            if name not in old or name not in new:
                if not _CHANGEABLE.fullmatch(name) or isinstance(old.get(name, new.get(name)), dict | list):
                    return here
                continue
            found = _difference(old[name], new[name], here)
            if found:
                return found
        return ""
    if old == new:
        return ""
    if not _CHANGEABLE.fullmatch(place.rpartition(".")[2]) or not _same_kind(old, new):
        return place or "the document"
    return "" if _same_subject(old, new) else f"the account of {place}"


def _same_kind(old: Any, new: Any) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return bool(new) and len(new) <= _LONGEST_TEXT and new.isprintable()
    numbers = (int, float)
    return isinstance(old, numbers) and isinstance(new, numbers) and not isinstance(new, bool)


def _same_subject(old: Any, new: Any) -> bool:
    before, after = jwt_claims(old), jwt_claims(new)
    if before is None:
        return True
    return after is not None and all(before.get(name) == after.get(name) for name in _SUBJECT)
