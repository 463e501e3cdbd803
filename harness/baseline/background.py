"""The picture behind everything that moves, and what a frame shows in front of it.

The camera is taken to stand still. The plate is the median over frames spread through the video; a thing
that rests for most of the time ends up in that median, so pieces are then tested: where the plate has an
edge along a piece's outline and the frame has none, it is the plate that holds the thing, and the frame's
colour is taken instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from harness.baseline.components import (
    Floats,
    Labels,
    Mask,
    box_max,
    box_mean,
    close,
    filled,
    label,
    majority,
    strongest,
)
from harness.baseline.observe import Footage, Picture
from harness.baseline.plate import grown, is_shade

SAMPLES = 61
"""Most frames that the plate is learnt from."""
LOW, LOW_NOISES = 8.0, 3.5
"""A cell differs when it is this far from the plate: grey levels, and multiples of its noise."""
HIGH, HIGH_NOISES = 20.0, 7.0
"""A piece counts only when some cell of it is this far from the plate."""
EDGE_SHARE = 0.35
"""Share of the largest difference nearby that a cell needs: outlines then lie halfway up a blurred edge."""
SMALLEST_SHARE = 0.00015
"""Smallest piece, as a share of the picture."""
SMALLEST_CELLS = 6
CLOSE = 1
HOLE_SHARE = 0.01
"""Radius of the gaps that are closed, and the largest hole that is filled, as a share of the picture."""
SHADE_SHARE = 0.8
"""With more shade than this in all that differs, shade is not left out: it may be what there is to see."""
SOFTEN_NOISE = 2.5
"""From this noise on, pictures are averaged over 3 × 3 cells first."""
BUSY_SHARE, MOST_TOLERANCE = 0.35, 4.0
"""When more of the picture than this differs on average, thresholds rise, up to this factor."""


@dataclass(frozen=True)
class Background:
    """What was learnt.

    plate : float32 (h, w, 3), grey levels 0–255.
    noise : float32 (h, w), standard deviation of a still cell.
    soften : radius of the average taken over each picture before it is compared.
    tolerance : factor on every threshold.
    shadows : whether what looks like mere shade is left out.
    """

    plate: Picture
    noise: Floats
    soften: int = 0
    tolerance: float = 1.0
    shadows: bool = False

    def difference(self, picture: Picture) -> Picture:
        """Picture minus plate, float32 (h, w, 3), after the change of light that most cells share is taken
        out.
        """
        change = softened(picture, self.soften) - self.plate
        light = np.median(change[::3, ::3].reshape(-1, 3), axis=0)
        result: Picture = (change - np.clip(light, -40.0, 40.0)).astype(np.float32)
        return result

    def pieces(self, picture: Picture) -> tuple[Labels, int]:
        """Connected pieces of ``picture`` that differ from the plate: labels int32 (h, w) from 1, and their
        count.
        """
        change = self.difference(picture)
        strength: Floats = strongest(np.abs(change))
        low = self.tolerance * np.maximum(LOW, LOW_NOISES * self.noise)
        high = self.tolerance * np.maximum(HIGH, HIGH_NOISES * self.noise)
        mask = strength > np.maximum(low, EDGE_SHARE * box_max(strength, 2))
        if self.shadows:
            mask &= ~is_shade(self.plate + change, self.plate)
        labels, count = label(filled(close(majority(mask), CLOSE), HOLE_SHARE))
        sure = np.bincount(labels[strength > high], minlength=count + 1) > 0
        large = np.bincount(labels.ravel(), minlength=count + 1) >= smallest_piece(labels.shape)
        keep = sure & large
        keep[0] = False
        names = np.where(keep, np.cumsum(keep), 0).astype(np.int32)
        return names[labels], int(keep.sum())

    def shaded(self, picture: Picture) -> Mask:
        """Cells that look like the plate under less light: darker by up to a half, in the plate's own hue."""
        seen = self.plate + self.difference(picture)
        return is_shade(seen, self.plate)


def smallest_piece(shape: tuple[int, ...]) -> int:
    """Fewest cells of a piece that counts."""
    return max(SMALLEST_CELLS, round(SMALLEST_SHARE * shape[0] * shape[1]))


def softened(picture: Picture, radius: int) -> Picture:
    """``picture`` averaged over squares of ``radius``, channel by channel."""
    if radius == 0:
        return picture
    return np.stack([box_mean(picture[:, :, channel], radius) for channel in range(3)], axis=2)


def learn(footage: Footage) -> Background:
    """Learn the background from at most ``SAMPLES`` frames spread over the video (one pass over the file)."""
    step = -(-footage.frames // SAMPLES)
    samples = [_levels(picture) for picture in footage.pictures(step)]
    background = _median(np.stack(samples))
    if float(np.median(background.noise)) > SOFTEN_NOISE:
        samples = [_levels(softened(sample.astype(np.float32), 1)) for sample in samples]
        background = replace(_median(np.stack(samples)), soften=1)
    stack = np.stack(samples)
    # The samples are softened already where need be.
    working = replace(background, soften=0)
    plate, anew = grown(stack, working.plate, working.noise)
    noise = np.where(anew, np.float32(np.median(working.noise)), working.noise)
    working = replace(working, plate=plate, noise=noise)
    while working.tolerance < MOST_TOLERANCE and _busy(working, stack) > BUSY_SHARE:
        working = replace(working, tolerance=min(working.tolerance * 1.5, MOST_TOLERANCE))
    working = replace(working, shadows=_shade_share(working, stack) <= SHADE_SHARE)
    return replace(working, soften=background.soften)


def _median(stack: npt.NDArray[np.uint8]) -> Background:
    """Median (the lower one of an even count, so that it is a colour that was seen) and noise around it."""
    middle = (stack.shape[0] - 1) // 2
    plate = np.partition(stack, middle, axis=0)[middle].astype(np.float32)
    noise = np.empty(stack.shape[1:3], dtype=np.float32)
    for row in range(stack.shape[1]):
        spread = strongest(np.abs(stack[:, row].astype(np.float32) - plate[row]))
        noise[row] = 1.4826 * np.median(spread, axis=0)
    # A cell that things pass often is not noisy: its spread must not hide them.
    usual = float(np.median(noise))
    return Background(plate, np.minimum(noise, 4.0 + 3.0 * usual))


def _levels(picture: Picture) -> npt.NDArray[np.uint8]:
    return np.rint(picture).astype(np.uint8)


def _busy(background: Background, stack: npt.NDArray[np.uint8]) -> float:
    """Mean share of the picture that differs from the plate, over a few samples."""
    chosen = stack[:: max(1, stack.shape[0] // 12)]
    shares = [(background.pieces(sample.astype(np.float32))[0] > 0).mean() for sample in chosen]
    return float(np.mean(shares))


def _shade_share(background: Background, stack: npt.NDArray[np.uint8]) -> float:
    """Share of what differs from the plate that looks like mere shade, over a few samples."""
    every, shade = 0, 0
    for sample in stack[:: max(1, stack.shape[0] // 12)]:
        picture = sample.astype(np.float32)
        differs = background.pieces(picture)[0] > 0
        every += int(differs.sum())
        shade += int((differs & background.shaded(picture)).sum())
    return shade / max(1, every)
