"""A second depth network, straight from the published layout: by name from a dictionary, nothing in parts."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional

State = dict[str, torch.Tensor]


def naive_clip(
    state: State, heads: int, depth: int, taps: tuple[int, ...], clip: torch.Tensor
) -> torch.Tensor:
    """Disparity (T, h, w) of a clip (T, 3, h, w)."""
    levels = naive_taps(sub(state, "pretrained."), heads, depth, taps, clip)
    return naive_head(sub(state, "head."), levels)


def sub(state: State, prefix: str) -> State:
    """The part of a state whose names start so, without the prefix."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def linear(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    out = x @ state[f"{name}.weight"].T
    return out + state[f"{name}.bias"] if f"{name}.bias" in state else out


def norm(state: State, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> torch.Tensor:
    """Of sequences (n, t, width), head by head."""
    size = query.shape[-1] // heads
    out = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ key[..., part].transpose(1, 2) / math.sqrt(size)
        out.append(scores.softmax(-1) @ value[..., part])
    return torch.cat(out, -1)


def cubic(t: float) -> float:
    """Keys' kernel with a = −3/4."""
    a, t = -0.75, abs(t)
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


def cubic_matrix(source: int, target: int) -> np.ndarray:
    """Weights (target, source) of the positions' resize along one axis."""
    factor = (target + 0.1) / source
    weights = np.zeros((target, source))
    for row in range(target):
        at = (row + 0.5) / factor - 0.5
        base = math.floor(at)
        for k in range(base - 1, base + 3):
            weights[row, min(max(k, 0), source - 1)] += cubic(at - k)
    return weights


def naive_positions(pos: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Position embeddings (1 + rows·columns, width) of an image of so many patches."""
    grid = math.isqrt(pos.shape[1] - 1)
    if rows == columns == grid:
        return pos[0]
    square = pos[0, 1:].reshape(grid, grid, -1).double().numpy()
    resized = np.einsum("ri,cj,ijk->rck", cubic_matrix(grid, rows), cubic_matrix(grid, columns), square)
    return torch.cat([pos[0, :1], torch.from_numpy(resized).float().flatten(0, 1)])


def naive_taps(state: State, heads: int, depth: int, taps, images: torch.Tensor) -> list[torch.Tensor]:
    rows, columns = images.shape[-2] // 14, images.shape[-1] // 14
    weight = state["patch_embed.proj.weight"]
    patches = images.unfold(2, 14, 14).unfold(3, 14, 14)  # n, 3, rows, cols, 14, 14
    x = torch.einsum("ncrsij,ocij->nrso", patches, weight).flatten(1, 2) + state["patch_embed.proj.bias"]
    x = torch.cat([state["cls_token"].expand(len(x), -1, -1), x], 1)
    x = x + naive_positions(state["pos_embed"], rows, columns)
    found = []
    for number in range(depth):
        block = sub(state, f"blocks.{number}.")
        query, key, value = linear(block, "attn.qkv", norm(block, "norm1", x, 1e-6)).chunk(3, -1)
        x = x + block["ls1.gamma"] * linear(block, "attn.proj", attention(query, key, value, heads))
        hidden = gelu(linear(block, "mlp.fc1", norm(block, "norm2", x, 1e-6)))
        x = x + block["ls2.gamma"] * linear(block, "mlp.fc2", hidden)
        if number in taps:
            kept = norm(state, "norm", x, 1e-6)[:, 1:]
            found.append(kept.transpose(1, 2).unflatten(2, (rows, columns)))
    return found


def linear_matrix(source: int, target: int) -> torch.Tensor:
    """Weights (target, source) of a linear resize in which the corners stay where they are."""
    weights = torch.zeros(target, source)
    for row in range(target):
        at = row * (source - 1) / (target - 1) if target > 1 else 0.0
        low = min(int(at), source - 1)
        weights[row, low] += 1 - (at - low)
        weights[row, min(low + 1, source - 1)] += at - low
    return weights


def resize(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    vertical, horizontal = linear_matrix(x.shape[2], rows), linear_matrix(x.shape[3], columns)
    return torch.einsum("ri,cj,nkij->nkrc", vertical, horizontal, x)


def conv(state: State, name: str, x: torch.Tensor, **options) -> torch.Tensor:
    return functional.conv2d(x, state[f"{name}.weight"], state.get(f"{name}.bias"), **options)


def temporal(state: State, x: torch.Tensor) -> torch.Tensor:
    """A temporal module on maps (T, C, rows, cols)."""
    state = sub(state, "temporal_transformer.")
    frames, _, rows, columns = x.shape
    grouped = x.reshape(frames, 32, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    normed = (centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()).reshape(x.shape)
    normed = normed * state["norm.weight"][:, None, None] + state["norm.bias"][:, None, None]
    out = torch.empty_like(x)
    for row in range(rows):
        for column in range(columns):
            y = linear(state, "proj_in", normed[None, :, :, row, column])
            block = sub(state, "transformer_blocks.0.")
            for number in range(2):
                part = sub(block, f"attention_blocks.{number}.")
                z = norm(block, f"norms.{number}", y, 1e-5) + part["pos_encoder.pe"][:, :frames]
                query, key, value = (linear(part, f"to_{which}", z) for which in "qkv")
                y = y + linear(part, "to_out.0", attention(query, key, value, 8))
            value, gate = linear(block, "ff.net.0.proj", norm(block, "ff_norm", y, 1e-5)).chunk(2, -1)
            y = y + linear(block, "ff.net.2", value * gelu(gate))
            out[:, :, row, column] = x[:, :, row, column] + linear(state, "proj_out", y)[0]
    return out


def unit(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    inner = conv(state, f"{name}.conv1", x.clamp(min=0), padding=1)
    return x + conv(state, f"{name}.conv2", inner.clamp(min=0), padding=1)


def naive_head(state: State, levels: list[torch.Tensor]) -> torch.Tensor:
    rows, columns = levels[0].shape[-2:]
    maps = [conv(state, f"projects.{number}", level) for number, level in enumerate(levels)]
    for number, stride in ((0, 4), (1, 2)):
        name = f"resize_layers.{number}"
        maps[number] = functional.conv_transpose2d(
            maps[number], state[f"{name}.weight"], state[f"{name}.bias"], stride=stride
        )
    maps[3] = conv(state, "resize_layers.3", maps[3], stride=2, padding=1)
    maps[2] = temporal(sub(state, "motion_modules.0."), maps[2])
    maps[3] = temporal(sub(state, "motion_modules.1."), maps[3])
    scratch = sub(state, "scratch.")
    maps = [conv(scratch, f"layer{n}_rn", each, padding=1) for n, each in enumerate(maps, start=1)]

    def fuse(number: int, path: torch.Tensor, level: torch.Tensor | None, size) -> torch.Tensor:
        part = sub(scratch, f"refinenet{number}.")
        if level is not None:
            path = path + unit(part, "resConfUnit1", level)
        return conv(part, "out_conv", resize(unit(part, "resConfUnit2", path), *size))

    path = fuse(4, maps[3], None, maps[2].shape[-2:])
    path = temporal(sub(state, "motion_modules.2."), path)
    path = fuse(3, path, maps[2], maps[1].shape[-2:])
    path = temporal(sub(state, "motion_modules.3."), path)
    path = fuse(2, path, maps[1], maps[0].shape[-2:])
    path = fuse(1, path, maps[0], [2 * side for side in maps[0].shape[-2:]])
    path = resize(conv(scratch, "output_conv1", path, padding=1), 14 * rows, 14 * columns)
    path = conv(scratch, "output_conv2.0", path, padding=1).clamp(min=0)
    return conv(scratch, "output_conv2.2", path).clamp(min=0)[:, 0]
