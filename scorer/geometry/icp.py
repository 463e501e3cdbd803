"""Iterated closest points between what two cameras see, from one start: the camera candidate's fit.

Source: protocol 4dcb-1, registration, camera candidate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.distances import query, tree
from scorer.geometry.similarity import Similarity, fit_similarity, rotate

Floats = NDArray[np.float32]

ITERATIONS = 40
TRIM = 0.2
"""Share of the pairs, the farthest each way, that a fit leaves out."""
TOLERANCE = 1e-7


def fit_views(a: Floats, b: Floats, threads: int | None = None) -> Similarity:
    """The similarity that takes ``b`` (m, 3) to ``a`` (n, 3), float32 with the camera as origin, finite.

    Starts at the scale that gives both the same RMS distance from the camera. Rotation and offset are carried
    in float32, the scale in float64; the rotation is not made orthogonal again.
    """
    scale = _rms(a) / _rms(b)
    # Neighbours after each other: searches that jump about in memory take half as long again.
    a, b = (points[tree(points).indices] for points in (a, b))
    rotation, offset = np.eye(3, dtype=np.float32), np.zeros(3, np.float32)
    fixed, before = tree(a), math.inf
    for _ in range(ITERATIONS):
        moved = np.float32(scale) * rotate(b, rotation) + offset
        there, there_row = query(fixed, moved, threads=threads)
        back, back_row = query(tree(moved), a, threads=threads)
        forward, backward = _kept(there), _kept(back)
        now = (_mean(there[forward]) + _mean(back[backward])) / 2
        if abs(before - now) < TOLERANCE * max(now, 1e-6):
            break
        before = now
        source = np.concatenate([moved[forward], moved[back_row[backward]]])
        target = np.concatenate([a[there_row[forward]], a[backward]])
        step = fit_similarity(source, target)
        turn = step.rotation.astype(np.float32)
        offset = np.float32(step.scale) * (turn @ offset) + step.offset.astype(np.float32)
        rotation, scale = turn @ rotation, step.scale * scale
    return Similarity(scale, rotation.astype(np.float64), offset.astype(np.float64))


def _rms(points: Floats) -> float:
    return math.sqrt(np.square(points, dtype=np.float64).sum(axis=1).mean())


def _mean(distances: Floats) -> float:
    return float(distances.mean(dtype=np.float64))


def _kept(distances: Floats) -> NDArray[np.bool_]:
    """The pairs that are no farther apart than four fifths of them."""
    return distances <= np.quantile(distances, np.float32(1 - TRIM))
