"""The reference video as the estimators get it: its sampled frames, and facts from decoding it once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from contract.constants import sampled_frames, stride
from contract.names import DYNAMIC_MASK_KEY
from world.npz import Archive, ArchiveError
from world.video import Image, VideoInfo, frames

T = TypeVar("T")
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Clip:
    """A video that decodes to its end. annotation : ``dynamic_mask.npz`` of the case, if it has one."""

    path: Path
    info: VideoInfo
    annotation: Path | None = None

    @property
    def stride(self) -> int:
        """Frames between samples."""
        return stride(self.info.frames)

    @property
    def samples(self) -> int:
        """How many frames are sampled."""
        return len(sampled_frames(self.info.frames))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in display orientation."""
        return self.info.height, self.info.width

    def frames(self) -> Iterator[Image]:
        """Every sampled frame, uint8 (H, W, 3) RGB. Raises ``VideoError``; ``ValueError`` on another count.

        Frames must be of one size: a video that changes it in between can be decoded, but not estimated.
        """
        count = 0
        for count, image in enumerate(frames(self.path, self.stride), 1):
            if image.shape[:2] != self.size:
                found = f"{image.shape[1]}×{image.shape[0]}"
                raise ValueError(f"frame {self.frame(count - 1)} is {found}, the first was {self._pixels}")
            yield image
        if count != self.samples:
            raise ValueError(f"{count} frames sampled where {self.samples} were counted; has it changed?")

    def first(self) -> Image:
        """Frame 0."""
        source = frames(self.path)
        try:
            return next(source)
        finally:
            source.close()  # type: ignore[attr-defined]

    def frame(self, sample: int) -> int:
        """Index in the video of a sampled frame."""
        return sample * self.stride

    def mask(self) -> Mask | None:
        """Annotated mask (H, W) of frame 0, or None without an annotation of this size that marks anything.

        Raises ``ValueError`` when the annotation cannot be read.
        """
        if self.annotation is None:
            return None
        try:
            with Archive.open(self.annotation) as archive:
                shape = archive.header(DYNAMIC_MASK_KEY).shape
                if len(shape) != 3 or shape[0] < 1 or shape[1:] != self.size:
                    return None
                mask: Mask = archive.rows(DYNAMIC_MASK_KEY, 0, 1)[0] != 0
        except ArchiveError as error:
            raise ValueError(f"{self.annotation}: {error}") from error
        return mask if mask.any() else None

    @property
    def _pixels(self) -> str:
        return f"{self.info.width}×{self.info.height}"


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` items; the last one may be shorter."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch
