"""The depth network's temporal modules: each place of a map attends to itself in the window's other frames.

Names are the official checkpoint's. Source: protocol 4dcb-1, Video Depth Anything; the motion module of
AnimateDiff (Guo et al. 2023).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from scorer.estimators.video_depth_anything_sizes import WINDOW

HEADS = 8
ATTENTIONS = 2
GROUPS = 32
PLACES = 512
"""Places worked on at a time. They do not see each other: this bounds memory and changes no value."""


class TemporalModule(nn.Module):
    """Maps of one window (frames, channels, rows, cols) to maps of the same shape; at most 32 frames."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.temporal_transformer = _TemporalTransformer(channels)

    def forward(self, maps: Tensor) -> Tensor:
        moved: Tensor = self.temporal_transformer(maps)
        return moved


class _TemporalTransformer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels, eps=1e-6)
        self.proj_in = nn.Linear(channels, channels)
        self.transformer_blocks = nn.ModuleList([_TemporalBlock(channels)])
        self.proj_out = nn.Linear(channels, channels)

    def forward(self, maps: Tensor) -> Tensor:
        # The norm is each frame's own; then a row a place and, in it, a token a frame.
        rows = self.norm(maps).flatten(2).permute(2, 0, 1)
        moved = torch.cat([self._moved(part) for part in rows.split(PLACES)])
        return maps + moved.permute(1, 2, 0).reshape(maps.shape)

    def _moved(self, rows: Tensor) -> Tensor:
        rows = self.proj_in(rows)
        for block in self.transformer_blocks:
            rows = block(rows)
        moved: Tensor = self.proj_out(rows)
        return moved


class _TemporalBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention_blocks = nn.ModuleList(_TemporalAttention(channels) for _ in range(ATTENTIONS))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(ATTENTIONS))
        self.ff = _FeedForward(channels)
        self.ff_norm = nn.LayerNorm(channels)

    def forward(self, rows: Tensor) -> Tensor:
        for attention, norm in zip(self.attention_blocks, self.norms, strict=True):
            rows = attention(norm(rows)) + rows
        changed: Tensor = self.ff(self.ff_norm(rows)) + rows
        return changed


class _TemporalAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pos_encoder = _Order(channels)
        self.to_q = nn.Linear(channels, channels, bias=False)
        self.to_k = nn.Linear(channels, channels, bias=False)
        self.to_v = nn.Linear(channels, channels, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, rows: Tensor) -> Tensor:
        rows = self.pos_encoder(rows)
        heads = (each(rows).unflatten(-1, (HEADS, -1)) for each in (self.to_q, self.to_k, self.to_v))
        query, key, value = (head.transpose(1, 2) for head in heads)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.to_out[0](mixed.transpose(1, 2).flatten(2))
        return projected


class _Order(nn.Module):
    """Adds a sinusoidal encoding of a frame's place in the window; it is part of the checkpoint."""

    pe: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        place = torch.arange(WINDOW, dtype=torch.float32)[:, None]
        rate = torch.exp(torch.arange(0, channels, 2, dtype=torch.float32) * (-math.log(1e4) / channels))
        waves = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1)
        self.register_buffer("pe", waves.flatten(1)[None])

    def forward(self, rows: Tensor) -> Tensor:
        return rows + self.pe[:, : rows.shape[1]]


class _FeedForward(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        # The middle is training's dropout: it has no weights but counts in the names.
        self.net = nn.ModuleList(
            [_Gated(channels, 4 * channels), nn.Identity(), nn.Linear(4 * channels, channels)]
        )

    def forward(self, rows: Tensor) -> Tensor:
        for layer in self.net:
            rows = layer(rows)
        return rows


class _Gated(nn.Module):
    """GEGLU: one half of a projection, times GELU of the other."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.proj = nn.Linear(channels, 2 * hidden)

    def forward(self, rows: Tensor) -> Tensor:
        value, gate = self.proj(rows).chunk(2, dim=-1)
        gated: Tensor = value * functional.gelu(gate)
        return gated
