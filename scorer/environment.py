"""Settings that must stand in the environment before numeric libraries are imported in a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from scorer.cachedir import KERNELS, kernel_directory

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
    if KERNELS not in env:
        env[KERNELS] = str(kernel_directory(env))
    return env
