"""Flow distribution: do things move as fast, and in the same directions, as they do in the video?

Statistics: per step of the sampled timeline, the estimated and the analytic flow of the pixels where either
moves, and the gap between the two sets of vectors: their sliced Wasserstein distance over the sum of their
root mean squares, at most 1. Formula: 1 − the mean gap, where a step that the submission leaves uncovered
counts 1. Source: protocol 4dcb-1, Flow distribution. Where pixels must be drawn the draw is NumPy's (the
reference's depends on its device, spec note W3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.constants import SEED, sampled_frames
from contract.names import FLOW
from contract.states import REFERENCE_EMPTY
from scorer.analytic.flow import frame_flow
from scorer.estimates import FlowEstimate, flow_estimate, present
from scorer.geometry.distances import semd
from scorer.metrics.base import Measurement
from scorer.scene import Scene
from scorer.scratch import frame_store
from world.reader import World

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

MOVING = 0.5
"""Pixels a step above which a pixel moves."""
SAMPLE = 4096
"""Most pixels that are compared in a step."""

OK = "ok"
NO_REFERENCE = "no_reference_coverage"
NO_PREDICTION = "no_prediction_coverage"
STATIONARY = "stationary"

_CAUSES = {"flow_distribution": REFERENCE_EMPTY}
_LARGEST = float(np.finfo(np.float16).max)


def measure(scene: Scene) -> Measurement:
    """Compare the submission's analytic flow with the estimated one.

    Without ``flow.h5`` nothing is vouched for. Raises ``EstimateError`` when it is damaged or was made from
    another video, and ``ValueError`` when the video has no two frames to compare.
    """
    if not present(scene.estimates_path, FLOW):
        return Measurement({}, vouched=frozenset(), causes=_CAUSES)
    with flow_estimate(scene.estimates_path) as estimate:
        statistics = gather(estimate, scene.submission)
    counted = statistics.counted
    detail: dict[str, Any] = {
        "flow_distribution_score": flow_distribution(statistics.gaps, counted - len(statistics.gaps)),
        "flow_distribution_frames": counted,
        "flow_frame_status": statistics.status,
        "flow_evaluated_fraction": float(np.mean(statistics.fraction)),
        "flow_frames": len(statistics.status),
        "flow_stride": estimate.stride,
    }
    arrays: dict[str, NDArray[Any]] = {
        "flow": statistics.flow,
        "valid": statistics.valid,
        "evaluated": statistics.evaluated,
        "stride": np.array(estimate.stride, np.int64),
    }
    if statistics.gaps:
        arrays["distribution"] = np.array(statistics.gaps, np.float32)
    return Measurement(detail, {"flow": arrays}, causes=_CAUSES)


@dataclass(frozen=True)
class Statistics:
    """Readings of the steps.

    flow : float16 (k, H, W, 2), the submission's, values beyond float16 cut off. valid, evaluated : bool
    (k, H, W), where it is known and where it was compared. status, fraction : of each step. gaps : of the
    steps that are ``ok``.
    """

    flow: NDArray[np.float16]
    valid: Mask
    evaluated: Mask
    status: list[str] = field(default_factory=list)
    fraction: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Steps that enter the score."""
        return len(self.gaps) + self.status.count(NO_PREDICTION)


def gather(estimate: FlowEstimate, world: World) -> Statistics:
    """Work out and compare each step; the fields of all steps go to the frame stores."""
    frames, height, width = world.shape
    steps = estimate.steps(world.shape)
    samples = sampled_frames(frames, estimate.stride)
    size = (steps, height, width)
    statistics = Statistics(
        frame_store((*size, 2), np.float16), frame_store(size, np.bool_), frame_store(size, np.bool_)
    )
    for step in range(steps):
        ours, known, _ = frame_flow(world, samples[step], estimate.stride)
        theirs, given = estimate.step(step)
        reading = read_step(theirs, given, ours, known)
        statistics.flow[step] = np.clip(ours, -_LARGEST, _LARGEST)
        statistics.valid[step] = known
        statistics.evaluated[step] = reading.evaluated
        statistics.status.append(reading.status)
        statistics.fraction.append(float(reading.evaluated.mean()))
        if reading.gap is not None:
            statistics.gaps.append(reading.gap)
    return statistics


@dataclass(frozen=True)
class StepReading:
    """One step: its status, the pixels compared (H, W), and the gap if some were."""

    status: str
    evaluated: Mask
    gap: float | None


def read_step(theirs: Floats, given: Mask, ours: Floats, known: Mask) -> StepReading:
    """Compare estimated flow (H, W, 2), known where ``given``, with ours, known where ``known``."""
    reference_moves = _moving(theirs)
    both = given & known
    evaluated = both & (reference_moves | _moving(ours))
    pixels = drawn(np.flatnonzero(evaluated))
    if len(pixels):
        gap = flow_gap(theirs.reshape(-1, 2)[pixels], ours.reshape(-1, 2)[pixels])
        return StepReading(OK, evaluated, gap)
    if not given.any():
        status = NO_REFERENCE
    elif not both.any() or (given & reference_moves).any():
        status = NO_PREDICTION
    else:
        status = STATIONARY
    return StepReading(status, evaluated, None)


def drawn(pixels: NDArray[np.int64]) -> NDArray[np.int64]:
    """All of ``pixels`` (n,), or ``SAMPLE`` of them in an order that only n decides."""
    if len(pixels) <= SAMPLE:
        return pixels
    chosen: NDArray[np.int64] = pixels[np.random.default_rng(SEED).permutation(len(pixels))[:SAMPLE]]
    return chosen


def flow_gap(reference: Floats, submission: Floats) -> float | None:
    """Sliced Wasserstein distance of two sets of vectors (n, 2) over the sum of their root mean squares, at
    most 1; None when nothing moves.
    """
    scale = _root_mean_square(reference) + _root_mean_square(submission)
    if scale <= 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        gap = semd(reference, submission) / scale
    # What is not a number is no match either.
    return gap if gap < 1.0 else 1.0


def flow_distribution(gaps: Sequence[float], missed: int) -> float | None:
    """1 − the mean over the compared steps' gaps and a gap of 1 for each missed step; None without either."""
    counted = len(gaps) + missed
    return 1.0 - (float(np.sum(gaps)) + missed) / counted if counted else None


def _moving(flow: Floats) -> Mask:
    with np.errstate(over="ignore", invalid="ignore"):
        moves: Mask = np.sqrt(flow[..., 0] ** 2 + flow[..., 1] ** 2) > MOVING
    return moves


def _root_mean_square(vectors: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(vectors, dtype=np.float64))))
