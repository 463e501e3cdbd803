"""RAFT-large optical flow, through torchvision's own class.

Protocol 4dcb-1: pixels ``2·x/255 − 1``, edges replicated to the right and downwards to multiples of 8, 12
updates, the last prediction, padding cut off. Occlusion is not estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contract import checkpoints
from scorer.estimators.base import halved_on_oom
from scorer.estimators.weights import checkpoint_file, load_pickled, load_strict

if TYPE_CHECKING:
    import torch

Frames = NDArray[np.uint8]
Floats = NDArray[np.float32]

ITERATIONS = 12
"""Updates of the flow."""
PAIRS = 2
"""Pairs of frames in one forward pass."""
MULTIPLE = 8
SMALLEST = 128
"""The network's smallest side. Smaller videos, which have no value in the reference, are padded up to it."""


@dataclass(frozen=True)
class RaftModel:
    """The estimator."""

    name: str = "raft-large"
    directory: str = checkpoints.RAFT
    requires: tuple[str, ...] = ("torch", "torchvision")

    def load(self, device: torch.device, root: Path) -> Raft:
        """The network on ``device``. Raises ``UserError`` when the store lacks it or holds something else."""
        from torchvision.models.optical_flow import raft_large

        weights = checkpoints.CHECKPOINTS[self.directory].weights.path
        path = checkpoint_file(root, self.directory, weights)
        network = raft_large(weights=None, progress=False)
        load_strict(network, load_pickled(path), path)
        return Raft(network.eval().requires_grad_(False).to(device), device)


class Raft:
    """The loaded network."""

    def __init__(self, network: torch.nn.Module, device: torch.device) -> None:
        self._network, self._device = network, device

    def flow(self, frames: Frames) -> Floats:
        """Flow float32 (n − 1, H, W, 2) in pixels, (right, down), from each frame to the next.

        frames : RGB, uint8 (n, H, W, 3); a single one gives (0, H, W, 2).
        Raises ``MemoryError`` when not even one pair fits.
        """
        import torch

        frames = np.asarray(frames)
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or 0 in frames.shape:
            raise ValueError(f"expected uint8 frames (n, H, W, 3), not {frames.dtype} {frames.shape}")
        height, width = frames.shape[1:3]
        if len(frames) == 1:
            return np.zeros((0, height, width, 2), np.float32)

        def run(pairs: Sequence[int]) -> Floats:
            images = self._pixels(frames[pairs[0] : pairs[-1] + 2])
            with torch.inference_mode():
                found = self._network(images[:-1], images[1:], num_flow_updates=ITERATIONS)[-1]
            return found[:, :, :height, :width].permute(0, 2, 3, 1).float().cpu().numpy()

        starts = range(0, len(frames) - 1, PAIRS)
        return np.concatenate(
            [halved_on_oom(run, range(start, min(start + PAIRS, len(frames) - 1))) for start in starts]
        )

    def _pixels(self, frames: Frames) -> torch.Tensor:
        """The network's input float32 (b, 3, h, w) in [−1, 1], h and w padded."""
        import torch

        raw = torch.from_numpy(np.require(frames, requirements=["C", "W"])).to(self._device)
        pixels = 2 * (raw.permute(0, 3, 1, 2).float() / 255) - 1
        height, width = pixels.shape[-2:]
        padding = (0, padded(width) - width, 0, padded(height) - height)
        return torch.nn.functional.pad(pixels, padding, mode="replicate")


def padded(side: int) -> int:
    """Side of the network's input for a video's side."""
    return max(SMALLEST, -(-side // MULTIPLE) * MULTIPLE)


RAFT = RaftModel()
