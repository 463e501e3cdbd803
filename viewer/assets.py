"""The web app's own files: known by name at the start, so that no request can name another."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from viewer.answers import packed

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_INLINE = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Asset:
    """A file with its compressed form."""

    body: bytes
    zipped: bytes
    kind: str
    etag: str


def load(folder: Path = STATIC) -> dict[str, Asset]:
    """Every file of the app by its path below ``static/``."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind and path.is_file():
            body = path.read_bytes()
            etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            found[path.relative_to(folder).as_posix()] = Asset(body, packed(body), kind, etag)
    return found


def policy(page: bytes) -> str:
    """Content security policy: our own files only; the import map, the one inline script, by its hash."""
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
        for script in _INLINE.findall(page)
    ]
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", *hashes]),
        "style-src": "'self'",
        "img-src": "'self' blob:",
        "media-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())
