"""What the public judge returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def reference(repository: Path) -> Any:
    """Frame indices, pairings, plans, parsed replies and a small rating of the public program."""
    return json.loads((repository / "tests/fixtures/vlm_judge.json").read_text(encoding="utf-8"))
