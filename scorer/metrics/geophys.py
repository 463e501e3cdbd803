"""GeoPhys: does the render's path through feature space bend and hasten like the video's?

Statistics: the path is one point a sampled frame, the mean of a vision model's patch features; five numbers
describe its shape. Formula: 1 − the mean relative gap of the numbers that both videos have. Source: protocol
4dcb-1, GeoPhys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.names import GEOPHYS
from contract.states import NO_PAIRING, REFERENCE_EMPTY
from scorer.estimates import EstimateError
from scorer.estimates_features import geophys_estimate
from scorer.estimators.dinov3 import GEOPHYS_LAYER
from scorer.metrics.base import Measurement
from scorer.metrics.render_features import Images, render_features
from scorer.subject import Subject

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

KEY = "geophys_dinov3"
LAYER = GEOPHYS_LAYER
READOUT = "spatial average pooling"
HISTORY = 6
"""Points that a prediction rests on."""
SHORTEST = HISTORY + 2
"""Points of the shortest path that has statistics."""
EPS = 1e-9
RANK = 1e-10
"""Singular values below this share of the largest span nothing."""
STATISTICS = ("speed", "curv", "ang", "accel", "perr")


class Patcher(Protocol):
    """What a vision model is here."""

    def patches(self, frames: Images, layer: int | None = None) -> Floats:
        """Patch features float32 (n, rows, columns, D) of frames uint8 (n, H, W, 3) RGB at a block."""


def measure(subject: Subject, model: Patcher) -> Measurement:
    """Compare the two paths.

    Without ``geophys_dinov3.npz`` nothing is vouched for, as for the other estimates. A path of fewer than
    eight points has no statistics, and without any there is nothing to compare. Raises what
    ``render_features`` raises, and ``EstimateError`` when the estimate was read at another block.
    """
    name = KEY.removeprefix("geophys_")
    if not (subject.estimates / GEOPHYS.format(name=name)).exists():
        return Measurement({}, vouched=frozenset(), causes={KEY: REFERENCE_EMPTY})
    estimate = geophys_estimate(subject.estimates, name)
    if estimate.layer != LAYER:
        raise EstimateError(f"{estimate.path}: read at layer {estimate.layer}; expected {LAYER}")
    render = render_features(subject, estimate, lambda frames: patch_mean(model, frames))
    gt, pred = statistics(estimate.rows), statistics(render)
    gaps = relative_gaps(gt, pred)
    signals: dict[str, Any] = {"gt": gt, "pred": pred, "gaps": gaps, "layer": LAYER, "readout": READOUT}
    arrays = {
        "render": render,
        "stride": np.array(estimate.stride, np.int64),
        "layer": np.array(LAYER, np.int64),
    }
    return Measurement(
        {f"{KEY}_signals": signals, f"{KEY}_score": agreement(gaps)}, {KEY: arrays}, causes={KEY: NO_PAIRING}
    )


def patch_mean(model: Patcher, frames: Images) -> Floats:
    """Mean float32 (n, D) of each frame's patches, summed in the same order as in ``scorer.prepare``."""
    patches = model.patches(frames, layer=LAYER)
    rows: Floats = patches.reshape(len(patches), -1, patches.shape[-1]).mean(axis=1)
    return rows


def statistics(path: NDArray[Any]) -> dict[str, float]:
    """The five statistics of a path (T, d), see below; all NaN for fewer than eight points.

    Of the steps from point to point: ``speed``, the deviation of their lengths; ``curv`` and ``ang``, mean
    and deviation of the angles between successive ones, NaN when nothing moves; ``accel``, the mean square
    of their change. ``perr``: the mean prediction error. Deviations are those of the population.
    """
    if path.ndim != 2 or len(path) < SHORTEST:
        return dict.fromkeys(STATISTICS, float("nan"))
    points = path.astype(np.float64)
    steps = np.diff(points, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    angles = turning_angles(steps, lengths)
    return {
        "speed": float(lengths.std()),
        "curv": float(angles.mean()) if len(angles) else float("nan"),
        "ang": float(angles.std()) if len(angles) else float("nan"),
        "accel": float(np.square(np.diff(steps, axis=0)).sum(axis=1).mean()),
        "perr": float(prediction_errors(points).mean()),
    }


def turning_angles(steps: Doubles, lengths: Doubles) -> Doubles:
    """Angles in radians between successive steps (n, d) of those lengths (n,), where both have one."""
    products = lengths[:-1] * lengths[1:]
    counts = products > EPS
    dots = np.einsum("td,td->t", steps[:-1], steps[1:])[counts]
    angles: Doubles = np.arccos(np.clip(dots / products[counts], -1.0, 1.0))
    return angles


def prediction_errors(points: Doubles) -> Doubles:
    """Distance (T − 6,) of each point from the affine hull of the six before it, for (T, d) points, T > 6."""
    windows = np.lib.stride_tricks.sliding_window_view(points[:-1], HISTORY, axis=0)  # (T − 6, d, 6)
    centres = windows.mean(axis=2)
    basis, size, _ = np.linalg.svd(windows - centres[:, :, None], full_matrices=False)
    spans = size > RANK * size[:, :1]  # nothing when the largest is 0
    ahead = points[HISTORY:] - centres
    shares = np.where(spans, np.einsum("tdk,td->tk", basis, ahead), 0.0)
    errors: Doubles = np.linalg.norm(ahead - np.einsum("tdk,tk->td", basis, shares), axis=1)
    return errors


def relative_gaps(gt: Mapping[str, float], pred: Mapping[str, float]) -> dict[str, float]:
    """``|a − b| / (a + b + 1e-9)`` of each statistic that is finite on both sides; at most five."""
    return {
        name: abs(gt[name] - pred[name]) / (gt[name] + pred[name] + EPS)
        for name in STATISTICS
        if np.isfinite(gt[name]) and np.isfinite(pred[name])
    }


def agreement(gaps: Mapping[str, float]) -> float | None:
    """1 − the mean gap, at least 0; None without any."""
    return max(0.0, 1.0 - float(np.mean(list(gaps.values())))) if gaps else None
