"""The transformer of the point network: EVA-02's blocks, with the official checkpoint's names.

Without rotary embeddings, which the point network does not pass. Source: protocol 4dcb-1, Uni3D; EVA-02
(Fang et al. 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scorer.estimators.uni3d_sizes import PATCH, Architecture

EPSILON = 1e-6


class Visual(nn.Module):
    """Tokens (n, t, width) to the normed first token (n, width).

    The image model's own embedding, class token, positions and head are in the checkpoint and not used.
    """

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        width = sizes.width
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, sizes.grid**2 + 1, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, PATCH, stride=PATCH)})
        self.blocks = nn.ModuleList(EvaBlock(width, sizes.heads, sizes.hidden) for _ in range(sizes.depth))
        self.fc_norm = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, sizes.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        for block in self.blocks:
            tokens = block(tokens)
        normed: Tensor = self.fc_norm(tokens[:, 0])
        return normed


class EvaBlock(nn.Module):
    """Attention, then a gated layer, each with its norm before it."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPSILON)
        self.attn = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPSILON)
        self.mlp = _SwiGlu(width, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        changed: Tensor = tokens + self.mlp(self.norm2(tokens))
        return changed


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        split = (
            each(tokens).unflatten(-1, (self.heads, -1)) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key, value = (each.transpose(1, 2) for each in split)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return projected


class _SwiGlu(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(width, hidden)
        self.fc1_x = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden, eps=EPSILON)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        gated = functional.silu(self.fc1_g(tokens)) * self.fc1_x(tokens)
        changed: Tensor = self.fc2(self.norm(gated))
        return changed
