"""A second point-cloud network, straight from the published layout: loops and a dictionary of tensors."""

from __future__ import annotations

import math

import numpy as np
import torch
from naive_depth import State, attention, gelu, linear, norm, sub


def naive_unit_cloud(points: np.ndarray) -> np.ndarray:
    """The normalisation, point by point."""
    kept = [[np.float32(c) for c in row] for row in points if all(math.isfinite(c) for c in row)]
    centre = [sum(row[axis] for row in kept) / len(kept) for axis in range(3)]
    rows = [[float(row[axis]) - float(centre[axis]) for axis in range(3)] for row in kept]
    norms = sorted(math.dist(row, (0, 0, 0)) for row in rows)
    place = 0.99 * (len(norms) - 1)
    low = int(place)
    high = min(low + 1, len(norms) - 1)
    radius = max(norms[low] + (place - low) * (norms[high] - norms[low]), float(np.finfo(np.float32).tiny))
    out = []
    for row in rows:
        scaled = [value / radius for value in row]
        length = math.dist(scaled, (0, 0, 0))
        out.append([value / length for value in scaled] if length > 1 else scaled)
    return np.array(out, np.float64)


def naive_farthest(points: np.ndarray, count: int) -> list[int]:
    """Each time the point whose nearest chosen one is farthest, the first of equals."""
    chosen = [0]
    while len(chosen) < count:
        best, found = -1.0, -1
        for number, point in enumerate(points):
            nearest = min(float(np.square(point - points[other]).sum()) for other in chosen)
            if nearest > best:
                best, found = nearest, number
        chosen.append(found)
    return chosen


def naive_nearest(points: np.ndarray, centre: np.ndarray, count: int) -> set[int]:
    distance = np.square(points.astype(np.float64) - centre).sum(axis=1)
    return set(np.argsort(distance, kind="stable")[:count].tolist())


def batch_norm(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    """Of rows (…, channels), with the running statistics."""
    scaled = (x - state[f"{name}.running_mean"]) / (state[f"{name}.running_var"] + 1e-5).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def pointwise(state: State, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ state[f"{name}.weight"][:, :, 0].T + state[f"{name}.bias"]


def naive_encode(
    state: State, cloud: np.ndarray, groups: int, size: int, heads: int, depth: int
) -> torch.Tensor:
    """The unit vector of a cloud (n, 3) of colour 0.4."""
    state = sub(state, "point_encoder.")
    encoder = sub(state, "encoder.")
    tokens, positions = [state["cls_token"][0, 0]], [state["cls_pos"][0, 0]]
    for row in naive_farthest(cloud, groups):
        near = sorted(naive_nearest(cloud, cloud[row].astype(np.float64), size))
        offsets = torch.from_numpy(cloud[near] - cloud[row])
        points = torch.cat([offsets, torch.full((size, 3), 0.4)], 1)
        x = batch_norm(encoder, "first_conv.1", pointwise(encoder, "first_conv.0", points)).clamp(min=0)
        x = pointwise(encoder, "first_conv.3", x)
        x = torch.cat([x.max(0).values.expand_as(x), x], 1)
        x = batch_norm(encoder, "second_conv.1", pointwise(encoder, "second_conv.0", x)).clamp(min=0)
        token = pointwise(encoder, "second_conv.3", x).max(0).values
        tokens.append(linear(state, "encoder2trans", token))
        centre = torch.from_numpy(cloud[row])
        positions.append(linear(state, "pos_embed.2", gelu(linear(state, "pos_embed.0", centre))))
    x = (torch.stack(tokens) + torch.stack(positions))[None]
    for number in range(depth):
        block = sub(state, f"visual.blocks.{number}.")
        y = norm(block, "norm1", x, 1e-6)
        query, key, value = (linear(block, f"attn.{which}_proj", y) for which in "qkv")
        x = x + linear(block, "attn.proj", attention(query, key, value, heads))
        y = norm(block, "norm2", x, 1e-6)
        gate = linear(block, "mlp.fc1_g", y)
        hidden = gate * torch.sigmoid(gate) * linear(block, "mlp.fc1_x", y)
        x = x + linear(block, "mlp.fc2", norm(block, "mlp.norm", hidden, 1e-6))
    embedded = linear(state, "trans2embed", norm(state, "visual.fc_norm", x[0, 0], 1e-6))
    return embedded / embedded.square().sum().sqrt()
