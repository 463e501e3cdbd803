"""The depth network's image encoder: a DINOv2 vision transformer, with the official checkpoint's names.

Source: protocol 4dcb-1, Video Depth Anything; DINOv2 (Oquab et al. 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scorer.estimators.video_depth_anything_sizes import PATCH, Architecture

EPSILON = 1e-6
OFFSET = 0.1
"""Added to the number of patches when positions are resized, as in training."""


class Encoder(nn.Module):
    """Images (n, 3, 14·rows, 14·cols) to four maps (n, width, rows, cols): tapped blocks' normed output."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        self.taps, self.grid = sizes.taps, sizes.grid
        width = sizes.width
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, sizes.grid**2 + 1, width))
        # Of training; it is in the checkpoint and not used.
        self.mask_token = nn.Parameter(torch.zeros(1, width))
        self.patch_embed = _PatchEmbedding(width)
        self.blocks = nn.ModuleList(_Block(width, sizes.heads) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        count, rows, columns = len(images), images.shape[-2] // PATCH, images.shape[-1] // PATCH
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(count, -1, -1), patches], dim=1)
        tokens = tokens + self.positions(rows, columns)
        tapped = []
        for number, block in enumerate(self.blocks):
            tokens = block(tokens)
            if number in self.taps:
                kept = self.norm(tokens)[:, 1:]
                tapped.append(kept.transpose(1, 2).reshape(count, -1, rows, columns))
            if number == self.taps[-1]:
                break
        return tuple(tapped)

    def positions(self, rows: int, columns: int) -> Tensor:
        """Position embeddings (1, 1 + rows·columns, width), resized bicubically from the trained grid.

        The factors are ``(side + 0.1) / grid``; they set the sampling points too, which are thus not those of
        a resize to a size.
        """
        if rows == columns == self.grid:
            return self.pos_embed
        first, rest = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        square = rest.reshape(1, self.grid, self.grid, -1).permute(0, 3, 1, 2)
        factors = ((rows + OFFSET) / self.grid, (columns + OFFSET) / self.grid)
        resized = functional.interpolate(square, scale_factor=factors, mode="bicubic", antialias=False)
        return torch.cat([first, resized.flatten(2).transpose(1, 2)], dim=1)


class _PatchEmbedding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, PATCH, stride=PATCH)

    def forward(self, images: Tensor) -> Tensor:
        embedded: Tensor = self.proj(images)
        return embedded.flatten(2).transpose(1, 2)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPSILON)
        self.attn = _Attention(width, heads)
        self.ls1 = _LayerScale(width)
        self.norm2 = nn.LayerNorm(width, eps=EPSILON)
        self.mlp = _Mlp(width)
        self.ls2 = _LayerScale(width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.ls1(self.attn(self.norm1(tokens)))
        changed: Tensor = tokens + self.ls2(self.mlp(self.norm2(tokens)))
        return changed


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        split = self.qkv(tokens).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return projected


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        changed: Tensor = self.fc2(functional.gelu(self.fc1(tokens)))
        return changed


class _LayerScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.gamma
