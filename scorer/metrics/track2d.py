"""Track 2D DTW: do points of the surface take the paths that a tracker sees in the video?

Statistics: the tracked points that move and lie on visible texture, and the warped distance of each one's
path to the submission's path from the same pixel, in image diagonals. Formula: 1 − their mean over the cap.
Source: protocol 4dcb-1, Track2D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from contract.names import TRACKS
from contract.states import REFERENCE_EMPTY, SUBMISSION_EMPTY
from scorer.analytic.tracks import track_points
from scorer.estimates import TrackEstimate, present, track_estimate
from scorer.geometry.dtw import dtw_pairs
from scorer.metrics.base import Measurement
from scorer.scene import Scene
from world.video import VideoError, frames

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Image = NDArray[np.uint8]

CAP = 0.03
"""Largest cost of a path, image diagonals."""
MOTION = 0.02
"""Travel above which a tracked point moves, image diagonals."""
TEXTURE = 0.5
"""Standard deviation above which a patch can be tracked, grey levels."""
WINDOW = 11
"""Side of that patch, pixels."""

_KEY = "track2d_dtw"


def measure(scene: Scene) -> Measurement:
    """Compare the submission's point tracks with the estimated ones.

    Without ``tracks.npz`` nothing is vouched for. Raises ``EstimateError`` when it is damaged or was made
    from another video, and ``IndexError`` when the nearest pixel of a query lies outside the image, which the
    protocol makes an error of every submission.
    """
    if not present(scene.estimates_path, TRACKS):
        return Measurement({}, vouched=frozenset(), causes={_KEY: SUBMISSION_EMPTY})
    estimate = track_estimate(scene.estimates_path)
    world = scene.submission
    estimate.require_video(world.shape)
    diagonal = math.hypot(world.height, world.width)
    gates = read_gates(estimate, texture_gate(scene.video_path, estimate), diagonal)
    answer, answered = track_points(world, estimate.queries, estimate.stride)
    detail: dict[str, Any] = {
        "track2d_queries": len(estimate.tracks),
        "track2d_moving": int(np.count_nonzero(gates.scored)),
        "track2d_moving_ungated": int(np.count_nonzero(gates.moving)),
        "track2d_trackable": None if gates.trackable is None else int(np.count_nonzero(gates.trackable)),
        "track2d_texture": TEXTURE,
        "track2d_extracted": bool(answered.any()),
        "track2d_stride": estimate.stride,
        "track2d_dtw_error": None,
    }
    arrays: dict[str, NDArray[Any]] = {
        "moving": gates.scored,
        "motion": np.array(MOTION, np.float32),
        "stride": np.array(estimate.stride, np.int64),
    }
    if gates.trackable is not None:
        arrays |= {"trackable": gates.trackable, "texture": np.array(TEXTURE, np.float32)}
    if not gates.scored.any() or not answered.any():
        cause = SUBMISSION_EMPTY if gates.scored.any() else REFERENCE_EMPTY
        return Measurement(detail, {"track2d": arrays}, causes={_KEY: cause})
    paths = Paths.of(estimate, answer, answered, gates.scored, diagonal)
    cost = paths.cost()
    error = track_error(cost)
    detail["track2d_frames"] = answer.shape[1]
    detail["track2d_dtw_error"] = error
    detail["track2d_dtw_score"] = max(0.0, 1.0 - error)
    arrays |= {
        "gt": paths.gt,
        "pred": paths.pred,
        "cap": np.array(CAP, np.float32),
        "on_mask": estimate.on_mask[gates.scored],
        "cost_dtw": cost,
    }
    return Measurement(detail, {"track2d": arrays})


@dataclass(frozen=True)
class Gates:
    """Which queries count, bool (Q,).

    moving : the tracked point moves. trackable : it lies on texture; None when that cannot be told.
    """

    moving: Mask
    trackable: Mask | None

    @property
    def scored(self) -> Mask:
        return self.moving if self.trackable is None else self.moving & self.trackable


def read_gates(estimate: TrackEstimate, trackable: Mask | None, diagonal: float) -> Gates:
    """Judge the reference's tracks alone; ``diagonal`` of the image in pixels."""
    return Gates(travel(estimate) > MOTION * diagonal, trackable)


