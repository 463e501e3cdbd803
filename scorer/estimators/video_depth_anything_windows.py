"""Which frames the depth network sees together, and which of its answers count.

Source: protocol 4dcb-1, Video Depth Anything, windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from scorer.estimators.video_depth_anything_sizes import WINDOW

OVERLAP = 8
"""Frames of a window that the one before has answered for."""

Frame = TypeVar("Frame")


def windows(
    frames: Iterable[Frame], length: int = WINDOW, overlap: int = OVERLAP
) -> Iterator[tuple[list[Frame], slice]]:
    """Windows of ``length`` frames, and the part of each that is new; the parts make up ``frames`` in order.

    A window starts with the last ``overlap`` frames of the one before. The last one is filled with its last
    frame. No more than one window is held.
    """
    held: list[Frame] = []
    old = 0
    for frame in frames:
        held.append(frame)
        if len(held) == length:
            yield held, slice(old, length)
            held, old = held[length - overlap :], overlap
    if len(held) > old:
        yield held + held[-1:] * (length - len(held)), slice(old, len(held))
