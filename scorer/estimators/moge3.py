"""MoGe-3 (ViT-L): the points that an image shows, in the camera's axes, by the authors' own package.

The package comes from git at a pinned commit. Source: protocol 4dcb-1, MoGe-3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contract import checkpoints
from contract.errors import UserError
from scorer.estimators.base import halved_on_oom, package_fault
from scorer.estimators.weights import checkpoint_file, readable

if TYPE_CHECKING:
    import torch

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

PACKAGE = "the package at the commit that the scorer image pins, which has moge.model.v3"
RESOLUTION_LEVEL = 9
REFINE_STEPS = 3


class PointMapper:
    """The loaded model."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._model = model
        self._device = device

    def points(self, image: Image) -> tuple[Floats, Mask, Floats]:
        """Points float32 (H, W, 3), where they are known bool (H, W), and intrinsics float32 (3, 3).

        image : uint8 (H, W, 3) RGB, at full resolution; the package reduces it itself. Camera axes: x right,
        y down, z forward, at the model's own scale. NaN where the mask is false. The intrinsics are those of
        the unit image. Raises ``ValueError`` for another shape or type, or results of other shapes, and
        ``MemoryError`` when the image does not fit.
        """
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise ValueError(f"an image is uint8 (H, W, 3), not {image.dtype} {image.shape}")
        # There is no half an image, but what runs out of memory is said in one way.
        points, mask, intrinsics = halved_on_oom(self._inferred, [image])
        shapes = points.shape, mask.shape, intrinsics.shape
        if shapes != (image.shape, image.shape[:2], (3, 3)):
            raise ValueError(f"the package's points, mask and intrinsics have the shapes {shapes}")
        points[~mask] = np.nan
        return points, mask, intrinsics

    def _inferred(self, batch: list[Image]) -> tuple[Floats, Mask, Floats]:
        import torch

        (image,) = batch
        with torch.inference_mode():
            # A copy: decoded frames may be read-only, of which PyTorch warns.
            pixels = torch.from_numpy(np.array(image, order="C")).to(self._device)
            found = self._model.infer(
                pixels.permute(2, 0, 1).float() / 255,
                resolution_level=RESOLUTION_LEVEL,
                refine_steps=REFINE_STEPS,
            )
            mask: Mask = found["mask"].bool().cpu().numpy()
            return _array(found["points"]), mask, _array(found["intrinsics"])


def _array(tensor: torch.Tensor) -> Floats:
    # A copy: what is written to must not be memory that the package still uses.
    array: Floats = tensor.float().cpu().numpy().copy()
    return array


class Moge3:
    """MoGe-3 ViT-L."""

    name = checkpoints.MOGE3
    directory = checkpoints.MOGE3
    requires = ("torch", "moge")

    def load(self, device: torch.device, root: Path) -> PointMapper:
        """The model from the store ``root``.

        Raises ``UserError`` when package or file is missing, or one of them is not what is needed.
        """
        fault = package_fault("moge")
        if fault:
            raise UserError(fault)
        path = checkpoint_file(root, self.directory, checkpoints.CHECKPOINTS[self.name].weights.path)
        try:
            from moge.model.v3 import MoGeModel
        except ImportError as error:
            raise UserError(f"package moge cannot be used: {error}", expected=PACKAGE) from error
        with readable(path):
            model = MoGeModel.from_pretrained(str(path))
        return PointMapper(model.eval().requires_grad_(False).to(device), device)


MOGE3 = Moge3()
