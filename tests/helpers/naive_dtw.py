"""The warped distance as its definition says, one cell after the other."""

from __future__ import annotations

import numpy as np


def naive_dtw(a: np.ndarray, b: np.ndarray) -> float:
    """Mean gap along the cheapest warp of path a (L, d) to path b; +inf where one has no finite point."""
    a, b = (path[np.isfinite(path).all(axis=1)].astype(np.float32) for path in (a, b))
    if not len(a) or not len(b):
        return float("inf")
    value = np.full((len(a) + 1, len(b) + 1), np.inf, np.float32)
    steps = np.zeros((len(a) + 1, len(b) + 1), int)
    value[0, 0] = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            # min() keeps the first of equals: left, up, diagonal.
            before = min(((i, j - 1), (i - 1, j), (i - 1, j - 1)), key=lambda cell: value[cell])
            gap = np.sqrt(np.square(a[i - 1] - b[j - 1], dtype=np.float32).sum(dtype=np.float32))
            value[i, j] = value[before] + gap
            steps[i, j] = steps[before] + 1
    return float(value[-1, -1] / np.float32(steps[-1, -1]))


def naive_matrix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([[naive_dtw(x, y) for y in b] for x in a])
