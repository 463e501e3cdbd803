"""The two pictures that the judge is shown: crops of equal size with a tag (spec 70 §7.6). Needs OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np

from .boxes import extents

PADDING = 0.1
WIDTH, HEIGHT = 256, 192
_BRIGHT = 127


def to_bytes(frame: np.ndarray) -> np.ndarray:
    """Pixels as uint8; floats in [0, 1] are scaled by 255 and truncated, which is exact for k / 255."""
    if frame.dtype == np.uint8:
        return frame
    scaled = frame * 255 if frame.size and frame.max() <= 1 else frame
    return np.clip(scaled, 0, 255).astype(np.uint8)


def object_crop(frame: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The object with a border of a tenth of its box, uint8 (h, w, 3), and how it was cut; all when it is
    empty.
    """
    height, width = mask.shape
    found = extents(mask)
    if found is None:
        whole = [0, 0, width, height]
        info = {
            "source": "full_frame_empty_mask",
            "bbox_xyxy": whole,
            "mask_area": 0,
            "padding_ratio": PADDING,
        }
        return to_bytes(frame), info
    x0, y0, x1, y1 = found[0], found[1], found[2] + 1, found[3] + 1
    dx, dy = round(PADDING * (x1 - x0)), round(PADDING * (y1 - y0))
    left, top, right, bottom = max(0, x0 - dx), max(0, y0 - dy), min(width, x1 + dx), min(height, y1 + dy)
    info = {
        "source": "mask_bbox_with_padding",
        "bbox_xyxy": [left, top, right, bottom],
        "tight_bbox_xyxy": [x0, y0, x1, y1],
        "mask_area": int(mask.sum()),
        "padding_ratio": PADDING,
    }
    return to_bytes(frame)[top:bottom, left:right], info


def tagged(image: np.ndarray, text: str) -> np.ndarray:
    """A copy of the image with a label in its top left corner, dark on bright ground or the reverse."""
    import cv2

    image = np.ascontiguousarray(image).copy()
    scale = max(0.35, min(image.shape[:2]) / 384)
    thickness = max(1, round(2 * scale))
    pad_x, pad_y = max(8, round(12 * scale)), max(6, round(10 * scale))
    margin = max(8, round(10 * scale))
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, thickness)
    low, high = (margin, margin), (margin + width + 2 * pad_x, margin + height + 2 * pad_y)
    bright = image[low[1] : high[1], low[0] : high[0]].mean() > _BRIGHT
    ground, letters, border = (
        ((0, 0, 0), (255, 255, 255), (0, 255, 255)) if bright else ((255, 255, 255), (0, 0, 0), (255, 0, 0))
    )
    cv2.rectangle(image, low, high, ground, -1)
    cv2.rectangle(image, low, high, border, thickness)
    origin = (margin + pad_x, margin + height + pad_y)
    cv2.putText(image, text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, letters, thickness, cv2.LINE_AA)
    return image


def judge_image(frame: np.ndarray, mask: np.ndarray, text: str) -> tuple[np.ndarray, dict[str, Any]]:
    """What the judge sees of an object, uint8 (192, 256, 3) RGB, and how it was cut."""
    import cv2

    crop, info = object_crop(frame, mask)
    return tagged(cv2.resize(crop, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA), text), info
