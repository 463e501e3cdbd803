"""Directories for what is made once and loaded again: compiled kernels, extracted tracers.

What lies there is believed (compiled code is run), so only a directory of our own that nobody else can write
is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

KERNELS = "NUMBA_CACHE_DIR"
SHIPPED = "FOURDCB_KERNELS"
"""Names a directory with kernels that were compiled beforehand, a folder for each state of the sources: an
image's, which a container may be unable to write."""
_KEPT = 6
"""Compiled versions of the sources that are kept."""


def private_directory(name: str, env: Mapping[str, str] | None = None) -> Path:
    """A writable directory for ``name``: in the user's cache, else in the system's temporary directory.

    Works without a home directory and in a read-only installation; when nothing known can be used, a new
    temporary directory is made, and what it holds is lost with it.
    """
    for candidate in _candidates(name, os.environ if env is None else env):
        if _private(candidate):
            return candidate
    return Path(tempfile.mkdtemp(prefix=f"4dcodebench-{name}-"))


def kernel_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where numba keeps compiled kernels of exactly these sources.

    numba looks only at the file of the kernel itself: after an edit of a kernel that it calls, in another
    file, it would go on running the old code, and scores would be wrong in silence. So each state of the
    sources gets a directory of its own; the oldest ones go.
    """
    parent = private_directory("numba", env)
    directory = parent / _sources()
    known = directory.is_dir()
    if not known:
        _copy_shipped(directory, os.environ if env is None else env)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not known:
        others = [path for path in parent.iterdir() if path.is_dir() and path != directory]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[_KEPT - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
    return directory


def use_kernel_directory() -> None:
    """Point numba there, unless the user has chosen a place. Must come before numba's first import."""
    if KERNELS not in os.environ:
        os.environ[KERNELS] = str(kernel_directory())


def _copy_shipped(directory: Path, env: Mapping[str, str]) -> None:
    """Take over the kernels that came with the image. What cannot be copied is compiled."""
    source = Path(env.get(SHIPPED, ""), directory.name)
    if not env.get(SHIPPED) or not source.is_dir():
        return
    staged = Path(tempfile.mkdtemp(prefix=".", dir=directory.parent))
    try:
        shutil.copytree(source, staged / "kernels")
        for folder, _, _ in os.walk(staged):
            Path(folder).chmod(0o700)  # an image's may be read-only; numba adds to them
        # Whole or not at all; fails where another process was first.
        (staged / "kernels").rename(directory)
    except OSError:
        pass
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@cache
def _sources() -> str:
    """Digest of every source file of the scorer that holds kernels."""
    root = Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        text = path.read_bytes()
        if b"njit" in text:
            total.update(str(path.relative_to(root)).encode() + b"\0" + text + b"\0")
    return total.hexdigest()[:16]


def _candidates(name: str, env: Mapping[str, str]) -> Iterator[Path]:
    homes = [env.get("XDG_CACHE_HOME", "")]
    if env.get("HOME"):
        homes.append(env["HOME"] + "/.cache")
    yield from (Path(home) / "4dcodebench" / name for home in homes if Path(home).is_absolute())
    yield Path(tempfile.gettempdir()) / f"4dcodebench-{os.getuid()}-{name}"


def _private(path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return ours and os.access(path, os.W_OK | os.X_OK)
