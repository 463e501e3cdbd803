"""How a frame becomes the depth network's input. Source: protocol 4dcb-1, Video Depth Anything."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from scorer.estimators.video_depth_anything_sizes import LARGE, PATCH

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]

STRETCHED = 1.78
"""Ratio of the sides from which on the short side shrinks."""
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def input_size(height: int, width: int, side: int = LARGE.side) -> tuple[int, int]:
    """(width, height) of the network's input for a video of ``height`` × ``width``: multiples of 14.

    side : short side of the input for a video that is not stretched. A strip so long that the rule leaves no
    patch across gets one.
    """
    ratio = max(width, height) / min(width, height)
    if ratio > STRETCHED:
        side = max(round(side * (STRETCHED - 0.003) / ratio / PATCH), 1) * PATCH
    scale = max(side / height, side / width)
    least = math.ceil(side / PATCH) * PATCH

    def fitted(length: int) -> int:
        return max(round(scale * length / PATCH) * PATCH, least)

    return fitted(width), fitted(height)


def network_input(frame: Image, size: tuple[int, int]) -> Floats:
    """``frame`` uint8 (H, W, 3) RGB as float32 (3, h, w), ``size`` being (w, h).

    Resized bicubically, ImageNet's mean taken off, divided by its deviation. Raises ``ValueError`` for
    another shape or type.
    """
    import cv2

    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise ValueError(f"a frame is uint8 (H, W, 3), not {frame.dtype} {frame.shape}")
    unit = frame.astype(np.float32) / np.float32(255)
    resized = cv2.resize(unit, size, interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(((resized - MEAN) / DEVIATION).transpose(2, 0, 1))
