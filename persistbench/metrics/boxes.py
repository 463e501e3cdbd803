"""Boxes of masks, with the coordinate rules of the protocol (spec 70 §7.3, §7.4, §7.7).

The rules disagree with each other: the largest coordinate is never reached, ``x / size * size`` may
truncate one low, some crops leave their last row out and some do not. A score is comparable only if they
are kept.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

MARGIN = 0.1
Box = tuple[float, float, float, float]  # left, top, right, bottom, as fractions of width and height
PixelBox = tuple[int, int, int, int]


def extents(mask: np.ndarray) -> PixelBox | None:
    """The first and last column and row of true pixels as (x0, y0, x1, y1), all inclusive; None when
    empty.
    """
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if rows.size == 0:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])


def mask_box(mask: np.ndarray, margin: float = MARGIN) -> Box:
    """The box of a boolean (H, W) mask widened by ``margin`` of its extent on each side; all when it is
    empty.
    """
    found = extents(mask)
    if found is None:
        return 0.0, 0.0, 1.0, 1.0
    height, width = mask.shape
    x0, y0, x1, y1 = found
    dx, dy = margin * (x1 - x0), margin * (y1 - y0)
    return (
        max(x0 - dx, 0) / width,
        max(y0 - dy, 0) / height,
        min(x1 + dx, width - 1) / width,
        min(y1 + dy, height - 1) / height,
    )


def to_pixel(value: float, size: int) -> int:
    """One coordinate in pixels: truncated, at most ``size - 1``."""
    return int(min(max(value * size, 0), size - 1))


def pixel_box(box: Box, size: tuple[int, int]) -> PixelBox:
    """A box in pixels of a (height, width) image."""
    height, width = size
    return (
        to_pixel(box[0], width),
        to_pixel(box[1], height),
        to_pixel(box[2], width),
        to_pixel(box[3], height),
    )


def place_mask(mask: np.ndarray, matched: Box, margin: float = MARGIN) -> np.ndarray:
    """The reference mask's crop pasted where the object was found: the prompt of the tracker, boolean (H, W).

    The crop leaves its last row and column out, so an object of one pixel gives an empty prompt.
    """
    height, width = mask.shape
    x0, y0, x1, y1 = pixel_box(mask_box(mask, margin), mask.shape)
    qx0, qy0, qx1, qy1 = pixel_box(matched, mask.shape)
    placed = np.zeros_like(mask, dtype=bool)
    crop = mask[y0:y1, x0:x1]
    if crop.size == 0:
        return placed
    size = (max(1, qx1 - qx0), max(1, qy1 - qy0))
    grey = Image.fromarray(crop.astype(np.uint8) * 255).resize(size, Image.NEAREST)
    pasted = np.asarray(grey) > 0
    bottom, right = min(qy0 + size[1], height), min(qx0 + size[0], width)
    placed[qy0:bottom, qx0:right] = pasted[: bottom - qy0, : right - qx0]
    return placed


def appearance_crop(frame: np.ndarray, mask: np.ndarray, margin: float = MARGIN) -> np.ndarray:
    """The crop kept for viewing: the box rounded to float32, last row and column included."""
    box = mask_box(mask, margin)
    left, top, right, bottom = (float(np.float32(side)) for side in box)
    x0, y0, x1, y1 = pixel_box((left, top, right, bottom), mask.shape)
    return frame[y0 : y1 + 1, x0 : x1 + 1]


def enlarged_size(size: tuple[int, int], least: int = 64) -> tuple[int, int]:
    """(height, width) scaled up so that the short side is ``least``; unchanged if it is that long already."""
    short = min(size)
    if short >= least:
        return size
    height, width = (least if side == short else round(side * least / short) for side in size)
    return height, width
