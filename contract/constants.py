"""Numbers of protocol 4dcb-1. Every one of them moves a score; none is a matter of taste."""

from __future__ import annotations

import math

NEAR = 1e-3
"""Near plane, metres."""
MISS = -1
"""Face index of a pixel that no triangle covers."""
SEED = 0
"""Seed of every sampler of the metrics."""
SAMPLES = 16384
"""Target number of material samples on the reference's calibration frame."""
BAND_FRACTION = 0.0025
"""Dynamic IoU: half width of the ignored band along the reference mask's edge, in image diagonals."""
CLOSE_FRACTION = 0.0025
"""Dynamic IoU on real cases: closing radius of the submitted mask, in image diagonals."""
MAX_FRAMES = 300
"""Longest sampled timeline."""
MAX_MESH_FRAMES = 10_000
"""Frame indices in mesh archives have four digits."""
MAX_MESH_ID = 65_535
"""Ids in dynamics archives are uint16; a mesh with a larger id can never be named as moving."""
TRACER_POINTS = 16_384
"""Most columns of a tracer archive."""
ROTATION_TOLERANCE = 1e-4
"""Largest entry of |RᵀR − I| that still counts as a rotation."""
DETAIL_LIMIT = 2_000
"""Characters of a gate's detail text."""


def stride(frames: int) -> int:
    """Smallest step k ≥ 1 with ceil(frames / k) ≤ MAX_FRAMES (spec: sampled timeline)."""
    return max(1, math.ceil(frames / MAX_FRAMES))


def sampled_frames(frames: int, step: int | None = None) -> range:
    """Sampled frame indices 0, k, 2k, … < frames; ``step`` below 1 acts as 1."""
    return range(0, frames, stride(frames) if step is None else max(1, step))


def edge_radius(fraction: float, height: int, width: int) -> int:
    """Radius in pixels of a fraction of the image diagonal: at least 1, rounded half to even."""
    return max(1, round(fraction * math.hypot(height, width)))
