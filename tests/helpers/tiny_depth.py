"""A tiny Video Depth Anything checkpoint in the official layout, with the sizes beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch

from contract.checkpoints import VIDEO_DEPTH_ANYTHING, path_of
from scorer.estimators.architecture import FILE
from scorer.estimators.video_depth_anything_network import VideoDepthNetwork
from scorer.estimators.video_depth_anything_sizes import Architecture

TINY = Architecture(
    width=24, depth=5, heads=2, taps=(0, 1, 3, 4), features=32, channels=(8, 12, 32, 64), grid=4
)


def depth_network(sizes: Architecture = TINY, seed: int = 0) -> VideoDepthNetwork:
    """A network whose every tensor matters: none is zero or one as at the start of training."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = VideoDepthNetwork(sizes).eval().requires_grad_(False)
        for name, tensor in network.state_dict().items():
            if name.endswith(("token", "pos_embed", "bias")):
                tensor.normal_(std=0.3)
            elif name.endswith("gamma") or "norm" in name:
                tensor.uniform_(0.5, 1.5)
        # The last layer's output passes ReLU: keep most of it above zero.
        network.head.scratch.output_conv2[2].bias.fill_(1.0)
    return network


def write_depth(store: Path, seed: int = 0) -> Path:
    """Put the checkpoint into a model store; returns the file of the weights."""
    path = store / path_of(VIDEO_DEPTH_ANYTHING)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(depth_network(TINY, seed).state_dict(), path)
    (path.parent / FILE).write_text(json.dumps(dataclasses.asdict(TINY)), encoding="utf-8")
    return path
