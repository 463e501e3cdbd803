"""Semantic similarity: does each rendered frame show what the video shows, as a vision model sees it?

Statistics: one embedding a sampled frame, of both videos. Formula: the mean over frames of their cosine; the
reward maps it to (1 + mean) / 2. Source: protocol 4dcb-1, Semantic. DINOv3 and TIPSv2 are two readings of the
same kind.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contract.names import SEMANTIC
from contract.states import REFERENCE_EMPTY
from scorer.estimates_features import semantic_estimate
from scorer.metrics.base import Measurement
from scorer.metrics.render_features import Images, render_features
from scorer.subject import Subject

Floats = NDArray[np.float32]

LEAST_NORM = 1e-12
"""Least length that a vector is divided by."""


class Embedder(Protocol):
    """What a vision model is here."""

    def embed(self, frames: Images) -> Floats:
        """Global embeddings float32 (n, D) of frames uint8 (n, H, W, 3) RGB."""


def measure(subject: Subject, model: Embedder) -> Measurement:
    """Compare the render's embeddings with the reference video's.

    Without ``semantic_<name>.npz`` nothing is vouched for: that nobody has prepared the case is no fault of
    the submission. (The reference implementation calls it an error, which counts as the worst value.) Raises
    what ``render_features`` raises.
    """
    key, name = subject.unit, subject.unit.removeprefix("semantic_")
    if not (subject.estimates / SEMANTIC.format(name=name)).exists():
        return Measurement({}, vouched=frozenset(), causes={key: REFERENCE_EMPTY})
    estimate = semantic_estimate(subject.estimates, name)
    render = render_features(subject, estimate, model.embed)
    curve = cosines(estimate.rows, render)
    detail = {
        key: mean_cosine(curve),
        "semantic_per_frame": {key: curve.tolist()},
        "semantic_frames": len(curve),
        "semantic_stride": estimate.stride,
    }
    return Measurement(detail, {f"embeddings_{name}": {"render": render, "cosine": curve}})


def cosines(reference: Floats, render: Floats) -> Floats:
    """Cosine float32 (n,) of corresponding rows (n, D), a vector of no length having cosine 0 with any.

    Worked out in float64, so that a video's cosine with itself is 1 to the last bit.
    """
    a, b = (_unit(rows.astype(np.float64)) for rows in (reference, render))
    return np.clip(np.einsum("nd,nd->n", a, b), -1.0, 1.0).astype(np.float32)


def mean_cosine(curve: Floats) -> float:
    """Mean of (n,) cosines, n ≥ 1, in float32."""
    return float(np.mean(curve, dtype=np.float32))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), LEAST_NORM)