def travel(estimate: TrackEstimate) -> Floats:
    """Largest displacement float32 (Q,) of each visible point from its query, less the background's drift, in
    pixels; 0 for one that is never visible.
    """
    count = len(estimate.tracks)
    if len(estimate.queries) != count:
        raise ValueError(f"{count} tracks against {len(estimate.queries)} queries")
    moved = displacement(estimate) - drift(estimate)
    with np.errstate(over="ignore"):  # a point that is not visible may be anywhere
        far = np.sqrt(moved[..., 0] ** 2 + moved[..., 1] ** 2)
    result: Floats = np.where(estimate.visible, far, np.float32(0)).max(axis=1, initial=0.0)
    return result


def displacement(estimate: TrackEstimate) -> Floats:
    """Displacement float32 (Q, F', 2) of each point from its query; one that is nowhere counts as (0, 0)."""
    moved: Floats = np.nan_to_num(estimate.tracks) - estimate.queries[:, None, 1:]
    return moved


def drift(estimate: TrackEstimate) -> Floats:
    """Median displacement float32 (F', 2) of the visible background (of all points where there is no
    background); 0 on a frame that shows none.
    """
    moved = displacement(estimate)
    background = ~estimate.on_mask if not estimate.on_mask.all() else np.ones_like(estimate.on_mask)
    result = np.zeros(moved.shape[1:], np.float32)
    for frame in range(moved.shape[1]):
        seen = background & estimate.visible[:, frame]
        if seen.any():
            result[frame] = np.median(moved[seen, frame], axis=0)
    return result


def texture_gate(video: Path, estimate: TrackEstimate) -> Mask | None:
    """Which queries lie on texture in the first frame of the video, bool (Q,).

    None, no gate, when the video cannot be read, a query's pixel lies outside it, or queries and tracks are
    not as many.
    """
    queries = estimate.queries
    if len(queries) != len(estimate.tracks):
        return None
    image = first_frame(video)
    if image is None:
        return None
    pixels = np.rint(queries[:, 1:]).astype(np.int64)
    if (pixels < 0).any() or (pixels >= (image.shape[1], image.shape[0])).any():
        return None
    return np.asarray(deviation(image)[pixels[:, 1], pixels[:, 0]] > TEXTURE)


def first_frame(video: Path) -> Image | None:
    """First frame of a video, uint8 (H, W, 3) RGB, or None when there is none to be had."""
    try:
        return next(iter(frames(video)), None)
    except (VideoError, OSError):
        return None


def deviation(image: Image) -> Floats:
    """Standard deviation of the grey levels around each pixel of an RGB image: float32 (H, W)."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)

    def mean(values: Floats) -> Floats:
        box = cv2.blur(values, (WINDOW, WINDOW), borderType=cv2.BORDER_REFLECT)
        return np.asarray(box, np.float32)

    spread: Floats = np.sqrt(np.maximum(mean(grey * grey) - mean(grey) ** 2, np.float32(0)))
    return spread


@dataclass(frozen=True)
class Paths:
    """The scored paths, float32 (n, F', 2) in image diagonals, NaN where they are not compared.

    gt : the estimate's, where visible. pred : the submission's, where it and the estimate are.
    """

    gt: Floats
    pred: Floats

    @classmethod
    def of(
        cls, estimate: TrackEstimate, answer: Floats, answered: Mask, scored: Mask, diagonal: float
    ) -> Paths:
        visible = estimate.visible[scored]
        both = visible & answered[scored]
        nothing, unit = np.float32(np.nan), np.float32(diagonal)
        return cls(
            gt=np.where(visible[..., None], estimate.tracks[scored] / unit, nothing),
            pred=np.where(both[..., None], answer[scored] / unit, nothing),
        )

    def cost(self) -> Floats:
        """Warped distance float32 (n,) of each pair, at most ``CAP``; ``CAP`` where nothing is compared."""
        return dtw_pairs(self.gt, self.pred, CAP)


def track_error(cost: Floats) -> float:
    """Mean cost (n,), n ≥ 1, in caps."""
    return float(np.mean(cost)) / CAP
