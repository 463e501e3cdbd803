"""From one picture to what is known of each thing in it: where it is, how it is outlined, what colour it
has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.baseline.background import Background, smallest_piece
from harness.baseline.components import Floats, Mask, boxes
from harness.baseline.observe import Picture
from harness.baseline.parting import Seed, parts
from harness.baseline.stars import angles, middle, outline

MOST_PIECES = 60
"""Largest pieces of a picture that are looked at."""


@dataclass(frozen=True)
class Sighting:
    """One thing in one frame; lengths in working cells.

    area : cells. centre : (column, row). radii : float32 (ANGLES,), at the angles of ``stars.angles``.
    colour : mean RGB 0–255.
    """

    area: float
    centre: tuple[float, float]
    radii: Floats
    colour: tuple[float, float, float]

    @property
    def size(self) -> float:
        """Radius of the disc of the same area."""
        return float(np.sqrt(self.area / np.pi))

    @property
    def bottom(self) -> float:
        """Lowest row that the outline reaches."""
        return self.centre[1] + float((self.radii * np.sin(angles())).max())


def sightings(picture: Picture, background: Background, seeds: list[Seed]) -> list[Sighting]:
    """What moves in a picture, from at most ``MOST_PIECES`` pieces, largest first; seeds say what is
    expected.
    """
    labels, count = background.pieces(picture)
    if count == 0:
        return []
    areas = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    edges = boxes(labels, count).tolist()
    found = []
    for index in np.argsort(-areas, kind="stable")[:MOST_PIECES].tolist():
        top, bottom, left, right = edges[index]
        window = slice(top, bottom), slice(left, right)
        here = [replace(seed, centre=(seed.centre[0] - left, seed.centre[1] - top)) for seed in seeds]
        for part in parts(labels[window] == index + 1, here, smallest_piece(labels.shape)):
            found.append(_sighting(part, picture[window], (left, top)))
    return found


def _sighting(mask: Mask, picture: Picture, corner: tuple[int, int]) -> Sighting:
    column, row = middle(mask)
    red, green, blue = picture[mask].mean(axis=0).tolist()
    radii = outline(mask, (column, row))
    return Sighting(float(mask.sum()), (corner[0] + column, corner[1] + row), radii, (red, green, blue))
