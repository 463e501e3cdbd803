"""A similarity between two moving surfaces that nothing but their shape and motion tells: from 26 starts, an
iterated closest-point fit of few points, then of more points from the best four.

Source: protocol 4dcb-1, multi-start fit.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.closest_pairs import closest, distances_both_ways
from scorer.geometry.cloud import extent
from scorer.geometry.raster_cpu import default_threads
from scorer.geometry.similarity import Similarity, fit_similarity, rotate

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

ITERATIONS = 20
KEEP = 0.8
"""Share of the pairs, the closest of all frames together, that a fit rests on."""
CAP = 0.5
"""Reference radii beyond which a distance counts no more."""
FIRST_FRAMES, FIRST_POINTS, FINALISTS = 4, 256, 4
SECOND_POINTS = 512


@dataclass(frozen=True)
class Start:
    """A similarity in float32, the precision that the fit runs in."""

    scale: np.float32
    rotation: Floats
    offset: Floats

    @staticmethod
    def of(exact: Similarity) -> Start:
        return Start(
            np.float32(exact.scale), exact.rotation.astype(np.float32), exact.offset.astype(np.float32)
        )

    def move(self, points: Floats) -> Floats:
        """Images float32 of ``points`` (…, 3)."""
        moved: Floats = self.scale * rotate(points, self.rotation) + self.offset
        return moved


def fit(gt: Floats, pred: Floats, radius: float, threads: int | None = None) -> Similarity:
    """The similarity that takes ``pred`` to ``gt``.

    gt, pred : float32 (F, N, 3), metres: N points of each side's surface at each of F frames. Rows of one
    frame need not correspond, frames do.
    radius : the reference's unit of length, metres.

    Raises ``ValueError`` when either side is a single point, or has coordinates too large to work with.
    """
    (x, centre_x, radius_x), (y, centre_y, radius_y) = _normalised(gt), _normalised(pred)
    cap = np.float32(CAP * radius / radius_x)
    some = frame_numbers(len(x), min(FIRST_FRAMES, len(x)))
    first_x, first_y = x[some, :FIRST_POINTS], y[some, :FIRST_POINTS]
    fitted = [refine(start, first_x, first_y) for start in starts(x, y)]
    errors = [objective(first_x, start.move(first_y), cap) for start in fitted]
    best = np.argsort(errors, kind="stable")[:FINALISTS]
    finalists = [refine(fitted[index], x[:, :SECOND_POINTS], y[:, :SECOND_POINTS]) for index in best]
    chosen = finalists[int(np.argmin([objective(x, start.move(y), cap, threads) for start in finalists]))]
    scale = float(chosen.scale) * radius_x / radius_y
    rotation = chosen.rotation.astype(np.float64)
    offset = centre_x + radius_x * chosen.offset.astype(np.float64) - scale * rotate(centre_y, rotation)
    return Similarity(scale, rotation, offset)


def frame_numbers(frames: int, count: int) -> list[int]:
    """``count`` frames at equal steps from the first of ``frames`` to the last, rounded down, some perhaps
    twice.
    """
    return [int(position) for position in np.linspace(0, frames - 1, count)]


def starts(x: Floats, y: Floats) -> list[Start]:
    """Identity, the 24 ways to lay the principal axes of ``y`` on those of ``x``, and the fit of the frames'
    centroids unless all of ``y``'s are the same. x, y : float32 (F, N, 3), normalised.
    """
    nowhere = np.zeros(3, np.float32)
    axes_x, axes_y = _principal_axes(x), _principal_axes(y)
    rotations: list[Floats] = [np.eye(3, dtype=np.float32)]
    rotations += [(axes_x @ turn @ axes_y.T).astype(np.float32) for turn in cube_rotations()]
    found = [Start(np.float32(1), rotation, nowhere) for rotation in rotations]
    way_x, way_y = _centroids(x), _centroids(y)
    if len(way_y) > 1 and (way_y != way_y[0]).any():
        found.append(Start.of(fit_similarity(way_y, way_x, np.float32)))
    return found


def cube_rotations() -> list[Floats]:
    """The 24 signed permutation matrices with determinant +1, float32 (3, 3)."""
    matrices = (
        np.eye(3, dtype=np.float32)[:, order] * np.array(signs, np.float32)
        for order in itertools.permutations(range(3))
        for signs in itertools.product((-1, 1), repeat=3)
    )
    return [matrix for matrix in matrices if np.linalg.det(matrix) > 0]


def refine(start: Start, x: Floats, y: Floats) -> Start:
    """``start`` after 20 rounds of pairing ``y`` (F, N, 3) with ``x`` (F, N, 3) and fitting anew."""
    for _ in range(ITERATIONS):
        start = Start.of(fit_similarity(*_kept_pairs(x, y, start.move(y)), np.float32))
    return start


def objective(x: Floats, moved: Floats, cap: np.float32, threads: int | None = None) -> float:
    """½ (mean of min(1, d/cap) over ``moved`` (F, N, 3) + the same over ``x`` (F, N, 3)), where d is the
    distance to the closest point of the other side at the same frame.

    Frames are shared out among threads; what comes back does not depend on how many there are.
    """
    workers = 1 if x.shape[1] <= SECOND_POINTS else threads or default_threads()
    if workers == 1:
        found = [distances_both_ways(*sides) for sides in zip(moved, x, strict=True)]
    else:
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(distances_both_ways, moved, x))
    there, back = (
        np.float32(np.mean([_share(side, cap) for side in way])) for way in zip(*found, strict=True)
    )
    return float(np.float32(0.5) * (there + back))


def _share(squared: Floats, cap: np.float32) -> float:
    """Mean of min(1, d/cap) of one frame."""
    return float(np.minimum(np.sqrt(squared) / cap, np.float32(1)).mean(dtype=np.float64))


def _kept_pairs(x: Floats, y: Floats, moved: Floats) -> tuple[Floats, Floats]:
    """Rows of ``y`` and of ``x`` that belong together, float32 (k, 3): the closest pairs each way."""
    (there, there_row), (back, back_row) = closest(moved, x), closest(x, moved)
    forward, backward = _smallest(there), _smallest(back)
    first = np.arange(len(x))[:, None] * x.shape[1]
    flat_x, flat_y = x.reshape(-1, 3), y.reshape(-1, 3)
    source = np.concatenate([flat_y[forward], flat_y[(first + back_row).ravel()[backward]]])
    target = np.concatenate([flat_x[(first + there_row).ravel()[forward]], flat_x[backward]])
    return source, target


def _smallest(squared: Floats) -> NDArray[np.intp]:
    """Flat indices of the smallest four fifths of ``squared`` (F, N)."""
    keep = int(squared.size * KEEP)
    return np.argpartition(squared, keep, axis=None)[:keep]


def _principal_axes(points: Floats) -> Floats:
    """Right-handed eigenvectors float32 (3, 3) of Σ p pᵀ over all points, as columns, ascending."""
    flat = points.reshape(-1, 3).astype(np.float64)
    _, axes = np.linalg.eigh(np.einsum("ni,nj->ij", flat, flat))
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    return axes.astype(np.float32)


def _centroids(points: Floats) -> Floats:
    """Float32 (F, 3)."""
    centroids: NDArray[np.float64] = points.mean(axis=1, dtype=np.float64)
    return centroids.astype(np.float32)


def _normalised(points: Floats) -> tuple[Floats, Doubles, float]:
    """Points float32 about their centroid in units of their RMS radius, with both (float64)."""
    try:
        centre, radius = extent(points.reshape(-1, 3))
    except ValueError as error:
        raise ValueError("dynamic surface cloud has zero RMS radius") from error
    return ((points - centre) / radius).astype(np.float32), centre, radius
