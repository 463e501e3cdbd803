"""``depth.h5``: disparity of every sampled frame, on the network's own grid."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from scorer.prefetch import Prefetch
from scorer.prepare.clip import Clip, batches
from scorer.prepare.output import Output
from scorer.prepare.values import half, require_shape

_AHEAD = 8
"""Frames that are decoded at a time while the network works."""


def write_depth(model: Any, clip: Clip, output: Output) -> None:
    """Estimate and write, one window of the network at a time in memory.

    ``model.disparity`` takes an iterable of uint8 (H, W, 3) and yields float32 (h, w) for each, larger is
    nearer. Raises ``ValueError`` naming video and frame for a map that is not finite or too large for
    float16.
    """
    with output.dense() as file, Prefetch(batches(clip.frames(), _AHEAD)) as ahead:
        shape: tuple[int, ...] = ()
        count = 0
        for count, disparity in enumerate(model.disparity(chain.from_iterable(ahead)), 1):
            if not shape:
                shape = disparity.shape
                file.frames("disparity", (clip.samples, *shape), np.float16)
            require_shape(disparity, shape, "disparity")
            file.frame("disparity", count - 1, half(disparity, clip, count - 1, "disparity"))
            output.advance()
        if count != clip.samples:
            raise ValueError(f"{clip.path}: {count} disparity maps for {clip.samples} frames")
        file.put("shape", np.array([clip.info.frames, *clip.size], np.int64))
        file.put("stride", np.int64(clip.stride))
        file.put("fps", np.float64(clip.info.fps))
