"""Painting the plate: which of the colours that a cell showed over time is the one behind everything.

A cell that always looks the same is background. Every other cell has some candidates: what it showed first
and last while it stood still, that without shade, and its median. Changed cells are gathered into patches
that are even in all candidates, and the plate grows inwards patch by patch: along the border to what is
known, the candidate that makes no edge there is the background. So a thing that rests for most of the video
is not taken for background merely because it was there most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from harness.baseline.components import Floats, Mask, faintest, join, strongest
from harness.baseline.observe import Picture

Stack = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

SAME, SAME_NOISES = 10.0, 4.0
"""Two values of a cell are one colour when they are this near: grey levels, and multiples of the noise."""
ALWAYS = 0.97
"""Share of the samples in which a cell must look the same to count as known."""
LEAST_KNOWN = 0.15
"""With a smaller share of known cells the plate has no hold to grow from, and stays the median."""
EVEN = 7.0
"""Neighbouring cells belong to one patch when all candidates differ by less, grey levels."""
MARGINS = (30.0, 15.0, 8.0, 4.0, 2.0, 0.0)
"""Patches are decided clearest first: by how many grey levels another candidate's edge must be worse."""
LEAST_PAIRS = 3
"""Fewest pairs of cells across a border that are trusted, but for the last round."""
MOST_EDGE = 80.0
"""Steps larger than this count as this, so that a few of them do not outvote the rest of a border."""
CANDIDATES = 4
CHUNK = 4096
"""Cells that are worked on at a time, which bounds memory."""


def grown(stack: Stack, plate: Picture, noise: Floats) -> tuple[Picture, Mask]:
    """Grow the plate from the cells that never change.

    Parameters
    ----------
    stack : uint8 (S, h, w, 3), samples over time. plate : float32 (h, w, 3), their median. noise : float32
    (h, w).

    Returns the plate and the cells that were chosen anew, bool (h, w).
    """
    same = np.maximum(SAME, SAME_NOISES * noise)
    changes: Indices = np.zeros(stack.shape[1:3], dtype=np.int64)
    for sample in stack:
        changes += strongest(np.abs(sample - plate)) > same
    unknown: Mask = changes > (1.0 - ALWAYS) * stack.shape[0]
    if unknown.mean() > 1.0 - LEAST_KNOWN or not unknown.any():
        return plate, np.zeros_like(unknown)
    candidates = np.repeat(plate[None], CANDIDATES, axis=0)
    candidates[:, unknown] = _candidates(stack[:, unknown], plate[unknown], same[unknown])
    return _decided(candidates, unknown), unknown


def is_shade(seen: Picture, lit: Picture) -> Mask:
    """Whether colours look like others under less light: darker by up to some 60 %, in about the same hue.

    Arrays (…, 3), grey levels; returns bool (…). Shade out of doors is bluer than sunlight, so channels may
    differ.
    """
    gain = (seen + 4.0) / (lit + 4.0)
    darkest, brightest = faintest(gain), strongest(gain)
    result: Mask = (darkest > 0.42) & (brightest < 0.98) & (brightest - darkest < 0.2)
    return result


def _candidates(values: Stack, plate: Floats, same: Floats) -> Floats:
    """What each cell showed first and last while it stood still, its median, and the first without its shade.

    Parameters
    ----------
    values : uint8 (S, n, 3), samples over time. plate : float32 (n, 3), their median. same : float32 (n,).

    Returns float32 (CANDIDATES, n, 3); what was seen is averaged over the samples that look like it.
    """
    result = np.empty((CANDIDATES, *values.shape[1:]), dtype=np.float32)
    result[-1] = plate
    for start in range(0, values.shape[1], CHUNK):
        block = slice(start, start + CHUNK)
        chosen, near = values[:, block].astype(np.int16), same[block]
        cells = np.arange(chosen.shape[1])
        still = _still(chosen, near)
        first = chosen[np.argmax(still, axis=0), cells]
        last = chosen[len(still) - 1 - np.argmax(still[::-1], axis=0), cells]
        sunny = still & is_shade(first.astype(np.float32)[None], chosen.astype(np.float32))
        light = np.where(sunny, strongest(chosen), -1)
        some: Mask = np.asarray(sunny.any(axis=0))
        lit = np.where(some[:, None], chosen[np.argmax(light, axis=0), cells], first)
        for index, colour in enumerate((first, last, lit)):
            result[index, block] = _mean_like(chosen, colour, near)
    return result


