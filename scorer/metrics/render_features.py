"""Features of a submission's rendered frames, for metrics that compare them with the reference video's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from scorer.estimates_features import FeatureEstimate
from scorer.prefetch import Prefetch
from scorer.subject import Subject
from world.video import Image, frames

Floats = NDArray[np.float32]
Images = NDArray[np.uint8]

BATCH = 8
"""Frames that a network sees at once."""


class FeatureFault(Exception):
    """A network gave something that is not a number. Frames are bytes: no submission can make it do that."""

    infrastructure = True


def render_features(
    subject: Subject, estimate: FeatureEstimate, network: Callable[[Images], Floats]
) -> Floats:
    """Features float32 (F', D) of the render's frames at the estimate's stride.

    network : takes uint8 (n, H, W, 3) RGB, n up to ``BATCH``, to float32 (n, D); the next frames are decoded
    while it works. Raises ``EstimateError`` when the estimate is not of this case's video or of this network,
    ``VideoError`` when the render cannot be decoded, and ``ValueError`` when it has another number of frames.
    """
    estimate.require_video(subject.frames)
    estimate.require_checkpoint(subject.checkpoint)
    with Prefetch(batches(frames(subject.render, estimate.stride), BATCH)) as ahead:
        rows = np.concatenate([network(batch) for batch in ahead])
    if len(rows) != len(estimate.rows):
        raise ValueError("reference and render must have the same frame count")
    estimate.require_width(rows.shape[1])
    if not np.isfinite(rows).all():
        raise FeatureFault(f"{subject.unit}: the network gives features that are not finite")
    return rows


def batches(images: Iterable[Image], size: int) -> Iterator[Images]:
    """Stacks uint8 (n, H, W, 3) of ``size`` images in a row; the last may be smaller."""
    held: list[Image] = []
    for image in images:
        held.append(image)
        if len(held) == size:
            yield np.stack(held)
            held = []
    if held:
        yield np.stack(held)
