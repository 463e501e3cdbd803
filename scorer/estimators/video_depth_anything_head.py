"""The depth network's decoder: four levels fused from coarse to fine, with temporal modules on the way.

Names are the official checkpoint's. Source: protocol 4dcb-1, Video Depth Anything; DPT (Ranftl et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scorer.estimators.video_depth_anything_sizes import PATCH, Architecture
from scorer.estimators.video_depth_anything_temporal import TemporalModule

Taps = tuple[Tensor, ...]
"""What the encoder saw in one frame: four maps (width, rows, cols)."""

HIDDEN = 32
FINE_FRAMES = 4
"""Frames whose two finest levels are worked on at a time; they are each frame's own."""
COARSE_FRAMES = 8


class Head(nn.Module):
    """What the encoder saw in the frames of a window, to disparity maps."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        channels, features = sizes.channels, sizes.features
        self.projects = nn.ModuleList(nn.Conv2d(sizes.width, each, 1) for each in channels)
        self.resize_layers = nn.ModuleList(
            [
                nn.ConvTranspose2d(channels[0], channels[0], 4, stride=4),
                nn.ConvTranspose2d(channels[1], channels[1], 2, stride=2),
                nn.Identity(),
                nn.Conv2d(channels[3], channels[3], 3, stride=2, padding=1),
            ]
        )
        self.scratch = _Scratch(channels, features)
        self.motion_modules = nn.ModuleList(
            TemporalModule(each) for each in (channels[2], channels[3], features, features)
        )

    def forward(self, seen: Sequence[Taps], wanted: slice) -> Tensor:
        """Disparity (n, 14·rows, 14·cols) of the ``wanted`` frames among those ``seen`` (at most 32)."""
        coarse = self._coarse(seen)[wanted]
        frames = seen[wanted]
        parts = [
            self._fine(coarse[start : start + FINE_FRAMES], frames[start : start + FINE_FRAMES])
            for start in range(0, len(frames), FINE_FRAMES)
        ]
        return torch.cat(parts)

    def _coarse(self, seen: Sequence[Taps]) -> Tensor:
        """The two coarsest levels, fused over time: (frames, features, 2·rows, 2·cols)."""
        rows, columns = seen[0][0].shape[-2:]
        move = self.motion_modules
        level3 = self.scratch.layer3_rn(move[0](self._levels(seen, 2)))
        level4 = self.scratch.layer4_rn(move[1](self._levels(seen, 3)))
        path = move[2](self.scratch.refinenet4(level4, None, level3.shape[-2:]))
        moved: Tensor = move[3](self.scratch.refinenet3(path, level3, (2 * rows, 2 * columns)))
        return moved

    def _fine(self, path: Tensor, frames: Sequence[Taps]) -> Tensor:
        rows, columns = frames[0][0].shape[-2:]
        scratch = self.scratch
        path = scratch.refinenet2(path, scratch.layer2_rn(self._level(frames, 1)), (4 * rows, 4 * columns))
        path = scratch.refinenet1(path, scratch.layer1_rn(self._level(frames, 0)), (8 * rows, 8 * columns))
        path = _resized(scratch.output_conv1(path), (PATCH * rows, PATCH * columns))
        disparity: Tensor = scratch.output_conv2(path)
        return disparity[:, 0]

    def _levels(self, seen: Sequence[Taps], number: int) -> Tensor:
        parts = (seen[start : start + COARSE_FRAMES] for start in range(0, len(seen), COARSE_FRAMES))
        return torch.cat([self._level(part, number) for part in parts])

    def _level(self, frames: Sequence[Taps], number: int) -> Tensor:
        maps = torch.stack([taps[number] for taps in frames])
        level: Tensor = self.resize_layers[number](self.projects[number](maps))
        return level


class _Scratch(nn.Module):
    """Has the checkpoint's names; what is done with them is the head's."""

    def __init__(self, channels: Sequence[int], features: int) -> None:
        super().__init__()
        for number, each in enumerate(channels, start=1):
            self.add_module(f"layer{number}_rn", nn.Conv2d(each, features, 3, padding=1, bias=False))
            self.add_module(f"refinenet{number}", Fusion(features))
        self.output_conv1 = nn.Conv2d(features, features // 2, 3, padding=1)
        self.output_conv2 = nn.Sequential(
            nn.Conv2d(features // 2, HIDDEN, 3, padding=1), nn.ReLU(), nn.Conv2d(HIDDEN, 1, 1), nn.ReLU()
        )


class Fusion(nn.Module):
    """A path (n, features, ·, ·) with a level of the same shape (None: without) added, enlarged to a size."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.out_conv = nn.Conv2d(features, features, 1)
        # The coarsest fusion has no level, so no use for its first unit; the checkpoint has it all the same.
        self.resConfUnit1 = _ResidualUnit(features)
        self.resConfUnit2 = _ResidualUnit(features)

    def forward(self, path: Tensor, level: Tensor | None, size: Sequence[int]) -> Tensor:
        if level is not None:
            path = path + self.resConfUnit1(level)
        fused: Tensor = self.out_conv(_resized(self.resConfUnit2(path), size))
        return fused


class _ResidualUnit(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        changed: Tensor = self.conv2(functional.relu(self.conv1(functional.relu(maps))))
        return changed + maps


def _resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    return functional.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=True)
