"""``flow.h5``: optical flow between consecutive sampled frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.estimators.raft import ITERATIONS
from scorer.prefetch import Prefetch
from scorer.prepare.clip import Clip
from scorer.prepare.output import Output
from scorer.prepare.values import half, require_shape

WINDOW = 3
"""Frames of a window; consecutive windows share one."""


def windows(frames: Iterable[NDArray[Any]], size: int = WINDOW) -> Iterator[NDArray[Any]]:
    """Stacks of up to ``size`` frames, the first frame of each the last of the one before, so that every pair
    of neighbours is in exactly one; none for fewer than two frames.
    """
    held: list[NDArray[Any]] = []
    for frame in frames:
        held.append(frame)
        if len(held) == size:
            yield np.stack(held)
            held = held[-1:]
    if len(held) > 1:
        yield np.stack(held)


def write_flow(model: Any, clip: Clip, output: Output) -> None:
    """Estimate and write, one pair of frames at a time in memory.

    ``model.flow`` takes uint8 (n, H, W, 3) and returns float32 (n − 1, H, W, 2) in pixels, ``(u, v)``. Raises
    ``ValueError`` for a video of one frame.
    """
    if clip.samples < 2:
        raise ValueError(f"{clip.path}: has one frame only, there is no flow to estimate")
    steps, (height, width) = clip.samples - 1, clip.size
    with output.dense() as file, Prefetch(windows(clip.frames())) as stacks:
        file.frames("flow", (steps, height, width, 2), np.float16)
        # Occlusion is not estimated: everything is valid, which takes no room.
        file.frames("valid", (steps, height, width), np.bool_, fill=True)
        file.put("stride", np.int64(clip.stride))
        file.put("model", output.provenance["model"])
        file.put("iterations", np.int64(ITERATIONS))
        step = 0
        output.advance()
        for stack in stacks:
            flow = model.flow(stack)
            require_shape(flow, (len(stack) - 1, height, width, 2), "flow")
            for each in flow:
                file.frame("flow", step, half(each, clip, step, "flow"))
                step += 1
                output.advance()
