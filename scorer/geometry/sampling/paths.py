"""Paths of material from birth to death, as the reference's camera sees them.

Source: protocol 4dcb-1, paths of one side and drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import NEAR, SEED
from scorer.geometry.sampling.materials import MovedMaterial, Placement
from scorer.geometry.sampling.sampler import FrameSamples, frame_samples
from scorer.geometry.similarity import rotate
from world.reader import World

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

ROWS = 8192
"""Paths that are drawn of each side at most."""
_POINTS = 1 << 18
"""Points whose visibility is decided at a time."""
_PLACES = 1 << 22
"""Positions that are worked out at a time."""
_FRAMES = 32
"""Frames that are searched at a time for one at which a path is in view."""


def visible(points: ArrayLike, registration: Placement, reference: World) -> Mask:
    """Which of ``points`` (…, 3), in reference radii, the reference's camera has in view: bool (…).

    In front of the near plane and inside the image; whether something hides them does not matter. A point
    that is not finite is not in view.
    """
    places = np.asarray(points)
    rows = places.reshape(-1, 3)
    seen = np.empty(len(rows), np.bool_)
    for start in range(0, len(rows), _POINTS):
        camera = rows[start : start + _POINTS].astype(np.float64) * registration.radius + registration.centre
        depth = camera[:, 2]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            image = rotate(camera, reference.intrinsics)[:, :2] / depth[:, None]
            inside = ((image >= 0.0) & (image < (reference.width, reference.height))).all(axis=1)
            seen[start : start + _POINTS] = (depth > NEAR) & inside
    return seen.reshape(places.shape[:-1])


@dataclass(frozen=True, eq=False)
class Born:
    """The samples of one side, by frame of birth, that are in view at some frame.

    frames : F. groups : samples made of the columns born at one frame each, ascending.
    """

    frames: int
    groups: tuple[FrameSamples, ...]

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    def paths(self, registration: Placement, reference: World, rows: Longs | None = None) -> Floats:
        """Paths float32 (n, F, 3) in reference radii of the samples ``rows`` int64 (n,), ascending, or of
        all; NaN where a path is not alive or out of view.
        """
        chosen = np.arange(len(self)) if rows is None else rows
        out = np.empty((len(chosen), self.frames, 3), np.float32)
        start = done = 0
        for group in self.groups:
            low, high = np.searchsorted(chosen, [start, start + len(group)])
            part = group.subset(chosen[low:high] - start)
            start += len(group)
            step = max(1, _PLACES // max(1, len(part)))
            for first in range(0, self.frames if len(part) else 0, step):
                last = min(first + step, self.frames)
                moved = part.track(first, last)
                moved[~visible(moved, registration, reference)] = np.nan
                out[done : done + len(part), first:last] = moved.transpose(1, 0, 2)
            done += len(part)
        return out


def born(materials: Sequence[MovedMaterial], h: float, registration: Placement, reference: World) -> Born:
    """Sample each column at its first finite frame, with voxel edge ``h``, and keep what is ever in view."""
    rng = np.random.default_rng(SEED)
    frames = materials[0].frames if materials else 0
    births = [material.births for material in materials]
    at = np.unique(np.concatenate([*births, np.zeros(0, np.int64)]))
    groups = []
    for frame in at[at < frames].tolist():
        samples = frame_samples(materials, frame, h, rng, [times == frame for times in births])
        seen = np.flatnonzero(_ever_visible(samples, frame, registration, reference))
        if len(seen):
            groups.append(samples if len(seen) == len(samples) else samples.subset(seen))
    return Born(frames, tuple(groups))


def _ever_visible(samples: FrameSamples, birth: int, registration: Placement, reference: World) -> Mask:
    """bool (S,), which samples are in view at some frame. Nearly all are at their birth."""
    seen = np.zeros(len(samples), np.bool_)
    spans = [(birth, birth + 1)]
    spans += [
        (first, min(first + _FRAMES, samples.frames)) for first in range(birth + 1, samples.frames, _FRAMES)
    ]
    for start, stop in spans:
        left = np.flatnonzero(~seen)
        if not len(left):
            break
        moved = samples.subset(left).track(start, stop)
        seen[left] = visible(moved, registration, reference).any(axis=0)
    return seen


def paths(materials: Sequence[MovedMaterial], h: float, registration: Placement, reference: World) -> Floats:
    """All paths of one side, float32 (S, F, 3) in reference radii; NaN where dead or out of view."""
    return born(materials, h, registration, reference).paths(registration, reference)


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of both sides that are compared.

    reference : float32 (n, F, 3), reference radii, NaN where dead or out of view. submission : float32
    (n, F, 3), or (0, F, 3) when the submission has none. counts : paths of each side before drawing.
    reference_rows, submission_rows : int64, which of them were drawn, ascending.
    """

    reference: Floats
    submission: Floats
    counts: tuple[int, int]
    reference_rows: Longs
    submission_rows: Longs


def draw_rows(reference: int, submission: int) -> tuple[Longs, Longs]:
    """Which paths to keep of two sides with so many paths: as many of each, 8192 at most, ascending; none of
    a submission that has none.
    """
    rows = min(ROWS, reference, submission or reference)
    return _draw(reference, rows), _draw(submission, rows)


def _draw(count: int, rows: int) -> Longs:
    if count <= rows:
        return np.arange(count)
    return np.sort(np.random.default_rng([SEED, 1]).choice(count, rows, replace=False))
