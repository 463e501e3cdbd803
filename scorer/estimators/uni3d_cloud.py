"""How a cloud becomes the point network's input. Source: protocol 4dcb-1, Uni3D, normalisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]

POINTS = 10_000
COLOUR = 0.4
"""Of every point, on each channel."""
RADIUS = 99.0
"""Percentile of the distances from the centre that becomes 1."""


def unit_cloud(points: ArrayLike) -> Floats:
    """Finite rows of ``points`` (n, 3) as float32 (m, 3), in the unit ball.

    The mean is taken off and the 99th percentile (linear) of the norms becomes 1; points further out are
    moved onto the unit sphere. All in float32, the mean too, as in the reference.
    Raises ``ValueError`` when no row is finite, and when float32 does not hold the numbers on the way.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        cloud = np.asarray(points).astype(np.float32)
        if cloud.ndim != 2 or cloud.shape[1] != 3:
            raise ValueError(f"a cloud is (n, 3), not {cloud.shape}")
        cloud = cloud[np.isfinite(cloud).all(axis=1)]
        if not len(cloud):
            raise ValueError("the cloud has no finite point")
        cloud = cloud - cloud.mean(axis=0)
        norms = np.linalg.norm(cloud, axis=1)
        radius = np.maximum(np.float32(np.percentile(norms, RADIUS)), np.finfo(np.float32).tiny)
        cloud = cloud / radius
        norms = np.linalg.norm(cloud, axis=1)
        outside = norms > 1
        cloud[outside] /= norms[outside, None]
    if not (np.isfinite(cloud).all() and np.isfinite(norms).all()):
        raise ValueError("the cloud's coordinates are too large for float32")
    return cloud


def sampled(points: Floats, rng: np.random.Generator, count: int = POINTS) -> Floats:
    """``count`` rows of ``points`` (n, 3) in the order drawn; twice the same only if there are fewer."""
    return points[rng.choice(len(points), count, replace=len(points) < count)]


def normalised(points: ArrayLike, rng: np.random.Generator) -> Floats:
    """A cloud (n, 3) as the network takes it: float32 (10000, 3). ``rng`` : fresh, of the protocol's seed.

    Raises ``ValueError`` as :func:`unit_cloud` does.
    """
    return sampled(unit_cloud(points), rng)
