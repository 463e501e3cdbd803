"""DINOv3 ViT-L/16, through transformers' own class."""

from __future__ import annotations

from pathlib import Path

from contract import checkpoints
from contract.errors import UserError
from scorer.estimators.backbone import (
    CONFIG,
    BackboneModel,
    Parts,
    configuration,
    from_directory,
    read_config,
)

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
PATCH = 16
GEOPHYS_LAYER = 18
"""Block that GeoPhys reads, of 24, counted from 1."""


def build(directory: Path) -> Parts:
    """The network of a checkpoint in the hub's layout (``config.json``, ``model.safetensors``)."""
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    given = read_config(directory)
    if given.get("model_type") != DINOv3ViTConfig.model_type or given.get("patch_size") != PATCH:
        found = f"{given.get('model_type')!r} with patches of {given.get('patch_size')}"
        raise UserError(f"not the configuration of DINOv3 ViT/16 but of {found}", where=directory / CONFIG)
    config = configuration(DINOv3ViTConfig, given, directory)
    model = from_directory(DINOv3ViTModel, directory, config)
    # The encoder is a module of its own since transformers 5.
    blocks = model.model.layer if hasattr(model, "model") else model.layer
    return Parts(model, blocks, model.norm, prefix=1 + config.num_register_tokens)


DINOV3 = BackboneModel(
    name="dinov3", directory=checkpoints.DINOV3, image_size=224, patch=PATCH, mean=MEAN, std=STD, build=build
)
