"""Directories: whether they can be written, and removing those that an agent could write to."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from contract.errors import UserError


def check_writable(directory: Path, key: str) -> None:
    """Raise ``UserError`` unless ``directory``, or the nearest one above it that exists, can be written.

    key : of the runtime file, which the message names. Nothing is created for the test.
    """
    there = directory
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{key} cannot be written (see {there})" if there != directory else f"{key} cannot be written",
            where=directory,
            expected="a directory of yours",
            next_step=f"change {key} in the runtime file, or the owner or mode of the directory",
        )


def remove_tree(path: Path) -> str:
    """Delete a file or directory without following links. Returns what is in the way, empty on success; never
    raises.

    Directories that their owner may not enter, and trees deeper than Python's stack, are left to chmod and
    rm.
    """
    if not path.is_symlink() and path.is_dir():
        with suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
    if not path.is_symlink() and not path.exists():
        return ""
    said = ""
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        done = subprocess.run([*command, "--", str(path)], capture_output=True, text=True, errors="replace")
        said = done.stderr.strip().splitlines()[0] if done.stderr.strip() else said
    return f"{path} could not be removed: {said}" if path.exists() else ""
