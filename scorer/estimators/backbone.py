"""Vision transformers that describe frames: what DINOv3 and TIPSv2 have in common.

Protocol 4dcb-1: frames as float in [0, 1], resized on the device without keeping the aspect (bilinear,
antialiased, half-pixel centres), normalised where the model wants it; float32 throughout, no autocast.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contract.errors import UserError
from scorer.estimators.base import halved_on_oom
from scorer.estimators.weights import checkpoint_file, readable, require_same_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Frames = NDArray[np.uint8]
Floats = NDArray[np.float32]

BATCH = 8
"""Frames in one forward pass."""
WEIGHTS, CONFIG = "model.safetensors", "config.json"


class _ReachedError(Exception):
    """Ends a forward pass at the block whose output is wanted; the blocks after it would change nothing."""


@dataclass(frozen=True)
class Parts:
    """A loaded network, and the parts of it that a readout needs.

    model : called with pixel_values (b, 3, h, w); its result has ``pooler_output``. blocks : the transformer
    blocks in order. norm : the final LayerNorm. prefix : tokens before the patches (class, registers).
    """

    model: torch.nn.Module
    blocks: torch.nn.ModuleList
    norm: torch.nn.Module
    prefix: int


@dataclass(frozen=True)
class BackboneModel:
    """An estimator that gives a :class:`Backbone`.

    mean, std : per channel, or None for frames in [0, 1]. image_size : side of the square input. patch : side
    of a patch. build : the network of a checkpoint's directory, on the CPU.
    """

    name: str
    directory: str
    image_size: int
    patch: int
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    build: Callable[[Path], Parts]
    requires: tuple[str, ...] = ("torch", "transformers", "safetensors")

    def load(self, device: torch.device, root: Path) -> Backbone:
        """The model on ``device``. Raises ``UserError`` when the store lacks it or holds something else."""
        for file in (WEIGHTS, CONFIG):
            checkpoint_file(root, self.directory, file)
        parts = self.build(root / self.directory)
        parts.model.eval().requires_grad_(False).to(device)
        return Backbone(self, parts, device)


class Backbone:
    """A loaded backbone. ``image_size`` and ``patch`` are in pixels."""

    def __init__(self, kind: BackboneModel, parts: Parts, device: torch.device) -> None:
        self._kind, self._parts, self._device = kind, parts, device
        self.name, self.image_size, self.patch = kind.name, kind.image_size, kind.patch
        self.layers = len(parts.blocks)

    def embed(self, frames: Frames) -> Floats:
        """Global embeddings float32 (n, D) of RGB frames uint8 (n, H, W, 3): the class token after the norm.

        Not normalised. Raises ``MemoryError`` when half a batch does not fit either.
        """
        return self._batches(self._embed, frames)

    def patches(
        self, frames: Frames, layer: int | None = None, size: int | tuple[int, int] | None = None
    ) -> Floats:
        """Patch tokens float32 (n, rows, columns, D), after the final LayerNorm, of RGB frames (n, H, W, 3).

        frames : uint8. layer : block whose output is read, counted from 1; None = the last. size : of the
        network's input, one side or (height, width), multiples of the patch; None = ``image_size``.
        """
        height, width = (size, size) if isinstance(size, int) else size or (self.image_size,) * 2
        if min(height, width) < self.patch or height % self.patch or width % self.patch:
            raise ValueError(f"input size {height}×{width} is not a multiple of the patch, {self.patch}")
        if layer is not None and not 1 <= layer <= self.layers:
            raise ValueError(f"{self.name} has blocks 1 to {self.layers}, not {layer}")
        read = partial(self._patches, layer=layer or self.layers, height=height, width=width)
        return self._batches(read, frames)

    def _batches(self, run: Callable[[Frames], Floats], frames: Frames) -> Floats:
        frames = np.asarray(frames)
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or 0 in frames.shape[1:]:
            raise ValueError(f"expected uint8 frames (n, H, W, 3), not {frames.dtype} {frames.shape}")
        if not len(frames):
            raise ValueError("no frames")
        starts = range(0, len(frames), BATCH)
        return np.concatenate([halved_on_oom(run, frames[start : start + BATCH]) for start in starts])

    def _embed(self, frames: Frames) -> Floats:
        import torch

        with torch.inference_mode():
            found = self._parts.model(pixel_values=self._pixels(frames, self.image_size, self.image_size))
            return _on_host(found.pooler_output)

    def _patches(self, frames: Frames, *, layer: int, height: int, width: int) -> Floats:
        import torch

        with torch.inference_mode():
            tokens = self._parts.norm(self._block_output(self._pixels(frames, height, width), layer))
        grid = tokens[:, self._parts.prefix :]
        return _on_host(grid.reshape(len(frames), height // self.patch, width // self.patch, -1))

    def _block_output(self, pixels: torch.Tensor, layer: int) -> torch.Tensor:
        """Output (b, tokens, D) of a block, read on the block: library versions number hidden states anew."""
        found: list[torch.Tensor] = []

        def read(_module: Any, _arguments: Any, output: Any) -> None:
            found.append(output if not isinstance(output, tuple) else output[0])
            raise _ReachedError

        handle = self._parts.blocks[layer - 1].register_forward_hook(read)
        try:
            self._parts.model(pixel_values=pixels)
        except _ReachedError:
            pass
        finally:
            handle.remove()
        return found[0]

    def _pixels(self, frames: Frames, height: int, width: int) -> torch.Tensor:
        """The network's input float32 (b, 3, height, width)."""
        import torch

        raw = torch.from_numpy(np.require(frames, requirements=["C", "W"])).to(self._device)
        pixels = raw.permute(0, 3, 1, 2).float() / 255
        pixels = torch.nn.functional.interpolate(
            pixels, size=(height, width), mode="bilinear", align_corners=False, antialias=True
        )
        if self._kind.mean is None or self._kind.std is None:
            return pixels
        mean, std = (pixels.new_tensor(each).view(1, 3, 1, 1) for each in (self._kind.mean, self._kind.std))
        return (pixels - mean) / std


