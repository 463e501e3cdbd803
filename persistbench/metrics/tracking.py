"""What a tracker returned, as masks of all frames (spec 70 §7.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np

TrackedMasks = Sequence[Optional[np.ndarray]]


@dataclass(frozen=True)
class Track:
    """masks : boolean (T, H, W). valid, dropped : frames from the start on with and without a mask."""

    masks: np.ndarray
    valid: frozenset[int]
    dropped: frozenset[int]


def dense_track(tracked: TrackedMasks, start: int, frames: int, size: tuple[int, int]) -> Track:
    """Masks of all frames from those of the frames from ``start`` on; None or no pixel is a dropped frame.

    Errors: ``ValueError`` for too many masks or masks of another size.
    """
    if start + len(tracked) > frames:
        raise ValueError(f"the tracker returned {len(tracked)} frames from frame {start} of {frames}")
    masks = np.zeros((frames, *size), bool)
    for offset, mask in enumerate(tracked):
        if mask is not None:
            if np.shape(mask)[-2:] != tuple(size):
                raise ValueError(f"the tracker returned a mask of {np.shape(mask)} for frames of {size}")
            masks[start + offset] = np.asarray(mask).reshape(size)
    there = masks.any((1, 2))
    valid = frozenset(int(t) for t in np.flatnonzero(there))
    return Track(masks, valid, frozenset(range(start, frames)) - valid)
