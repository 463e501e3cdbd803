"""Shared by all tests: helpers on the path, and the fixture worlds."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "helpers"))

# Programs keep an ignored signal ignored, and inherit it from a suite that was started with nohup or "&".
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return HERE.parent


@pytest.fixture(scope="session")
def fixture_worlds() -> Path:
    """Small worlds, submissions and the values that the reference scorer returned for them. Read only."""
    return HERE / "fixtures" / "worlds"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their length: workers must agree on names, and some contents carry the time."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which tests a worker must run together: those of a file, and all that share an engine, whose launchers
    clean up after each other.
    """
    for item in items:
        shared = [name for name in ("docker", "sif", "slurm") if item.get_closest_marker(name)]
        group = shared[0] if shared else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
