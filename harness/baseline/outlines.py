"""From the pieces of one picture to what is known of each: where it is, how it is outlined, what colour it
has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.baseline.background import Background, smallest_piece
from harness.baseline.components import Floats, Mask, boxes, majority
from harness.baseline.observe import Picture

ANGLES = 64
"""Corners of every outline."""
MOST_PIECES = 40
"""Largest pieces of a picture that are looked at."""
SHADE_SHARE = 0.5
"""A piece with less shade than this is a thing with a shadow, and loses the shadow."""
LEAST_RADIUS = 0.4
"""Shortest radius of an outline, cells: its mesh must have some area everywhere."""


@dataclass(frozen=True)
class Sighting:
    """One piece in one frame; lengths in working cells.

    area : cells. centre : (column, row). radii : float32 (ANGLES,), at 2πk/ANGLES from +x towards +y.
    colour : mean RGB 0–255. shade : share of the piece that may be mere shadow.
    """

    area: float
    centre: tuple[float, float]
    radii: Floats
    colour: tuple[float, float, float]
    shade: float

    @property
    def size(self) -> float:
        """Radius of the disc of the same area."""
        return float(np.sqrt(self.area / np.pi))

    @property
    def bottom(self) -> float:
        """Lowest row that the outline reaches."""
        return self.centre[1] + float((self.radii * np.sin(_angles())).max())


def sightings(picture: Picture, background: Background) -> list[Sighting]:
    """What moves in a picture: at most ``MOST_PIECES`` pieces, largest first."""
    labels, count = background.pieces(picture)
    if count == 0:
        return []
    shaded = background.shaded(picture)
    areas = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    edges = boxes(labels, count).tolist()
    found = []
    for index in np.argsort(-areas, kind="stable")[:MOST_PIECES].tolist():
        top, bottom, left, right = edges[index]
        window = slice(top, bottom), slice(left, right)
        mask = labels[window] == index + 1
        found.append(
            _sighting(mask, shaded[window], picture[window], (left, top), smallest_piece(labels.shape))
        )
    return found


def _sighting(mask: Mask, shaded: Mask, picture: Picture, corner: tuple[int, int], least: int) -> Sighting:
    shade = float((mask & shaded).sum() / mask.sum())
    if shade < SHADE_SHARE:
        lit = mask & majority(mask & ~shaded)
        mask = lit if lit.sum() >= least else mask
    column, row = _middle(mask)
    red, green, blue = picture[mask].mean(axis=0).tolist()
    radii = outline(mask, (column, row))
    return Sighting(
        float(mask.sum()), (corner[0] + column, corner[1] + row), radii, (red, green, blue), shade
    )


def _middle(mask: Mask) -> tuple[float, float]:
    """Centre of mass (column, row) of a mask, or the middle of its nearest set cell where that one is
    unset.
    """
    rows, columns = np.nonzero(mask)
    column, row = float(columns.mean()) + 0.5, float(rows.mean()) + 0.5
    if not mask[int(row), int(column)]:
        nearest = int(np.argmin((columns + 0.5 - column) ** 2 + (rows + 0.5 - row) ** 2))
        column, row = float(columns[nearest]) + 0.5, float(rows[nearest]) + 0.5
    return column, row


def outline(mask: Mask, centre: tuple[float, float]) -> Floats:
    """Radii of the star-shaped outline around ``centre`` that agrees best with ``mask``, float32 (ANGLES,),
    cells.

    Along each ray the radius is chosen that gains most: cells of the mask inside it count for it, others
    against, each by the area that the ray stands for at that distance.
    """
    height, width = mask.shape
    column, row = centre
    farthest = float(np.hypot(max(column, width - column), max(row, height - row)))
    step = 0.25 if farthest < 40 else 0.5
    distance = (np.arange(int(farthest / step) + 1) + 0.5) * step
    columns = np.floor(column + np.cos(_angles())[:, None] * distance).astype(np.int64)
    rows = np.floor(row + np.sin(_angles())[:, None] * distance).astype(np.int64)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    inside &= mask[np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    gain = np.cumsum(np.where(inside, distance, -distance), axis=1)
    best = np.argmax(gain, axis=1)
    reached = gain[np.arange(ANGLES), best] > 0
    return np.maximum(np.where(reached, (best + 1) * step, 0.0), LEAST_RADIUS).astype(np.float32)


def _angles() -> npt.NDArray[np.float64]:
    return 2 * np.pi * np.arange(ANGLES) / ANGLES
