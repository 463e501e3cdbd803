"""Binary masks of an image: the disc, closing, and the band along an edge.

Pixels outside the image never influence a result: dilation treats them as background, erosion as foreground.
"""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@lru_cache(maxsize=32)
def disc(radius: int) -> NDArray[np.uint8]:
    """Structuring element of ``2·radius + 1`` a side, uint8 0/1; equals OpenCV's ``MORPH_ELLIPSE``.

    The row at offset d from the centre reaches ``round(radius·sqrt((radius² − d²)/radius²))`` pixels to each
    side (half to even), so the top and bottom rows are single pixels. It is built here because libraries have
    changed theirs between releases.
    """
    side = 2 * radius + 1
    element = np.zeros((side, side), np.uint8)
    inverse = 1.0 / (radius * radius) if radius else 0.0
    for offset in range(-radius, radius + 1):
        reach = round(radius * math.sqrt((radius * radius - offset * offset) * inverse))
        element[offset + radius, radius - reach : radius + reach + 1] = 1
    element.setflags(write=False)
    return element


def close(mask: Mask, radius: int) -> Mask:
    """Dilate, then erode once with the disc. (H, W) bool → (H, W) bool."""
    grown = cv2.dilate(_bytes(mask), disc(radius))
    return cv2.erode(grown, disc(radius)).astype(np.bool_)


def edge_band(mask: Mask, radius: int) -> Mask:
    """Pixels within the disc of the mask's edge: dilated and not eroded. (H, W) bool → (H, W) bool."""
    plain = _bytes(mask)
    element = disc(radius)
    return (cv2.dilate(plain, element) > cv2.erode(plain, element)).astype(np.bool_)


def pack(mask: Mask) -> NDArray[np.uint8]:
    """(H, W) bool → uint8 (H, ceil(W/8)), most significant bit first, zero padded."""
    return np.packbits(mask, axis=-1)


def _bytes(mask: Mask) -> NDArray[np.uint8]:
    return np.ascontiguousarray(mask, np.bool_).view(np.uint8)
