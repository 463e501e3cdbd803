"""Where the files of the model store can be had: the Hugging Face hub, and a plain web server for RAFT."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from fetching import RefusedError, Remote, probe
from hub_files import require_client, resolve

from contract.checkpoints import HUB, Checkpoint, CheckpointFile

TORCH_ENDPOINT = "FOURDCB_TORCH_ENDPOINT"
"""Environment variable: a mirror of download.pytorch.org. ``HF_ENDPOINT`` is the hub's own."""


def require_hub_client() -> None:
    """Raise ``UserError`` unless huggingface_hub is installed."""
    require_client("models")


def locate(checkpoint: Checkpoint, file: CheckpointFile) -> Remote:
    """Where ``file`` can be had now. Raises ``RefusedError`` or ``UnreachableError``."""
    if checkpoint.source != HUB:
        return probe(_mirrored(checkpoint.url))
    remote = _on_hub(checkpoint, file)
    if file.sha256 and re.fullmatch(r"[0-9a-f]{64}", remote.etag) and remote.etag != file.sha256:
        raise RefusedError(
            f"{file.source} has SHA-256 {remote.etag[:16]}… there, expected {file.sha256[:16]}…"
        )
    if file.size is not None and remote.size is not None and remote.size != file.size:
        raise RefusedError(f"{file.source} has {remote.size} bytes there, expected {file.size}")
    return remote


def gate_message(checkpoint: Checkpoint) -> str:
    """What to do about a model whose owner grants access one by one."""
    return (
        f"access is gated: open {checkpoint.page}, accept its licence ({checkpoint.licence}) with your "
        "Hugging Face account, wait until access is granted, then run `hf auth login` (or set HF_TOKEN) and "
        "this command again"
    )


def content_fault(path: Path, file: CheckpointFile, etag: str, digest: str) -> str:
    """What is wrong with a fetched file, or nothing. A file without a published SHA-256 is compared with its
    name in the hub's repository (Git's), where the server told it.
    """
    if file.sha256:
        return "" if digest == file.sha256 else f"SHA-256 is {digest[:16]}…, expected {file.sha256[:16]}…"
    if re.fullmatch(r"[0-9a-f]{40}", etag) and git_name(path) != etag:
        return "its content is not the one of the pinned revision"
    return ""


def git_name(path: Path) -> str:
    """Git's name of a small file's content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _mirrored(url: str) -> str:
    mirror = os.environ.get(TORCH_ENDPOINT, "").rstrip("/")
    return mirror + urlsplit(url).path if mirror else url


def _on_hub(checkpoint: Checkpoint, file: CheckpointFile) -> Remote:
    return resolve(
        checkpoint.repo,
        checkpoint.revision,
        file.source,
        gate=gate_message(checkpoint),
        gated=checkpoint.gated,
    )
