"""Depth error: does the submission's geometry lie as near and as far as a depth model sees it in the video?

Statistics: per sampled frame, both disparities less their median, in mean absolute deviations, over the
pixels that the submission covers. Formula: the mean residual without its largest hundredth, weighed by the
covered share of the frame; what is not covered costs 1. Source: protocol 4dcb-1, Depth error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from contract.names import DEPTH
from contract.states import REFERENCE_EMPTY
from scorer.estimates import DepthEstimate, depth_estimate, present
from scorer.geometry.raster import rasterize
from scorer.metrics.base import Measurement
from scorer.scene import Scene
from scorer.scratch import frame_store
from world.reader import World

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

EPSILON = 1e-8
"""Least mean absolute deviation that is divided by."""
TRIM = 0.01
"""Share of the largest residuals that is left out."""


def measure(scene: Scene) -> Measurement:
    """Compare the submission's disparity with the estimated one, frame by frame.

    Without ``depth.h5`` the measurement is empty, as it is for flow and tracks: that nobody has prepared the
    case is no fault of the submission. (The reference implementation calls it an error, which counts as the
    worst value.) Raises ``EstimateError`` when the file is damaged or was made from another video.
    """
    if not present(scene.estimates_path, DEPTH):
        return Measurement({}, vouched=frozenset(), causes={"depth_error": REFERENCE_EMPTY})
    with depth_estimate(scene.estimates_path) as estimate:
        shape = scene.submission.shape
        frames = estimate.frames(shape)
        statistics = gather(estimate, scene.submission, frames)
    detail: dict[str, Any] = {
        "depth_error": depth_error(statistics.error),
        "depth_frames": len(frames),
        "depth_stride": estimate.stride,
        "depth_resolution": list(shape[1:]),
        "fps": estimate.fps,
        "depth_per_frame": [round(value, 6) for value in statistics.error],
        "depth_valid_fraction": [round(value, 6) for value in statistics.covered],
    }
    arrays = {
        "disparity": statistics.disparity,
        "valid": statistics.valid,
        "median": np.array(statistics.median, np.float32),
        "deviation": np.array(statistics.deviation, np.float32),
    }
    return Measurement(detail, {"raster_depth": arrays})


@dataclass(frozen=True)
class Statistics:
    """Readings of the sampled frames.

    disparity : float16 (n, h, w), the submission's, normalised, on the model's grid, 0 where uncovered.
    valid : bool (n, h, w). error, covered : the frame's error and covered share. median, deviation : the
    estimate's.
    """

    disparity: NDArray[np.float16]
    valid: Mask
    error: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)
    median: list[float] = field(default_factory=list)
    deviation: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class FrameReading:
    """One frame: its error, the covered share, the estimate's median and deviation, and the submission's
    normalised disparity (H, W), 0 where uncovered.
    """

    error: float
    covered: float
    median: float
    deviation: float
    normalised: Floats


def gather(estimate: DepthEstimate, world: World, frames: range) -> Statistics:
    """Draw and read each frame; only the small grids are kept."""
    _, height, width = world.shape
    grid = estimate.stored[1:]
    store = frame_store((len(frames), *grid), np.float16), frame_store((len(frames), *grid), np.bool_)
    statistics = Statistics(*store)
    for index, frame in enumerate(frames):
        reference = upsample(estimate.disparity(index), height, width)
        verts, faces, _ = world.soup(frame)
        depth, _ = rasterize(verts, faces, world.intrinsics, world.extrinsic, height, width)
        covered = np.isfinite(depth) & (depth > 0)
        reading = frame_reading(reference, depth, covered)
        small, mask = downsample(reading.normalised, grid), downsample(covered.astype(np.float32), grid)
        statistics.disparity[index] = small
        statistics.valid[index] = mask > 0.5
        statistics.error.append(reading.error)
        statistics.covered.append(reading.covered)
        statistics.median.append(reading.median)
        statistics.deviation.append(reading.deviation)
    return statistics


def frame_reading(reference: Floats, depth: Floats, covered: Mask) -> FrameReading:
    """Read one frame: estimated disparity (H, W), the submission's depth (H, W), and where that counts."""
    count = int(np.count_nonzero(covered))
    normalised = np.zeros(reference.shape, np.float32)
    if not count:
        _, middle, deviation = normalise(reference.ravel())
        return FrameReading(1.0, 0.0, middle, deviation, normalised)
    # Picking by a mask is slow, and most frames are covered from edge to edge.
    pixels = slice(None) if count == covered.size else np.flatnonzero(covered)
    ours, middle, deviation = normalise(reference.ravel()[pixels])
    theirs, _, _ = normalise(np.float32(1) / depth.ravel()[pixels])
    normalised.reshape(-1)[pixels] = theirs
    share = count / covered.size
    error = share * trimmed_mean(np.abs(ours - theirs)) + (1.0 - share)
    return FrameReading(error, share, middle, deviation, normalised)


def depth_error(errors: list[float]) -> float:
    """Mean over frames; NaN without any."""
    return float(np.mean(errors)) if errors else float("nan")


def normalise(values: Floats) -> tuple[Floats, float, float]:
    """``(v − median) / deviation`` of (n,) values, n ≥ 1, and both; the deviation is the mean absolute one,
    at least ``EPSILON``.
    """
    middle = median(values)
    centred = values - middle
    deviation = max(float(np.abs(centred).mean()), EPSILON)
    return centred / np.float32(deviation), float(middle), deviation


def median(values: Floats) -> np.float32:
    """Median of (n,) values, n ≥ 1: of an even number the mean of the two in the middle.

    Sorted, as NumPy sorts float32 faster than it selects, above all among many equal values: a flat wall.
    """
    ordered = np.sort(values)
    half = len(values) // 2
    if len(values) % 2:
        return np.float32(ordered[half])
    return np.float32((ordered[half - 1] + ordered[half]) / np.float32(2))


def trimmed_mean(residuals: Floats) -> float:
    """Mean of (n,) residuals without the largest ``int(TRIM · n)``."""
    kept = len(residuals) - int(TRIM * len(residuals))
    return float(np.sort(residuals)[:kept].mean())


def upsample(grid: Floats, height: int, width: int) -> Floats:
    """Bilinear enlargement of (h, w) to (H, W) with corner pixels on corner pixels."""
    left, right, x = _sources(grid.shape[1], width)
    above, below, y = _sources(grid.shape[0], height)
    rows = grid[:, left] * (np.float32(1) - x) + grid[:, right] * x
    result: Floats = rows[above] * (np.float32(1) - y)[:, None]
    result += rows[below] * y[:, None]
    return result


@lru_cache(maxsize=8)
def _sources(count: int, wanted: int) -> tuple[Longs, Longs, Floats]:
    """For each wanted sample: the stored samples before and after it, and the weight of the one after."""
    step = np.float32(count - 1) / np.float32(wanted - 1) if wanted > 1 else np.float32(0)
    at = step * np.arange(wanted, dtype=np.float32)
    before = np.minimum(at.astype(np.int64), count - 1)
    after = np.minimum(before + 1, count - 1)
    return before, after, np.clip(at - before.astype(np.float32), 0, 1)


def downsample(image: Floats, grid: tuple[int, ...]) -> Floats:
    """Area means of an image (H, W) on a grid (h, w)."""
    small = cv2.resize(image, (grid[1], grid[0]), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)
