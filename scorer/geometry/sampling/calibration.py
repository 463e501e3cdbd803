"""The voxel edge of a pair of worlds, found on the reference.

Source: protocol 4dcb-1, voxel edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contract.constants import SAMPLES, SEED
from scorer.geometry.sampling.materials import MovedMaterial
from scorer.geometry.sampling.sampler import frame_samples

FIRST_EDGE = 1.0 / 32.0
"""Edge in reference radii from which the search starts."""
PASSES = 2


def fullest_frame(materials: Sequence[MovedMaterial]) -> int:
    """First frame with the most finite columns over all materials; 0 without materials."""
    if not materials:
        return 0
    return int(np.argmax(np.sum([material.live for material in materials], axis=0)))


def voxel_edge(materials: Sequence[MovedMaterial]) -> float | None:
    """Edge h in reference radii at which ``materials`` should give about 16384 samples at their fullest
    frame; None when they give none.

    Twice h ← h (n / 16384)^⅓ with n the number of samples at h, from one generator; the result is not counted
    again and can miss the number by far.
    """
    frame = fullest_frame(materials)
    rng = np.random.default_rng([SEED, 0])
    h = FIRST_EDGE
    for _ in range(PASSES):
        count = len(frame_samples(materials, frame, h, rng))
        if not count:
            return None
        h *= (count / SAMPLES) ** (1.0 / 3.0)
    return h
