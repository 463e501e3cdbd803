"""Checkpoints that hold more than tensors: a training run's options and such are passed over, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scorer.estimators.weights import readable


class Inert:
    """Stands for an object of any class that is not a tensor's: takes everything, keeps and does nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As in unpickling, with whatever arguments."""

    def __setstate__(self, state: object) -> None:
        """As in unpickling."""


def load_inert(path: Path) -> Any:
    """What ``torch.save`` wrote, on the CPU: tensors and plain containers, and :class:`Inert` for the rest.

    PyTorch's restricted reader does the reading; every name in the file that it would refuse is made to mean
    ``Inert``, so that nothing the file names is imported or called. Raises ``UserError`` for a damaged file.
    """
    import torch

    with readable(path):
        foreign = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([(Inert, name) for name in foreign]):
            return torch.load(path, map_location="cpu", weights_only=True)
