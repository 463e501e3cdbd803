"""Where the files of the model store can be had: the Hugging Face hub, and a plain web server for RAFT."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from fetching import RefusedError, Remote, UnreachableError, probe

from contract.checkpoints import HUB, Checkpoint, CheckpointFile
from contract.errors import UserError, one_line

TORCH_ENDPOINT = "FOURDCB_TORCH_ENDPOINT"
"""Environment variable: a mirror of download.pytorch.org. ``HF_ENDPOINT`` is the hub's own."""


def require_hub_client() -> None:
    """Raise ``UserError`` unless huggingface_hub is installed."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise UserError(
            "package huggingface_hub is not installed", next_step="pip install 'fourdcodebench[models]'"
        ) from error


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
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    address = hf_hub_url(checkpoint.repo, file.source, revision=checkpoint.revision, endpoint=endpoint)
    try:
        found = get_hf_file_metadata(address)
    except errors.OfflineModeIsEnabled as error:
        raise RefusedError("HF_HUB_OFFLINE is set, so the hub is not asked; unset it to download") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403) and (checkpoint.gated or isinstance(error, errors.GatedRepoError)):
            raise RefusedError(gate_message(checkpoint)) from error
        kind = UnreachableError if status >= 500 or status in (408, 429) else RefusedError
        raise kind(
            f"{urlsplit(address).netloc}: HTTP {status} for {checkpoint.repo}/{file.source}"
        ) from error
    except Exception as error:  # whatever HTTP library the client uses: the network's fault
        reason = one_line(str(error)) or type(error).__name__
        raise UnreachableError(f"{urlsplit(address).netloc}: {reason}") from error
    headers: dict[str, str] = {}
    if urlsplit(found.location).netloc == urlsplit(address).netloc:
        token = build_hf_headers().get("authorization")
        headers = {"Authorization": token} if token else {}
    return Remote(found.location, found.size, found.etag or "", headers)
