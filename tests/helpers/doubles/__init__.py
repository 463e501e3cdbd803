"""Doubles of the two packages that only git carries, put on the path where the real ones are not installed.

They implement the calls and results that the protocol states and nothing else; their numbers are simple
enough to know beforehand.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from contract.checkpoints import COTRACKER3, MOGE3, path_of

HERE = Path(__file__).parent


def path_for(package: str) -> Path | None:
    """The directory to put on the path for ``package``; None when the real one can be imported."""
    found = importlib.util.find_spec(package)
    real = found is not None and HERE not in Path(found.origin or "/").parents
    return None if real else HERE


def write_cotracker(store: Path, gain: float = 1.0) -> Path:
    """A checkpoint for the double of CoTracker3, in a model store. gain : 1 follows the clip's shift."""
    return _written({"gain": torch.tensor(gain)}, store / path_of(COTRACKER3))


def write_moge(store: Path, depth: float = 2.0) -> Path:
    """A checkpoint for the double of MoGe-3, in a model store. depth : of black, red adds up to 1."""
    return _written({"model": {"depth": torch.tensor(depth)}}, store / path_of(MOGE3))


def _written(state: dict[str, object], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path
