"""TIPSv2 L/14's image encoder, through transformers' own class.

The published checkpoint holds an image and a text encoder under the names of its own code. That code lies
beside the weights and is never run: transformers knows those names and maps them onto its own
(``Tipsv2VisionModel``). Only the image encoder is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

PATCH = 14
LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "mlp_ratio": 4,
    "image_size": 448,
    "patch_size": PATCH,
    "num_register_tokens": 1,
    "layer_norm_eps": 1e-6,
}
"""The L/14 image encoder, for a ``config.json`` of the checkpoint's own code, which has no ``vision_config``.

Every size but the number of heads shows in the weights' shapes, and is checked by loading them."""
TEXT_ENCODER = "text_encoder"


def build(directory: Path) -> Parts:
    """The image encoder of a checkpoint in the hub's layout (``config.json``, ``model.safetensors``)."""
    from transformers import Tipsv2VisionConfig, Tipsv2VisionModel

    vision = read_config(directory).get("vision_config", LARGE)
    if not isinstance(vision, dict):
        raise UserError("'vision_config' is no JSON object", where=directory / CONFIG)
    config = configuration(Tipsv2VisionConfig, vision, directory)
    if config.patch_size != PATCH:
        raise UserError(f"patches of {config.patch_size} pixels; expected {PATCH}", where=directory / CONFIG)
    model = from_directory(Tipsv2VisionModel, directory, config, foreign=TEXT_ENCODER)
    return Parts(model, model.encoder.layer, model.layernorm, prefix=1 + config.num_register_tokens)


TIPSV2 = BackboneModel(
    name="tips", directory=checkpoints.TIPSV2, image_size=448, patch=PATCH, mean=None, std=None, build=build
)
