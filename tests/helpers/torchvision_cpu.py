"""torchvision beside a PyTorch for which its compiled part was not built.

Importing torchvision registers shapes for two operators of its compiled part, and fails where that part could
not be loaded. Nothing that the estimators call uses them, so declaring them is enough. transformers imports
torchvision too, wherever it is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

_SITE = Path(__file__).parent / "torchvision_site"
_LIBRARIES: list[Any] = []
"""Definitions end with the object that made them."""


@cache
def usable() -> None:
    """Make ``import torchvision`` work in this process."""
    found = PathFinder.find_spec("torchvision")
    if "torchvision" in sys.modules or found is None or not found.submodule_search_locations:
        return
    import torch

    try:
        for compiled in Path(found.submodule_search_locations[0]).glob("_C*.so"):
            torch.ops.load_library(compiled)
            return
    except OSError:
        pass
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment (default: this process's) for a Python in which ``import torchvision`` is to work."""
    made = dict(os.environ if given is None else given)
    made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_SITE), made.get("PYTHONPATH", ""))))
    return made


class OnImport:
    """Calls :func:`usable` when somebody imports torchvision, and finds nothing itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Part of Python's import protocol."""
        if name == "torchvision":
            usable()
