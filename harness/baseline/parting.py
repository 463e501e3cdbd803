"""Taking pieces apart that no single outline fits: things that touch, bodies with limbs, heaps.

Where things were followed into a piece, each cell goes to the one whose outline it is least far out of;
otherwise a piece is halved along its length, as long as that helps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.baseline.components import Floats, Mask
from harness.baseline.stars import middle, outline, reach

Indices = npt.NDArray[np.int64]

GOOD_FIT = 0.85
"""A piece that its outline agrees with this well stays whole."""
BETTER_FIT = 0.04
"""What halving must gain."""
DEPTH = 3
"""How often a piece may be halved."""


@dataclass(frozen=True)
class Seed:
    """Where a thing is expected: centre (column, row) and radii of its outline, cells."""

    centre: tuple[float, float]
    radii: Floats


def parts(mask: Mask, seeds: list[Seed], least: int) -> list[Mask]:
    """Parts of a piece, each with at least ``least`` cells; coordinates of seeds are those of ``mask``."""
    whole = fit(mask)
    if whole >= GOOD_FIT or mask.sum() < 2 * least:
        return [mask]
    inside = [seed for seed in seeds if _holds(mask, seed.centre)]
    if len(inside) < 2:
        return _halves(mask, whole, least, DEPTH)
    rows, columns = np.nonzero(mask)
    owner = np.argmin([_gauge(seed, columns, rows) for seed in inside], axis=0)
    shares = [
        _part(mask.shape, rows[owner == index], columns[owner == index]) for index in range(len(inside))
    ]
    large = [share for share in shares if share.sum() >= least]
    return [half for share in large for half in _halves(share, fit(share), least, DEPTH - 1)]


def fit(mask: Mask) -> float:
    """How well the best outline agrees with ``mask``: intersection over union of cells."""
    centre = middle(mask)
    rows, columns = np.mgrid[: mask.shape[0], : mask.shape[1]]
    drawn = _gauge(Seed(centre, outline(mask, centre)), columns, rows) <= 1.0
    return float((drawn & mask).sum() / (drawn | mask).sum())


def _gauge(seed: Seed, columns: Indices, rows: Indices) -> npt.NDArray[np.float64]:
    """How far out of an outline cells lie: 0 at its centre, 1 on its edge."""
    right, down = columns + 0.5 - seed.centre[0], rows + 0.5 - seed.centre[1]
    distance: npt.NDArray[np.float64] = np.hypot(right, down)
    return distance / reach(seed.radii, np.arctan2(down, right))


def _holds(mask: Mask, centre: tuple[float, float]) -> bool:
    column, row = int(np.floor(centre[0])), int(np.floor(centre[1]))
    if not (0 <= row < mask.shape[0] and 0 <= column < mask.shape[1]):
        return False
    return bool(mask[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3].any())


def _halves(mask: Mask, whole: float, least: int, depth: int) -> list[Mask]:
    if depth == 0 or whole >= GOOD_FIT or mask.sum() < 2 * least:
        return [mask]
    rows, columns = np.nonzero(mask)
    points = np.stack([columns, rows], axis=1).astype(np.float64)
    side = _two_groups(points)
    pair = [_part(mask.shape, rows[side == value], columns[side == value]) for value in (False, True)]
    if min(half.sum() for half in pair) < least:
        return [mask]
    fits = [fit(half) for half in pair]
    gained = float(np.average(fits, weights=[half.sum() for half in pair])) - whole
    if gained < BETTER_FIT:
        return [mask]
    return [
        part
        for half, value in zip(pair, fits, strict=True)
        for part in _halves(half, value, least, depth - 1)
    ]


def _two_groups(points: npt.NDArray[np.float64]) -> Mask:
    """Two compact groups of points (n, 2), by Lloyd's iteration from the two ends of the longest
    direction.
    """
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    # The sign of an eigenvector is arbitrary; fixing it keeps the order of the halves the same everywhere.
    direction = vectors[:, 1] * (1.0 if vectors[np.argmax(np.abs(vectors[:, 1])), 1] > 0 else -1.0)
    side: Mask = centred @ direction > 0
    for _ in range(8):
        if side.all() or not side.any():
            break
        far, near = points[side].mean(axis=0), points[~side].mean(axis=0)
        again = ((points - far) ** 2).sum(axis=1) < ((points - near) ** 2).sum(axis=1)
        if np.array_equal(again, side):
            break
        side = again
    return side


def _part(shape: tuple[int, ...], rows: Indices, columns: Indices) -> Mask:
    part = np.zeros(shape, dtype=np.bool_)
    part[rows, columns] = True
    return part
