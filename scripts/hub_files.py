"""Files in repositories of the Hugging Face hub: what there is, and where each can be had right now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import fetching
from fetching import RefusedError, Remote, UnreachableError

from contract.errors import UserError, one_line

_T = TypeVar("_T")
DATASET = "dataset"


@dataclass(frozen=True)
class Published:
    """A file of a repository.

    size : bytes. sha256 : hexadecimal, empty where it is not known. git : Git's name of a small file.
    """

    path: str
    size: int | None = None
    sha256: str = ""
    git: str = ""


def require_client(extra: str) -> None:
    """Raise ``UserError`` unless huggingface_hub is installed."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise UserError(
            "package huggingface_hub is not installed", next_step=f"pip install 'fourdcodebench[{extra}]'"
        ) from error


def resolve(
    repo: str, revision: str, path: str, *, kind: str | None = None, gate: str = "", gated: bool = False
) -> Remote:
    """Where a file can be had now.

    gate : what to say where access is granted one by one, as the hub tells or ``gated`` does.

    Raises ``RefusedError`` or ``UnreachableError``.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    address = hf_hub_url(repo, path, revision=revision, endpoint=_endpoint(), repo_type=kind)
    found = _asked(lambda: get_hf_file_metadata(address), address, f"{repo}/{path}", gate, gated)
    headers: dict[str, str] = {}
    if urlsplit(found.location).netloc == urlsplit(address).netloc:
        token = build_hf_headers().get("authorization")
        headers = {"Authorization": token} if token else {}
    return Remote(found.location, found.size, found.etag or "", headers)


def commit_of(repo: str, revision: str | None) -> str:
    """The commit that a branch, a tag or the default branch of a dataset stands at. Raises as ``resolve``."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=_endpoint())
    what = f"{repo} at {revision or 'its default branch'}"
    info = _patiently(lambda: api.repo_info(repo, revision=revision, repo_type=DATASET), api.endpoint, what)
    return str(info.sha)


def files_of(repo: str, commit: str) -> dict[str, Published]:
    """Every file of a dataset at a commit, by path. Raises as ``resolve``."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi(endpoint=_endpoint())

    def listed() -> Iterable[object]:
        return list(api.list_repo_tree(repo, recursive=True, revision=commit, repo_type=DATASET))

    found = [node for node in _patiently(listed, api.endpoint, repo) if isinstance(node, RepoFile)]
    return {
        node.path: Published(
            node.path, node.size, node.lfs.sha256 if node.lfs else "", "" if node.lfs else node.blob_id
        )
        for node in found
    }


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def _patiently(ask: Callable[[], _T], address: str, what: str) -> _T:
    """The answer, asked for again while the hub cannot be reached."""
    for attempt in range(fetching.ATTEMPTS):
        try:
            return _asked(ask, address, what)
        except UnreachableError:
            if attempt + 1 == fetching.ATTEMPTS:
                raise
        time.sleep(fetching.FIRST_WAIT * 2**attempt)
    raise AssertionError("unreachable")


def _asked(ask: Callable[[], _T], address: str, what: str, gate: str = "", gated: bool = False) -> _T:
    from huggingface_hub import errors

    host = urlsplit(address).netloc
    try:
        return ask()
    except errors.OfflineModeIsEnabled as error:
        raise RefusedError("HF_HUB_OFFLINE is set, so the hub is not asked; unset it to download") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if gate and status in (401, 403) and (gated or isinstance(error, errors.GatedRepoError)):
            raise RefusedError(gate) from error
        kind = UnreachableError if status >= 500 or status in (408, 429) else RefusedError
        raise kind(f"{host}: HTTP {status} for {what}") from error
    except Exception as error:  # whatever HTTP library the client uses: the network's fault
        raise UnreachableError(f"{host}: {one_line(str(error)) or type(error).__name__}") from error
