"""Fixtures of the scorer's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from base_world import build_base_world
from scorer_lab import Lab


@pytest.fixture(scope="session")
def base_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sound world with its solution. Read only: copy it to change it."""
    return build_base_world(tmp_path_factory.mktemp("base") / "workspace")


@pytest.fixture
def lab(tmp_path: Path, base_world: Path) -> Lab:
    """An empty tree with one case."""
    return Lab(tmp_path / "lab", base_world)
