"""torchvision beside a PyTorch for which its compiled part was not built."""

from __future__ import annotations

from functools import cache
from typing import Any

_LIBRARIES: list[Any] = []
"""Definitions end with the object that made them."""

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache
def usable() -> None:
    """Make ``import torchvision`` work.

    Importing it registers shapes for two operators of its compiled part, and fails where that part could not
    be loaded; nothing that the estimators call uses them.
    """
    import sys

    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    else:
        return
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}{_NMS}")
    _LIBRARIES.append(library)
    import torchvision  # noqa: F401