def _still(values: npt.NDArray[np.int16], same: Floats) -> Mask:
    """Samples (S, n) that belong to three in a row that look alike (two in a row of very few)."""
    alike = strongest(np.abs(np.diff(values, axis=0))) <= same
    runs = alike[:-1] & alike[1:] if len(values) > 4 else alike
    still = np.zeros(values.shape[:2], dtype=np.bool_)
    for shift in range(len(values) - len(runs) + 1):
        still[shift : shift + len(runs)] |= runs
    return still


def _near(values: npt.NDArray[np.int16], colour: npt.NDArray[np.int16], same: Floats) -> Mask:
    result: Mask = strongest(np.abs(values - colour)) <= same
    return result


def _mean_like(values: npt.NDArray[np.int16], colour: npt.NDArray[np.int16], same: Floats) -> Floats:
    """Mean of the values (S, n, 3) that look like ``colour`` (n, 3)."""
    near = _near(values, colour, same)
    total = (values * near[:, :, None]).sum(axis=0, dtype=np.int64)
    mean: Floats = (total / near.sum(axis=0)[:, None]).astype(np.float32)
    return mean


def _decided(candidates: Floats, unknown: Mask) -> Picture:
    """The plate: known cells as they are, patches of unknown cells decided one round after another."""
    height, width = unknown.shape
    colours = candidates.reshape(CANDIDATES, -1, 3)
    patch = _patches(colours, unknown)
    count = int(patch.max()) + 1
    plate, known = colours[-1].copy(), ~unknown.ravel()
    apart = _apart(colours, patch, count)
    pairs = [pair for reach in (1, 2) for pair in _pairs(height, width, reach)]
    for margin in MARGINS:
        while True:
            borders, cost = _costs(colours, plate, known, patch, pairs, count)
            best = np.argmin(cost, axis=0)
            lead = np.where(apart[best, :, np.arange(count)].T, cost, np.inf).min(axis=0) - cost.min(axis=0)
            clear = (borders >= LEAST_PAIRS) & (lead >= margin) if margin else borders > 0
            settled = np.flatnonzero(~known & clear[patch])
            if settled.size == 0:
                break
            plate[settled] = colours[best[patch[settled]], settled]
            known[settled] = True
    painted: Picture = plate.reshape(height, width, 3)
    return painted


def _costs(
    colours: Floats,
    plate: Floats,
    known: Mask,
    patch: Indices,
    pairs: list[tuple[Indices, Indices]],
    count: int,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Pairs across each patch's border to known cells, and the mean edge that each candidate makes there."""
    borders, cost = np.zeros(count), np.zeros((CANDIDATES, count))
    for one, other in pairs:
        ready = ~known[one] & known[other]
        inside, outside = one[ready], other[ready]
        borders += np.bincount(patch[inside], minlength=count)
        for index in range(CANDIDATES):
            edge = np.minimum(strongest(np.abs(colours[index, inside] - plate[outside])), MOST_EDGE)
            cost[index] += np.bincount(patch[inside], weights=edge, minlength=count)
    return borders, cost / np.maximum(borders, 1)


def _apart(colours: Floats, patch: Indices, count: int) -> Mask:
    """Which candidates differ in which patch, bool (CANDIDATES, CANDIDATES, count)."""
    sizes = np.maximum(np.bincount(patch, minlength=count), 1)
    result = np.zeros((CANDIDATES, CANDIDATES, count), dtype=np.bool_)
    for one in range(CANDIDATES):
        for other in range(one):
            step = strongest(np.abs(colours[one] - colours[other]))
            result[one, other] = np.bincount(patch, weights=step, minlength=count) / sizes > EVEN
            result[other, one] = result[one, other]
    return result


def _patches(colours: Floats, unknown: Mask) -> Indices:
    """Number of the patch of each cell, int64 (h·w,); known cells are numbered 0."""
    height, width = unknown.shape
    free = unknown.ravel()
    lefts, rights = [], []
    for one, other in list(_pairs(height, width, 1))[::2]:
        both = free[one] & free[other]
        a, b = one[both], other[both]
        step = strongest(np.abs(colours[:, a] - colours[:, b])).max(axis=0)
        lefts.append(a[step < EVEN])
        rights.append(b[step < EVEN])
    roots = join(height * width, np.concatenate(lefts), np.concatenate(rights))
    names = np.zeros(height * width, dtype=np.int64)
    names[free] = np.unique(roots[free], return_inverse=True)[1].reshape(-1) + 1
    return names


def _pairs(height: int, width: int, reach: int) -> Iterator[tuple[Indices, Indices]]:
    """Flat indices of all pairs of cells ``reach`` apart along a row or column, each pair both ways round."""
    cells = np.arange(height * width).reshape(height, width)
    for one, other in ((cells[reach:], cells[:-reach]), (cells[:, reach:], cells[:, :-reach])):
        yield one.ravel(), other.ravel()
        yield other.ravel(), one.ravel()
