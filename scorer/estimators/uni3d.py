"""Uni3D-L: what a point cloud shows, as a unit vector, from our own network.

The official checkpoint's weights. Its file holds a training run's options beside them; those are passed over,
and nothing in the file is run. Source: protocol 4dcb-1, Uni3D.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contract import checkpoints
from contract.errors import UserError
from scorer.estimators.architecture import stored
from scorer.estimators.base import halved_on_oom
from scorer.estimators.inert_pickle import load_inert
from scorer.estimators.uni3d_cloud import COLOUR
from scorer.estimators.uni3d_sizes import LARGE, Architecture
from scorer.estimators.weights import built, checkpoint_file

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]

BATCH = 4
"""Clouds encoded at a time."""
MEMBER = "module"
"""Where the weights lie in the checkpoint."""
PREFIX = "module."
"""What training on several devices puts before each name."""


class PointModel:
    """The loaded model."""

    def __init__(self, network: torch.nn.Module, device: torch.device, sizes: Architecture) -> None:
        self._network = network
        self._device = device
        self._sizes = sizes

    def encode(self, clouds: Floats) -> Floats:
        """Unit vectors float32 (n, 1024) of ``clouds`` (n, points, 3), normalised as ``uni3d_cloud`` does.

        Raises ``ValueError`` for other shapes, numbers that are not finite, and fewer points than groups or
        points of a group.
        """
        clouds = np.array(clouds, np.float32, order="C")  # a copy: PyTorch warns of arrays that are read-only
        least = max(self._sizes.groups, self._sizes.group_size)
        if clouds.ndim != 3 or clouds.shape[2] != 3 or clouds.shape[1] < least:
            raise ValueError(f"clouds are (n, at least {least}, 3), not {clouds.shape}")
        if not np.isfinite(clouds).all():
            raise ValueError("clouds must be finite")
        starts = range(0, len(clouds), BATCH)
        parts = [halved_on_oom(self._encoded, clouds[start : start + BATCH]) for start in starts]
        return np.concatenate([np.empty((0, self._sizes.embedded), np.float32), *parts])

    def _encoded(self, clouds: Floats) -> Floats:
        import torch

        with torch.inference_mode():
            tensor = torch.from_numpy(clouds).to(self._device)
            vectors: Floats = self._network(tensor, COLOUR).cpu().numpy()
            return vectors


class Uni3D:
    """Uni3D-L, or the sizes that ``architecture.json`` beside the weights states."""

    name = checkpoints.UNI3D
    directory = checkpoints.UNI3D
    requires = ("torch",)

    def load(self, device: torch.device, root: Path) -> PointModel:
        """The model from the store ``root``. Raises ``UserError`` when the file is missing or not its own."""
        from scorer.estimators.uni3d_network import Uni3DNetwork

        path = checkpoint_file(root, self.directory, checkpoints.CHECKPOINTS[self.name].weights.path)
        sizes = stored(path.parent, LARGE)
        network = built(lambda: Uni3DNetwork(sizes), _state(path), path, device)
        return PointModel(network, device, sizes)


def _state(path: Path) -> Any:
    held = load_inert(path)
    if not isinstance(held, Mapping) or MEMBER not in held:
        raise UserError("not this model's checkpoint", where=path, expected=f"a member {MEMBER!r}")
    state = held[MEMBER]
    if isinstance(state, Mapping) and str(next(iter(state), "")).startswith(PREFIX):
        return {str(key).removeprefix(PREFIX): tensor for key, tensor in state.items()}
    return state


UNI3D = Uni3D()
