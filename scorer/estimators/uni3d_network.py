"""The point-cloud network as a whole, with the official checkpoint's names.

Source: protocol 4dcb-1, Uni3D (Zhou et al. 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scorer.estimators.uni3d_eva import Visual
from scorer.estimators.uni3d_groups import grouped
from scorer.estimators.uni3d_sizes import Architecture

LOCAL = (128, 256, 512)
"""Channels inside the network that encodes a group."""
POSITION = 128


class Uni3DNetwork(nn.Module):
    """Clouds (n, points, 3) of one constant colour to unit vectors (n, embedded)."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        # Of training; it is in the checkpoint and not used.
        self.logit_scale = nn.Parameter(torch.zeros(()))
        self.point_encoder = PointEncoder(sizes)

    def forward(self, clouds: Tensor, colour: float) -> Tensor:
        return functional.normalize(self.point_encoder(clouds, colour), dim=-1)


class PointEncoder(nn.Module):
    """A token a group of points, a transformer over them, and the class token's answer (n, embedded)."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        width = sizes.width
        self.groups, self.group_size = sizes.groups, sizes.group_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.cls_pos = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = GroupEncoder(sizes.encoded)
        self.encoder2trans = nn.Linear(sizes.encoded, width)
        self.pos_embed = nn.Sequential(nn.Linear(3, POSITION), nn.GELU(), nn.Linear(POSITION, width))
        self.trans2embed = nn.Linear(width, sizes.embedded)
        self.visual = Visual(sizes)

    def forward(self, clouds: Tensor, colour: float) -> Tensor:
        # Cloud by cloud: rounding must not let a cloud's groups depend on what else is in the batch.
        parts = [self._tokens(cloud, colour) for cloud in clouds]
        embedded: Tensor = self.trans2embed(self.visual(torch.stack(parts)))
        return embedded

    def _tokens(self, cloud: Tensor, colour: float) -> Tensor:
        """Tokens (1 + groups, width) with their positions added; the class token comes first."""
        centres, near = grouped(cloud, self.groups, self.group_size)
        groups = torch.cat([near, torch.full_like(near, colour)], dim=-1)
        tokens = torch.cat([self.cls_token[0], self.encoder2trans(self.encoder(groups))])
        return tokens + torch.cat([self.cls_pos[0], self.pos_embed(centres)])


class GroupEncoder(nn.Module):
    """Groups (m, size, 6) of offsets and colours to features (m, encoded), whatever the points' order."""

    def __init__(self, encoded: int) -> None:
        super().__init__()
        first, second, both = LOCAL
        self.first_conv = nn.Sequential(
            nn.Conv1d(6, first, 1), nn.BatchNorm1d(first), nn.ReLU(), nn.Conv1d(first, second, 1)
        )
        self.second_conv = nn.Sequential(
            nn.Conv1d(2 * second, both, 1), nn.BatchNorm1d(both), nn.ReLU(), nn.Conv1d(both, encoded, 1)
        )

    def forward(self, groups: Tensor) -> Tensor:
        local = self.first_conv(groups.transpose(1, 2))
        shared = local.amax(dim=2, keepdim=True).expand_as(local)
        features: Tensor = self.second_conv(torch.cat([shared, local], dim=1))
        return features.amax(dim=2)
