"""CoTracker3 (offline): points followed through a video, by the authors' own package.

The package comes from git at a pinned commit. Source: protocol 4dcb-1, CoTracker3 and the query grid.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contract import checkpoints
from contract.errors import UserError
from scorer.estimators.base import halved_on_oom, package_fault
from scorer.estimators.weights import checkpoint_file, readable

if TYPE_CHECKING:
    import torch

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Size = tuple[int, int]

PACKAGE = "the package at the commit that the scorer image pins"
LONGEST = 768
"""Longest side, in pixels, at which points are followed."""
CHUNK = 256
"""Queries of one forward pass. They see each other, so this number is part of the result."""


def tracking_size(height: int, width: int) -> Size:
    """(height, width) at which a video of that size is tracked: its own, or the longer side 768."""
    longest = max(height, width)
    if longest <= LONGEST:
        return height, width
    scale = LONGEST / longest
    return max(1, round(height * scale)), max(1, round(width * scale))


def resized(frame: Image, size: Size) -> Image:
    """``frame`` uint8 (H, W, 3) at ``size`` = (h, w), by averaging over area; itself if it has that size."""
    import cv2

    height, width = size
    if frame.shape[:2] == size:
        return frame
    return cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)


def to_tracking(queries: Floats, full: Size, tracking: Size) -> Floats:
    """Queries ``(t, x, y)`` (Q, 3) in pixels of a video of size ``full`` (h, w), in those of ``tracking``."""
    moved = np.array(queries, np.float32)
    moved[:, 1:] *= _ratio(full, tracking)
    return moved


def to_full(tracks: Floats, full: Size, tracking: Size) -> Floats:
    """Tracks ``(x, y)`` (…, 2) in pixels of ``tracking`` (h, w), in pixels of the video's size ``full``."""
    moved: Floats = tracks * _ratio(tracking, full)
    return moved


def _ratio(source: Size, target: Size) -> Floats:
    # Sizes are scaled and not pixel centres: no half pixel is added.
    return np.array([target[1] / source[1], target[0] / source[0]], np.float32)


class Tracker:
    """The loaded model."""

    def __init__(self, predictor: Any, device: torch.device) -> None:
        self._predictor = predictor
        self._device = device

    def track(self, frames: Iterable[Image], queries: Floats) -> tuple[Floats, Mask]:
        """Follow ``queries`` float32 (Q, 3), ``(t, x, y)``, through ``frames`` uint8 (F', h, w, 3) RGB.

        Returns tracks float32 (Q, F', 2) and visibility bool (Q, F'), in pixels of the frames as given; NaN
        and false before a query's own frame. The clip is held as a whole, as float32 on the device: give it
        at :func:`tracking_size`. Raises ``ValueError`` for no frame, frames of unlike shapes, and queries of
        another shape or of frames that are not there.
        """
        clip = self._clip(frames)
        wanted = np.array(queries, np.float32, order="C")
        count = clip.shape[1]
        if wanted.ndim != 2 or wanted.shape[1] != 3:
            raise ValueError(f"queries are (Q, 3), not {wanted.shape}")
        if not ((wanted[:, 0] >= 0) & (wanted[:, 0] < count)).all():
            raise ValueError(f"queries are born on frames 0 to {count - 1}")
        parts = [np.empty((0, count, 3), np.float32)]
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            parts.append(halved_on_oom(lambda some: self._tracked(clip, some), chunk))
        both = np.concatenate(parts)
        unborn = np.arange(count) < wanted[:, :1]
        tracks, visible = both[..., :2].copy(), both[..., 2] != 0
        tracks[unborn], visible[unborn] = np.nan, False
        return tracks, visible

    def _clip(self, frames: Iterable[Image]) -> torch.Tensor:
        """The clip as the package takes it: float32 (1, F', 3, h, w) in [0, 255]."""
        import torch

        images = list(frames)
        if not images or any(image.shape != images[0].shape for image in images):
            raise ValueError("a clip needs at least one frame, and all of one shape")
        if images[0].ndim != 3 or images[0].shape[2] != 3 or images[0].dtype != np.uint8:
            raise ValueError(f"a frame is uint8 (h, w, 3), not {images[0].dtype} {images[0].shape}")
        small = torch.from_numpy(np.stack(images)).to(self._device)
        planes = small.permute(0, 3, 1, 2)
        return planes.to(torch.float32, memory_format=torch.contiguous_format)[None]

    def _tracked(self, clip: torch.Tensor, queries: Floats) -> Floats:
        """Tracks and, as a third coordinate, visibility: float32 (n, F', 3)."""
        import torch

        with torch.inference_mode():
            asked = torch.from_numpy(queries)[None].to(self._device)
            tracks, visible = self._predictor(clip, queries=asked, backward_tracking=False)
            both = torch.cat([tracks[0].float(), visible[0].reshape(*tracks.shape[1:3], 1).float()], dim=-1)
            found: Floats = both.transpose(0, 1).cpu().numpy()
            return found


class CoTracker3:
    """CoTracker3, trained on real videos too, offline."""

    name = "cotracker3-offline"
    directory = checkpoints.COTRACKER3
    requires = ("torch", "cotracker")

    def load(self, device: torch.device, root: Path) -> Tracker:
        """The model from the store ``root``.

        Raises ``UserError`` when package or file is missing, or one of them is not what is needed.
        """
        fault = package_fault("cotracker")
        if fault:
            raise UserError(fault)
        path = checkpoint_file(root, self.directory, checkpoints.CHECKPOINTS[self.directory].weights.path)
        try:
            from cotracker.predictor import CoTrackerPredictor
        except ImportError as error:
            raise UserError(f"package cotracker cannot be used: {error}", expected=PACKAGE) from error
        with readable(path):
            predictor = CoTrackerPredictor(checkpoint=str(path), offline=True)
        return Tracker(predictor.eval().requires_grad_(False).to(device), device)


COTRACKER3 = CoTracker3()
