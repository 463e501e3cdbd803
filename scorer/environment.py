"""Settings that must stand in the environment before numeric libraries are imported in a worker."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "NUMBA_NUM_THREADS",
)


def worker_environment(jobs: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a worker when ``jobs`` of them run at once.

    Threads: ``OMP_NUM_THREADS`` where it is set, else the CPUs of this process shared among the jobs.
    Compiled code of numba goes to a directory that can be written, also without a home directory and in a
    read-only installation.
    """
    env = dict(os.environ if base is None else base)
    env.setdefault("IGL_NUM_THREADS", "1")
    share = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    threads = env.get("OMP_NUM_THREADS", share)
    for name in THREAD_VARIABLES:
        env.setdefault(name, threads)
    if "NUMBA_CACHE_DIR" not in env:
        env["NUMBA_CACHE_DIR"] = str(_cache_directory(env))
    return env


def _cache_directory(env: Mapping[str, str]) -> Path:
    homes = []
    if env.get("XDG_CACHE_HOME"):
        homes.append(Path(env["XDG_CACHE_HOME"]))
    if env.get("HOME"):
        homes.append(Path(env["HOME"]) / ".cache")
    candidates = [home / "4dcodebench" / "numba" for home in homes if home.is_absolute()]
    candidates.append(Path(tempfile.gettempdir()) / f"4dcodebench-{os.getuid()}-numba")
    for candidate in candidates:
        if _private(candidate):
            return candidate
    return Path(tempfile.mkdtemp(prefix="4dcodebench-numba-"))


def _private(path: Path) -> bool:
    """Whether ``path`` is (after creating it) a writable directory of our own that nobody else can write.

    The cache holds code that is loaded and run, so a directory that somebody else put there is not used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return ours and os.access(path, os.W_OK | os.X_OK)
