"""Fixtures around a real Apptainer, found or installed by ``scripts/engines.sh``.

A test module asks for them with ``pytest_plugins = ("apptainer_engine",)``. Where it cannot be had the tests
are skipped and say why; with ``CI=true`` they fail, so that a build cannot pass without it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ENGINES = Path(__file__).resolve().parents[2] / "scripts" / "engines.sh"
UNAVAILABLE = 3


@pytest.fixture(scope="session")
def base_sif() -> Path:
    """Image file of a minimal Debian with python3."""
    done = subprocess.run([str(ENGINES), "base-sif"], capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE and os.environ.get("CI") != "true":
        pytest.skip(f"Apptainer missing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
