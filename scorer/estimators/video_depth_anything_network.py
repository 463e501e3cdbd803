"""The depth network as a whole. Source: protocol 4dcb-1, Video Depth Anything (Chen et al. 2025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scorer.estimators.video_depth_anything_encoder import Encoder
from scorer.estimators.video_depth_anything_head import Head, Taps
from scorer.estimators.video_depth_anything_sizes import ENCODED, Architecture


class VideoDepthNetwork(nn.Module):
    """Clips (B, T, 3, h, w), T at most 32, h and w multiples of 14, to disparity (B, T, h, w) ≥ 0."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        self.pretrained = Encoder(sizes)
        self.head = Head(sizes)

    def forward(self, clips: Tensor) -> Tensor:
        maps = []
        for clip in clips:
            seen = [taps for part in clip.split(ENCODED) for taps in self.encode(part)]
            maps.append(self.decode(seen, slice(0, len(seen))))
        return torch.stack(maps)

    def encode(self, images: Tensor) -> list[Taps]:
        """What the encoder sees in each of ``images`` (n, 3, h, w)."""
        return list(zip(*self.pretrained(images), strict=True))

    def decode(self, seen: list[Taps], wanted: slice) -> Tensor:
        """Disparity (n, h, w) of the ``wanted`` frames of a window, given what was seen in all of them."""
        maps: Tensor = self.head(seen, wanted)
        return maps
