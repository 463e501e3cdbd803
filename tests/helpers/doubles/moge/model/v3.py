"""Double of ``moge.model.v3``: depth is a plane behind what red adds; black pixels are unknown."""

from __future__ import annotations

import torch


class MoGeModel(torch.nn.Module):
    """Takes the calls of the model, and refuses those that it would."""

    def __init__(self, depth: torch.Tensor) -> None:
        super().__init__()
        self.depth = torch.nn.Parameter(depth)
        self.calls: list[tuple[int, int]] = []

    @classmethod
    def from_pretrained(cls, path: str) -> MoGeModel:
        """The model whose ``model.pt`` is at ``path``."""
        return cls(torch.load(path, map_location="cpu", weights_only=True)["model"]["depth"])

    def infer(self, image, resolution_level: int = 9, refine_steps: int = 3) -> dict[str, torch.Tensor]:
        """Points (H, W, 3), infinite outside the mask (H, W), and unit-image intrinsics (3, 3)."""
        assert not self.training
        assert image.dtype == torch.float32
        assert image.ndim == 3
        assert image.shape[0] == 3
        assert image.min() >= 0
        assert image.max() <= 1
        self.calls.append((resolution_level, refine_steps))
        height, width = image.shape[1:]
        intrinsics = torch.tensor([[1.0, 0, 0.5], [0, 1.0, 0.5], [0, 0, 1]], device=image.device)
        depth = self.depth + image[0]
        v, u = torch.meshgrid(
            (torch.arange(height, device=image.device) + 0.5) / height,
            (torch.arange(width, device=image.device) + 0.5) / width,
            indexing="ij",
        )
        points = torch.stack([(u - 0.5) * depth, (v - 0.5) * depth, depth], dim=-1)
        mask = image.sum(dim=0) > 0
        return {
            "points": torch.where(mask[..., None], points, torch.inf),
            "depth": torch.where(mask, depth, torch.inf),
            "mask": mask,
            "intrinsics": intrinsics,
        }
