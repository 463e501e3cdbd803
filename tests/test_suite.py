"""The suite itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_modules_of_tests_have_names_of_their_own(repository: Path) -> None:
    """Test folders are no packages: of two modules with one name, only one could be imported."""
    names = Counter(path.name for path in (repository / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
