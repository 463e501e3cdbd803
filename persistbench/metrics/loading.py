"""Frames and masks at the size at which they are scored (spec 70 §7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..images import open_rgb

LIMIT = (384, 512)  # height, width
Size = tuple[int, int]


def evaluation_size(source: Size, limit: Size = LIMIT) -> Size:
    """The (height, width) at which a (height, width) video is scored: fitted inside ``limit``, enlarged if
    small.
    """
    height, width = source
    ratio = width / height
    if ratio > limit[1] / limit[0]:
        return int(limit[1] / ratio), limit[1]
    return limit[0], int(limit[0] * ratio)


def load_frames(files: Sequence[Path], size: Size) -> np.ndarray:
    """Frames at (height, width) ``size``, uint8 (T, H, W, 3), bilinear; the aspect is not kept.

    Errors: ``OSError``, ``ValueError`` naming the file.
    """
    height, width = size
    frames = np.empty((len(files), height, width, 3), np.uint8)
    for index, path in enumerate(files):
        frames[index] = np.asarray(open_rgb(path).resize((width, height), Image.BILINEAR))
    return frames


def load_masks(files: Sequence[Path], size: Size) -> np.ndarray:
    """Masks at (height, width) ``size``, boolean (T, H, W): nearest pixel, every grey value from 1 on is
    true.

    Errors: ``OSError``, ``ValueError`` naming the file.
    """
    height, width = size
    masks = np.empty((len(files), height, width), bool)
    for index, path in enumerate(files):
        try:
            with Image.open(path) as image:
                grey = image.convert("L").resize((width, height), Image.NEAREST)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path} is not a readable mask: {error}") from None
        masks[index] = np.asarray(grey) > 0
    return masks


def start_of(visible: np.ndarray) -> int:
    """The frame in which the object is looked for: the first visible one, else the first."""
    return int(np.argmax(visible)) if visible.any() else 0
