"""Doubles of the two packages that only git carries, put on the path where the real ones are not installed.

They implement the calls and results that the protocol states and nothing else; their numbers are simple
enough to know beforehand.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("cotracker", "moge")


def path_for(package: str) -> Path | None:
    """The directory to put on the path for ``package``; None when the real one can be imported."""
    return None if importlib.util.find_spec(package) is not None else HERE
