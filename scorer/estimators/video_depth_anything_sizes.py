"""Sizes of the depth network. Source: protocol 4dcb-1, Video Depth Anything."""

from __future__ import annotations

from dataclasses import dataclass

PATCH = 14
"""Side of the encoder's patches, in pixels of its input."""
WINDOW = 32
"""Frames that the network sees together."""
ENCODED = 8
"""Frames that the encoder works on at a time; it sees each alone."""


@dataclass(frozen=True)
class Architecture:
    """What differs between the published networks.

    width, depth, heads : of the encoder. grid : patches a side that it was trained with.
    taps : the four blocks (from 0) whose output is used. features : channels of the fusion.
    channels : of the four levels.
    """

    width: int
    depth: int
    heads: int
    taps: tuple[int, int, int, int]
    features: int
    channels: tuple[int, int, int, int]
    grid: int = 37

    def __post_init__(self) -> None:
        if not self.heads or self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not share a width of {self.width}")
        if list(self.taps) != sorted(set(self.taps)) or self.taps[-1] >= self.depth:
            raise ValueError(f"taps {self.taps} are not ascending blocks of {self.depth}")
        if any(size < 1 or size % 32 for size in (self.features, *self.channels[2:])):
            raise ValueError("features and the last two channels must be multiples of 32")

    @property
    def side(self) -> int:
        """Short side of the input, pixels."""
        return self.grid * PATCH


LARGE = Architecture(1024, 24, 16, (4, 11, 17, 23), 256, (256, 512, 1024, 1024))
SMALL = Architecture(384, 12, 6, (2, 5, 8, 11), 64, (48, 96, 192, 384))
