"""Watching a video: facts first, then frames at a working size, one at a time.

Everything after this module works on small pictures: a cell of the working grid is ``factor`` × ``factor``
pixels of the video, so working coordinates times ``factor`` are pixel coordinates (cell centres at +0.5,
like pixel centres).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.constants import MAX_MESH_FRAMES
from contract.errors import UserError
from world.video import VideoError, frames, probe

Picture = npt.NDArray[np.float32]
"""Working picture, float32 (h, w, 3), RGB 0–255."""

WORKING_SIDE = 512
"""Longest side of a working picture. Outlines found at this size are good to about half a cell."""


@dataclass(frozen=True)
class Footage:
    """A video that has been found usable.

    frames, height, width, fps : facts of the video, exact.
    factor : pixels of the video per working cell, along each axis.
    """

    path: Path
    frames: int
    height: int
    width: int
    fps: Fraction
    factor: int

    @property
    def working_shape(self) -> tuple[int, int]:
        """Rows and columns of the working grid; the last row and column may reach beyond the picture."""
        return -(-self.height // self.factor), -(-self.width // self.factor)

    def pictures(self, step: int = 1) -> Iterator[Picture]:
        """Every ``step``-th frame at working size. Raises ``UserError`` when the file cannot be decoded."""
        try:
            for image in frames(self.path, step):
                yield shrink(image, self.factor)
        except (VideoError, OSError) as error:
            raise _unusable(self.path, error) from error


def open_footage(path: Path) -> Footage:
    """Decode ``path`` once and note its facts. Raises ``UserError`` when no world can be made for it."""
    try:
        info = probe(path)
    except (VideoError, OSError) as error:
        raise _unusable(path, error) from error
    if info.frames > MAX_MESH_FRAMES:
        raise UserError(
            f"has {info.frames} frames",
            where=path,
            expected=f"at most {MAX_MESH_FRAMES}, the most that a world can hold",
            next_step="cut the video or lower its frame rate",
        )
    factor = max(1, -(-max(info.height, info.width) // WORKING_SIDE))
    return Footage(path, info.frames, info.height, info.width, info.fps, factor)


def shrink(image: npt.NDArray[np.uint8], factor: int) -> Picture:
    """Mean over blocks of ``factor`` × ``factor`` pixels; the last row and column are repeated where they
    lack.
    """
    if factor == 1:
        return image.astype(np.float32)
    height, width = image.shape[:2]
    below, right = -height % factor, -width % factor
    if below or right:
        image = np.pad(image, ((0, below), (0, right), (0, 0)), mode="edge")
    total = np.zeros((image.shape[0] // factor, image.shape[1] // factor, 3), dtype=np.uint32)
    for row in range(factor):
        for column in range(factor):
            total += image[row::factor, column::factor]
    return (total / np.float32(factor * factor)).astype(np.float32)


def _unusable(path: Path, error: Exception) -> UserError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UserError(
        f"video cannot be used: {reason}", where=path, expected="a video that decodes to its end"
    )
