"""Video Depth Anything: disparity of a video, up to scale and shift, from our own network.

The official checkpoint's weights; windows of frames, of which only one is held however long the video is.
Source: protocol 4dcb-1, Video Depth Anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from contract import checkpoints
from scorer.estimators.architecture import stored
from scorer.estimators.base import halved_on_oom
from scorer.estimators.video_depth_anything_input import input_size, network_input
from scorer.estimators.video_depth_anything_sizes import ENCODED, LARGE
from scorer.estimators.video_depth_anything_windows import windows
from scorer.estimators.weights import built, checkpoint_file, load_pickled

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]
Taps = tuple["Tensor", ...]


class Network(Protocol):
    """Two halves of a depth network: what is each frame's own, and what a window's frames share."""

    def encode(self, images: Tensor) -> list[Taps]: ...
    def decode(self, seen: list[Taps], wanted: slice) -> Tensor: ...


class DepthModel:
    """The loaded model. side : short side of the network's input, pixels."""

    def __init__(self, network: Network, device: torch.device, side: int = LARGE.side) -> None:
        self._network = network
        self._device = device
        self._side = side

    def disparity(self, frames: Iterable[Image]) -> Iterator[Floats]:
        """One map float32 (h, w) for each of ``frames`` uint8 (H, W, 3) RGB, in order; larger is nearer.

        The map has the size of the network's input. Maps of a window of 32 frames come once it has been read;
        frames of the next are read after that. Windows are not aligned with each other.
        Raises ``ValueError`` for a frame that is not of the first one's shape, ``MemoryError`` when a window
        does not fit.
        """
        for window in windows(self._seen(frames)):
            # There is no half a window, but what runs out of memory is said in one way.
            yield from halved_on_oom(self._decoded, [window])

    def _seen(self, frames: Iterable[Image]) -> Iterator[Taps]:
        """What the encoder sees in each frame. A frame in two windows is encoded once."""
        images = self._inputs(frames)
        while batch := list(islice(images, ENCODED)):
            yield from halved_on_oom(self._encoded, batch, join=lambda halves: [*halves[0], *halves[1]])

    def _inputs(self, frames: Iterable[Image]) -> Iterator[Floats]:
        shape: tuple[int, ...] = ()
        for number, frame in enumerate(frames):
            shape = shape or frame.shape
            if frame.shape != shape:
                raise ValueError(f"frame {number} has the shape {frame.shape}, the first one {shape}")
            yield network_input(frame, input_size(*shape[:2], self._side))

    def _encoded(self, images: list[Floats]) -> list[Taps]:
        import torch

        with torch.inference_mode():
            return self._network.encode(torch.from_numpy(np.stack(images)).to(self._device))

    def _decoded(self, batch: list[tuple[list[Taps], slice]]) -> Floats:
        import torch

        ((seen, new),) = batch
        with torch.inference_mode():
            maps: Floats = self._network.decode(seen, new).cpu().numpy()
            return maps


class VideoDepthAnything:
    """Video Depth Anything Large, or the sizes that ``architecture.json`` beside the weights states."""

    name = checkpoints.VIDEO_DEPTH_ANYTHING
    directory = checkpoints.VIDEO_DEPTH_ANYTHING
    requires = ("torch",)

    def load(self, device: torch.device, root: Path) -> DepthModel:
        """The model from the store ``root``. Raises ``UserError`` when the file is missing or not its own."""
        from scorer.estimators.video_depth_anything_network import VideoDepthNetwork

        path = checkpoint_file(root, self.directory, checkpoints.CHECKPOINTS[self.name].weights.path)
        sizes = stored(path.parent, LARGE)
        network = built(lambda: VideoDepthNetwork(sizes), load_pickled(path), path, device)
        return DepthModel(network, device, sizes.side)


VIDEO_DEPTH_ANYTHING = VideoDepthAnything()
