"""Similarities x ↦ s·R x + t of three-dimensional space, and the one that fits pairs of points best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Similarity:
    """x ↦ scale · rotation x + offset.

    scale : float. rotation : (3, 3) float64. offset : (3,) float64, in the unit of the target.
    """

    scale: float
    rotation: Doubles
    offset: Doubles

    def __call__(self, points: ArrayLike) -> Doubles:
        """Images of ``points`` (…, 3), float64."""
        return self.scale * rotate(np.asarray(points, np.float64), self.rotation) + self.offset


def rotate(points: NDArray[np.floating], rotation: NDArray[np.floating]) -> NDArray[np.floating]:
    """``points @ rotation.T`` for points (…, 3), summed left to right in their own precision.

    A library's matrix product may sum in another order with another number of threads.
    """
    x, y, z = (points[..., axis : axis + 1] for axis in range(3))
    return x * rotation[:, 0] + y * rotation[:, 1] + z * rotation[:, 2]


def fit_similarity(source: ArrayLike, target: ArrayLike, dtype: type[np.floating] = np.float64) -> Similarity:
    """The similarity that takes ``source`` (n, 3) to ``target`` (n, 3) with the least sum of squares.

    With both centred, UΣVᵀ = targetᵀ source / n and D = diag(1, 1, sign det UVᵀ), the rotation is U D Vᵀ and
    the scale Σ σ D / mean ‖source‖² (Umeyama 1991). All but the sums, which are float64, is worked out in
    ``dtype``, and rounded to it.

    Raises ``ValueError`` when a coordinate is not finite or too large to square, when there is no pair, or
    when the source is a single point, which leaves the scale open.
    """
    p, q = np.asarray(source, dtype), np.asarray(target, dtype)
    if not len(p):
        raise ValueError("a similarity cannot be fitted to no pairs")
    mean_p, mean_q = (side.mean(axis=0, dtype=np.float64).astype(dtype) for side in (p, q))
    with np.errstate(over="ignore", invalid="ignore"):
        p, q = (side.astype(np.float64) for side in (p - mean_p, q - mean_q))
        spread = np.square(p).sum() / len(p)
        covariance = (np.einsum("ni,nj->ij", q, p) / len(p)).astype(dtype)
    if not (np.isfinite(covariance).all() and np.isfinite(spread)):
        raise ValueError("a similarity cannot be fitted to coordinates that are not finite or too large")
    if not spread > 0.0:
        raise ValueError("a similarity cannot be fitted to a source of a single point")
    u, stretch, vt = np.linalg.svd(covariance)
    signs = np.array([1, 1, np.sign(np.linalg.det(u @ vt))], dtype)
    rotation = (u * signs) @ vt
    scale = (stretch * signs).sum() / dtype(spread)
    offset = mean_q - scale * (rotation @ mean_p)
    return Similarity(float(scale), rotation.astype(np.float64), offset.astype(np.float64))
