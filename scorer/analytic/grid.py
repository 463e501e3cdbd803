"""Where points are tracked from: a lattice over the first frame, finer on the annotated mask.

The prepare stage asks with it, so that estimates and tests agree. Points are ``(x, y)`` in pixels, float64,
row by row. Source: protocol 4dcb-1, query grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Mask = NDArray[np.bool_]

COUNT = 2048
"""Most queries of a plain lattice."""
DRIFT = 512
"""Most queries of the coarse lattice that watches the background when there is a mask."""


def lattice(height: int, width: int, step: int) -> Points:
    """Nodes (n, 2) ``step`` pixels apart, centred in the image; at least one a side."""
    rows, columns = max(1, height // step), max(1, width // step)
    y = (height - rows * step) / 2 + step / 2 + step * np.arange(rows, dtype=np.float64)
    x = (width - columns * step) / 2 + step / 2 + step * np.arange(columns, dtype=np.float64)
    grid_y, grid_x = np.meshgrid(y, x, indexing="ij")
    return np.stack([grid_x.ravel(), grid_y.ravel()], axis=1)


def inside(points: Points, mask: Mask) -> Mask:
    """Which points (n, 2) lie on the mask (H, W): the pixel is the coordinate cut off, kept in the image."""
    height, width = mask.shape
    x = np.clip(points[:, 0].astype(np.int64), 0, width - 1)
    y = np.clip(points[:, 1].astype(np.int64), 0, height - 1)
    found: Mask = mask[y, x] != 0
    return found


def grid_step(height: int, width: int, count: int, mask: Mask | None = None) -> int:
    """Smallest step, from the one that the area suggests upwards, at which at most ``count`` nodes are left.

    With a mask (H, W) the area and the nodes are those of the mask.
    """
    wanted = max(count, 1)
    if mask is None:
        step = max(1, round(math.sqrt(height * width / wanted)))
        while (height // step) * (width // step) > count:
            step += 1
        return step
    area = int(np.count_nonzero(mask))
    step = max(1, round(math.sqrt(max(area, 1) / wanted)))
    while np.count_nonzero(inside(lattice(height, width, step), mask)) > count:
        step += 1
    return step


def grid_queries(
    height: int, width: int, count: int = COUNT, mask: Mask | None = None
) -> NDArray[np.float32]:
    """Queries float32 (Q, 3): ``(0, x, y)``.

    A coarse lattice with a finer one on the mask, or the plain lattice where that has as many nodes on the
    mask, or where there is no mask (None or empty).
    """
    plain = lattice(height, width, grid_step(height, width, count))
    chosen = plain
    if mask is not None and mask.any():
        few = min(DRIFT, count)
        coarse = lattice(height, width, grid_step(height, width, few))
        fine = lattice(height, width, grid_step(height, width, max(count - DRIFT, 1), mask))
        both = np.concatenate([coarse, fine[inside(fine, mask)]])
        if np.count_nonzero(inside(both, mask)) > np.count_nonzero(inside(plain, mask)):
            chosen = both
    return np.column_stack([np.zeros(len(chosen)), chosen]).astype(np.float32)