def _on_host(tensor: torch.Tensor) -> Floats:
    return tensor.float().cpu().numpy()


def read_config(directory: Path) -> dict[str, Any]:
    """``config.json`` of a checkpoint. Raises ``UserError`` when it is not a JSON object."""
    path = directory / CONFIG
    with readable(path):
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("expected a JSON object")
        return config


def configuration(kind: Any, given: Mapping[str, Any], directory: Path) -> Any:
    """Configuration of transformers' class ``kind`` with the sizes and such that ``given`` states for it.

    Members that are not the class's own are left out: some make the library read other files than
    ``model.safetensors``. Raises ``UserError`` for what the class refuses, and for more blocks than the
    weights have tensors, which the library would build to find out.
    """
    from safetensors import safe_open
    from transformers import PreTrainedConfig

    with readable(directory / WEIGHTS), safe_open(directory / WEIGHTS, framework="pt") as file:
        held = len(file.keys())
    common = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    names = {field.name for field in dataclasses.fields(kind)} - common
    own = {name: value for name, value in given.items() if name in names}
    with readable(directory / CONFIG):
        if own.get("num_hidden_layers", 0) > held:
            raise ValueError(f"{own['num_hidden_layers']} blocks, but {WEIGHTS} has {held} tensors")
        return kind.from_dict(own)


def from_directory(kind: Any, directory: Path, config: Any, foreign: str = "") -> Any:
    """A model of transformers' own class ``kind`` with exactly the directory's weights, float32, on the CPU.

    Nothing but ``model.safetensors`` is read: no code of the directory is run and nothing is fetched.
    foreign : prefix of tensors of the file that belong to another model. Raises ``UserError`` when a tensor
    is missing, unknown or of another shape.
    """
    import torch

    path = directory / WEIGHTS
    with readable(path), _quiet():
        model, report = kind.from_pretrained(
            directory,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    unknown = [key for key in report["unexpected_keys"] if not (foreign and key.startswith(foreign))]
    require_same_keys(report["missing_keys"], unknown, path)
    if report["mismatched_keys"]:
        raise UserError(
            f"tensors of another shape: {sorted(map(str, report['mismatched_keys']))[:3]}", where=path
        )
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's loading report and progress bar: what is wrong is raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
