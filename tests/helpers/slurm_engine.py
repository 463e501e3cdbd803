"""Fixtures around a real SLURM cluster, found or started by ``scripts/engines.sh``.

A test module asks for them with ``pytest_plugins = ("slurm_engine",)``. Where no cluster can be had the tests
are skipped and say why; with ``CI=true`` they fail, so that a build cannot pass without it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINES = Path(__file__).resolve().parents[2] / "scripts" / "engines.sh"
UNAVAILABLE = 3


@pytest.fixture(scope="session")
def slurm_conf() -> str:
    """Configuration of a cluster that answers; in the environment of this process from now on."""
    lives_with = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    words = [str(ENGINES), "slurm", "start", "--for", str(lives_with)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE and os.environ.get("CI") != "true":
        pytest.skip(f"SLURM missing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    conf = done.stdout.strip().partition("SLURM_CONF=")[2]
    os.environ["SLURM_CONF"] = conf
    return conf


@pytest.fixture
def no_tasks_left(slurm_conf: str) -> Iterator[None]:
    """Fails the test when it leaves a job behind, and ends it."""
    before = jobs()
    yield
    left = jobs() - before
    for number in left:
        subprocess.run(["scancel", "--signal=KILL", "--full", number], check=False)
        subprocess.run(["scancel", number], check=False)
    assert not left


def jobs() -> set[str]:
    """Numbers of all jobs that have not ended."""
    done = subprocess.run(["squeue", "--noheader", "--format=%A"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
