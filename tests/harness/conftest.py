"""A laboratory per test, which must leave no process behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness_lab import Lab, eventually


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Two cases and no configuration yet."""
    laboratory = Lab(tmp_path)
    yield laboratory
    gone = eventually(lambda: not laboratory.processes(), 10.0)
    left = laboratory.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert gone, f"processes outlived their launcher: {left}"
