"""The suite itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


def test_modules_of_tests_have_names_of_their_own(repository: Path) -> None:
    """Test folders are no packages: of two modules with one name, only one could be imported."""
    names = Counter(path.name for path in (repository / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_workers_keep_groups_of_tests_together(request: pytest.FixtureRequest) -> None:
    """Tests that share an engine clean up after each other; pytest and xdist must agree on their groups."""
    if "workerinput" not in vars(request.config):
        pytest.skip("one process: nothing is distributed")
    assert request.node.nodeid.endswith(f"@{Path(__file__)}")
