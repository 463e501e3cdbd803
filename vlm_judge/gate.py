"""Layer 1: is a render blank? Two statistics of every eighth frame, with the published thresholds.

Edges catch pictures without structure, flatness those of a single colour. Frames come scaled by FFmpeg's
default scaler to exactly these sizes, whatever their aspect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

EVERY = 8
EDGE_SIZE = (160, 90)
"""Width, height of the picture in which edges are counted."""
FLAT_SIZE = (96, 54)
EDGE_STEP = 6
"""Neighbours whose grey levels differ by more are an edge."""
LEAST_EDGE = 1.0
"""Per cent; below, a render is blank."""
MOST_TOP = 0.95
"""Share of the commonest colour; above, a render is blank."""


@dataclass(frozen=True)
class Gate:
    """edge : per cent of neighbours that form an edge. top : mean share of the commonest of 512 colours. Both
    None without a frame. gated : blank.
    """

    edge: float | None
    top: float | None
    gated: bool

    def as_json(self) -> dict[str, Any]:
        """Rounded as published; ``gated`` was decided before."""
        return {
            "edge": None if self.edge is None else round(self.edge, 3),
            "top_colour": None if self.top is None else round(self.top, 3),
            "gated": self.gated,
        }


class Counter:
    """Gathers the statistics frame by frame."""

    def __init__(self) -> None:
        self._frames = 0
        self._across = self._down = 0
        self._tops: list[float] = []

    def add(self, edges: Image, flat: Image) -> None:
        """One frame as uint8 RGB (90, 160, 3) and (54, 96, 3)."""
        grey = grey_of(edges)
        self._frames += 1
        self._across += int((np.abs(np.diff(grey, axis=1)) > EDGE_STEP).sum())
        self._down += int((np.abs(np.diff(grey, axis=0)) > EDGE_STEP).sum())
        self._tops.append(commonest(flat))

    def result(self) -> Gate:
        if not self._frames:
            return Gate(None, None, False)
        width, height = EDGE_SIZE
        across = self._across / (self._frames * (width - 1) * height)
        down = self._down / (self._frames * width * (height - 1))
        edge = 100 * (across + down) / 2
        top = sum(self._tops) / self._frames
        return Gate(edge, top, edge < LEAST_EDGE or top > MOST_TOP)


def grey_of(image: Image) -> npt.NDArray[np.int32]:
    """floor((299 R + 587 G + 114 B) / 1000)."""
    red, green, blue = (image[..., channel].astype(np.int32) for channel in range(3))
    return np.asarray((299 * red + 587 * green + 114 * blue) // 1000)


def commonest(image: Image) -> float:
    """Share of the commonest colour, colours taken to eight levels a channel."""
    red, green, blue = (image[..., channel].astype(np.int64) >> 5 for channel in range(3))
    counts = np.bincount((64 * red + 8 * green + blue).ravel(), minlength=512)
    return float(counts.max() / counts.sum())
