"""What a record says about the circumstances: code, machine, interpreter, inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import contract
from harness.runtime.config import REPOSITORY


@cache
def circumstances() -> dict[str, Any]:
    """Version and commit of the harness, machine and interpreter; the same for every run of one launch."""
    return {
        "harness": contract.__version__,
        "protocol": contract.PROTOCOL,
        **_commit(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def _commit() -> dict[str, Any]:
    """Commit of the repository and whether tracked files differ from it; None outside a checkout or without
    git.
    """
    if not (REPOSITORY / ".git").exists():
        return {"commit": None, "modified": None}
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit or None, "modified": None if changes is None else bool(changes)}


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=REPOSITORY, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def sha256(path: Path) -> str:
    """Hash of a file's content, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text_sha256(text: str) -> str:
    """Hash of a text's UTF-8 bytes, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
