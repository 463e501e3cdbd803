"""Star-shaped outlines: a centre, and a radius at each of a fixed number of angles. Lengths in cells."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.baseline.components import Floats, Mask

ANGLES = 48
"""Corners of every outline."""
LEAST_RADIUS = 0.4
"""Shortest radius of an outline, cells: its mesh must have some area everywhere."""


def angles() -> npt.NDArray[np.float64]:
    """2πk/ANGLES, from +x (right) towards +y (down)."""
    return 2 * np.pi * np.arange(ANGLES) / ANGLES


def middle(mask: Mask) -> tuple[float, float]:
    """Centre of mass (column, row), or the middle of the nearest set cell where that one is unset."""
    rows, columns = np.nonzero(mask)
    column, row = float(columns.mean()) + 0.5, float(rows.mean()) + 0.5
    if not mask[int(row), int(column)]:
        nearest = int(np.argmin((columns + 0.5 - column) ** 2 + (rows + 0.5 - row) ** 2))
        column, row = float(columns[nearest]) + 0.5, float(rows[nearest]) + 0.5
    return column, row


def outline(mask: Mask, centre: tuple[float, float]) -> Floats:
    """Radii of the outline around ``centre`` that agrees best with ``mask``, float32 (ANGLES,).

    Along each ray the radius is chosen that gains most: cells of the mask inside it count for it, others
    against, each by the area that the ray stands for at that distance.
    """
    height, width = mask.shape
    column, row = centre
    farthest = float(np.hypot(max(column, width - column), max(row, height - row)))
    step = 0.25 if farthest < 40 else 0.5
    distance = (np.arange(int(farthest / step) + 1) + 0.5) * step
    columns = np.floor(column + np.cos(angles())[:, None] * distance).astype(np.int64)
    rows = np.floor(row + np.sin(angles())[:, None] * distance).astype(np.int64)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    inside &= mask[np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    gain = np.cumsum(np.where(inside, distance, -distance), axis=1)
    best = np.argmax(gain, axis=1)
    reached = gain[np.arange(ANGLES), best] > 0
    return np.maximum(np.where(reached, (best + 1) * step, 0.0), LEAST_RADIUS).astype(np.float32)


def reach(radii: Floats, directions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Radius of an outline in any directions (radians), linear between its corners."""
    turn = directions / (2 * np.pi) * ANGLES
    before = np.floor(turn).astype(np.int64)
    share = turn - before
    return radii[before % ANGLES] * (1 - share) + radii[(before + 1) % ANGLES] * share
