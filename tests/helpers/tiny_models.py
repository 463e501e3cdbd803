"""Small random checkpoints in the layout of the published ones, for the models that packages carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchvision_cpu import usable

from contract import checkpoints

DINOV3_SIZES = {"hidden_size": 32, "num_hidden_layers": 24, "num_attention_heads": 2, "intermediate_size": 48}
TIPSV2_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}


def make(root: Path, *names: str, seed: int = 0) -> Path:
    """A model store at ``root`` with tiny checkpoints of those names (default: all); returns ``root``."""
    makers = {checkpoints.DINOV3: dinov3, checkpoints.TIPSV2: tipsv2, checkpoints.RAFT: raft}
    for name in names or makers:
        makers[name](root, seed=seed)
    return root


def dinov3(root: Path, *, seed: int = 0, **sizes: int) -> Path:
    """DINOv3 with 24 blocks: a hub snapshot as transformers 4.57 wrote it. Its directory."""
    usable()
    import torch
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    fields = DINOV3_SIZES | sizes
    config = DINOv3ViTConfig(
        patch_size=16, image_size=224, num_register_tokens=4, layerscale_value=0.5, **fields
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = DINOv3ViTModel(config).eval()
        _spread(model)
    state = {key.removeprefix("model."): tensor for key, tensor in model.state_dict().items()}
    described = {
        "architectures": ["DINOv3ViTModel"],
        "model_type": "dinov3_vit",
        "patch_size": 16,
        "image_size": 224,
        "num_channels": 3,
        "num_register_tokens": 4,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rope_theta": 100.0,
        "query_bias": True,
        "key_bias": False,
        "value_bias": True,
        "proj_bias": True,
        "mlp_bias": True,
        "use_gated_mlp": False,
        "torch_dtype": "float32",
        "transformers_version": "4.56.0.dev0",
        **fields,
    }
    return _write(root / checkpoints.DINOV3, state, described)


def tipsv2(root: Path, *, seed: int = 0, own_config: bool = False, **sizes: int) -> Path:
    """TIPSv2 under the names of its own code (image and text encoder). Its directory.

    own_config : a ``config.json`` as that code has it, without ``vision_config``.
    """
    usable()
    import torch
    from transformers import Tipsv2VisionConfig, Tipsv2VisionModel

    fields = TIPSV2_SIZES | sizes
    config = Tipsv2VisionConfig(image_size=448, patch_size=14, num_register_tokens=1, **fields)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Tipsv2VisionModel(config).eval()
        _spread(model)
    state = tips_names(model.state_dict())
    # The text encoder is there and is not read; its exact names do not matter.
    state["text_encoder.token_embedding.weight"] = torch.zeros(8, fields["hidden_size"])
    state["text_encoder.ln_final.weight"] = torch.ones(fields["hidden_size"])
    vision = {"image_size": 448, "patch_size": 14, "num_register_tokens": 1, **fields}
    described: dict[str, Any] = {"model_type": "tipsv2", "vision_config": vision}
    if own_config:
        described = {
            "model_type": "tipsv2",
            "auto_map": {
                "AutoModel": "modeling_tips.TIPSv2Model",
                "AutoConfig": "modeling_tips.TIPSv2Config",
            },
            "img_size": 448,
            "patch_size": 14,
        }
    directory = _write(root / checkpoints.TIPSV2, state, described)
    # Code beside the weights, as the published snapshot has it; running it would show.
    (directory / "modeling_tips.py").write_text("raise SystemExit('code of the checkpoint was run')\n")
    return directory


def tips_names(state: dict[str, Any]) -> dict[str, Any]:
    """Tensors of transformers' image encoder under the names that TIPSv2's own code gives them."""
    import torch

    plain = {
        "embeddings.cls_token": "cls_token",
        "embeddings.mask_token": "mask_token",
        "embeddings.register_tokens": "register_tokens",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
        "embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
        "layernorm.weight": "norm.weight",
        "layernorm.bias": "norm.bias",
    }
    block = {
        "attention.o_proj": "attn.proj",
        "layer_scale1.lambda1": "ls1.gamma",
        "layer_scale2.lambda1": "ls2.gamma",
    }
    named: dict[str, Any] = {}
    for key, tensor in state.items():
        if key in plain:
            named[f"vision_encoder.{plain[key]}"] = tensor
            continue
        _, _, number, rest = key.split(".", 3)
        if rest.startswith(("attention.k_proj", "attention.v_proj")):
            continue
        if rest.startswith("attention.q_proj"):
            kind = rest.rsplit(".", 1)[1]
            three = [state[key.replace("q_proj", f"{letter}_proj")] for letter in "qkv"]
            named[f"vision_encoder.blocks.{number}.attn.qkv.{kind}"] = torch.cat(three)
            continue
        for ours, theirs in block.items():
            rest = rest.replace(ours, theirs)
        named[f"vision_encoder.blocks.{number}.{rest}"] = tensor
    return named


def raft(root: Path, *, seed: int = 0) -> Path:
    """RAFT-large at its full size (5 M parameters), random. Its directory."""
    usable()
    import torch
    from torchvision.models.optical_flow import raft_large

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = raft_large(weights=None)
    directory = root / checkpoints.RAFT
    directory.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), directory / checkpoints.CHECKPOINTS[checkpoints.RAFT].weights.path)
    return directory


def _spread(model: Any) -> None:
    """Random values where initialisation leaves zeros and ones, so that no tensor can be exchanged unseen."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def _write(directory: Path, state: dict[str, Any], config: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    tensors = {key: tensor.detach().clone().contiguous() for key, tensor in state.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    return directory
