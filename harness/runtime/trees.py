"""Removing directories that an agent could write to, whatever it left in them."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


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
