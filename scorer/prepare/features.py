"""``semantic_*.npz`` and ``geophys_*.npz``: features of every sampled frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.estimators.dinov3 import GEOPHYS_LAYER
from scorer.prefetch import Prefetch
from scorer.prepare.clip import Clip, batches
from scorer.prepare.output import Output
from scorer.prepare.values import require_finite, require_shape

BATCH = 8
Frames = NDArray[np.uint8]
Rows = NDArray[np.float32]


def write_embeddings(model: Any, clip: Clip, output: Output) -> None:
    """Global embedding of each frame; ``model.embed`` takes uint8 (n, H, W, 3), returns float32 (n, D)."""
    rows = _rows(model.embed, clip, output)
    output.archive({"embeddings": rows, "stride": np.int64(clip.stride)}, compressed=False)


def write_trajectory(model: Any, clip: Clip, output: Output) -> None:
    """Mean over the patch tokens of block 18 of each frame.

    ``model.patches(frames, layer=18)`` returns float32 (n, rows, columns, D) after the final norm.
    """

    def mean(frames: Frames) -> Rows:
        patches = np.asarray(model.patches(frames, layer=GEOPHYS_LAYER), np.float32)
        rows: Rows = patches.reshape(len(patches), -1, patches.shape[-1]).mean(axis=1)
        return rows

    members = {"trajectory": _rows(mean, clip, output), "layer": np.int64(GEOPHYS_LAYER)}
    output.archive(members | {"stride": np.int64(clip.stride)}, compressed=False)


def _rows(features: Callable[[Frames], Rows], clip: Clip, output: Output) -> Rows:
    found: list[Rows] = []
    with Prefetch(np.stack(batch) for batch in batches(clip.frames(), BATCH)) as stacks:
        for stack in stacks:
            rows = np.asarray(features(stack), np.float32)
            require_shape(rows, (len(stack), rows.shape[-1]), "features")
            for row in rows:
                require_finite(row, clip, len(found), "feature")
                found.append(row)
                output.advance()
    return np.stack(found)
