"""The interpreter for tests of the Stirrup loop, which the project's own Python may be too old for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

VARIABLE = "FOURDCB_STIRRUP_PYTHON"


def interpreter() -> str | None:
    """A Python that has the package, which needs 3.12."""
    found = os.environ.get(VARIABLE) or str(Path(sys.prefix).parent / ".venv-stirrup" / "bin" / "python")
    return found if Path(found).is_file() else None


needs_stirrup = pytest.mark.skipif(
    interpreter() is None, reason=f"no Python 3.12 with stirrup ({VARIABLE}; scripts/test.sh makes one)"
)
