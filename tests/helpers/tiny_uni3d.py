"""A tiny Uni3D checkpoint in the official layout, as distributed training saves it, with its sizes."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import torch

from contract.checkpoints import UNI3D, path_of
from scorer.estimators.architecture import FILE
from scorer.estimators.uni3d_network import Uni3DNetwork
from scorer.estimators.uni3d_sizes import Architecture

TINY = Architecture(
    width=24, depth=2, heads=2, groups=16, group_size=8, encoded=20, embedded=1024, grid=2, classes=3
)


def uni3d_network(sizes: Architecture = TINY, seed: int = 0) -> Uni3DNetwork:
    """A network whose every tensor matters: none is zero or one as at the start of training."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Uni3DNetwork(sizes).eval().requires_grad_(False)
        for name, tensor in network.state_dict().items():
            if not tensor.is_floating_point():
                continue
            if name.endswith(("cls_token", "cls_pos", "pos_embed", "bias", "running_mean")):
                tensor.normal_(std=0.3)
            elif "norm" in name or "conv.1." in name:
                tensor.uniform_(0.5, 1.5)
    return network


def write_uni3d(store: Path, seed: int = 0, prefix: str = "module.") -> Path:
    """Put the checkpoint into a model store; returns the file of the weights."""
    path = store / path_of(UNI3D)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {prefix + key: tensor for key, tensor in uni3d_network(TINY, seed).state_dict().items()}
    options = argparse.Namespace(model="create_uni3d", lr=1e-3, names=["a", "b"])
    torch.save({"epoch": 7, "args": options, "module": state}, path)
    (path.parent / FILE).write_text(json.dumps(dataclasses.asdict(TINY)), encoding="utf-8")
    return path
