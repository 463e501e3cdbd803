"""Looking at files that somebody else wrote: never block, never read more than a limit, one exception."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from world.validation.violation import reason

JSON_LIMIT = 4 << 20
"""Bytes of a camera or manifest; real ones have a few hundred."""


class Unreadable(ValueError):
    """A file that cannot be read; the message says why, without its path."""


def mode_of(path: Path) -> int | None:
    """Mode of what ``path`` leads to, or None when there is nothing. Links are followed.

    Names that no file system accepts (too long, with a NUL) lead to nothing.
    """
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return None


def is_file(path: Path) -> bool:
    """Whether ``path`` leads to a regular file."""
    mode = mode_of(path)
    return mode is not None and stat.S_ISREG(mode)


def is_directory(path: Path) -> bool:
    """Whether ``path`` leads to a directory."""
    mode = mode_of(path)
    return mode is not None and stat.S_ISDIR(mode)


def describe(mode: int) -> str:
    """What kind of thing a mode belongs to, in words."""
    names = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a link",
    }
    return names.get(stat.S_IFMT(mode), "a special file")


def names_in(directory: Path) -> list[str]:
    """Entry names, sorted. Raises ``OSError``."""
    return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths


def read_bytes(path: Path, limit: int) -> bytes:
    """Content of a regular file of at most ``limit`` bytes. Raises ``Unreadable``; never blocks on a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Unreadable(reason(error)) from error
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise Unreadable(f"is {describe(mode)}, not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise Unreadable(reason(error)) from error
    finally:
        os.close(handle)
    if len(data) > limit:
        raise Unreadable(f"is larger than {limit:,} bytes")
    return data


def read_json(path: Path) -> Any:
    """Parse a small UTF-8 JSON file (NaN and Infinity tokens are let through, as Python does).

    Raises ``Unreadable`` for everything that can be wrong with it.
    """
    data = read_bytes(path, JSON_LIMIT)
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise Unreadable("is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:
        raise Unreadable(f"is not JSON ({reason(error)})") from error
