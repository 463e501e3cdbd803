"""The prepare stage's files about the reference video, read defensively and one frame at a time.

Every fault of such a file, and everything in it that does not fit the video, is an ``EstimateError``: the
operator's, never a submission's. What the protocol lets pass is let pass: flow that is not finite where it is
not valid, tracks that are nowhere while they are not visible, fewer frames than the video has (the timeline
is cut) or one more, a stride of 0 (which acts as 1). Layout: protocol 4dcb-1, estimates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.constants import sampled_frames
from contract.names import DEPTH, FLOW, TRACKS
from scorer.estimates_dense import DenseFile, EstimateError, open_dense, require_file
from world.npz import Archive, ArchiveError
from world.validation.violation import reason

__all__ = [
    "DepthEstimate",
    "EstimateError",
    "FlowEstimate",
    "TrackEstimate",
    "depth_estimate",
    "flow_estimate",
    "present",
    "track_estimate",
]

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Shape = tuple[int, int, int]


def present(directory: Path, name: str) -> bool:
    """Whether somebody has prepared the file. Anything by that name counts: reading it says what is wrong."""
    return os.path.lexists(directory / name)


class FlowEstimate:
    """``flow.h5``: optical flow between consecutive sampled frames.

    flow : stored shape (n, H, W, 2). valid : stored shape (n, H, W). stride : frames between samples.
    """

    def __init__(self, file: DenseFile) -> None:
        self.path = file.path
        self._flow = file.array("flow", rank=4, kinds="f")
        self._valid = file.array("valid", rank=3, kinds="biu")
        self.flow_shape, self.valid_shape = self._flow.shape, self._valid.shape
        self.stride = max(1, file.whole("stride", 0))

    def steps(self, shape: Shape) -> int:
        """How many steps there are to compare in a video of shape (F, H, W): of F' sampled frames F' − 1, or
        fewer where fewer are stored.

        Raises ``EstimateError`` when the file was made from another video, and ``ValueError`` when this one
        has a single frame.
        """
        frames, height, width = shape
        if self.flow_shape[1:] != (height, width, 2) or self.valid_shape != self.flow_shape[:-1]:
            raise EstimateError(
                f"{self.path}: Flow arrays must match the submission resolution {(height, width)}: "
                f"flow={self.flow_shape}, valid={self.valid_shape}"
            )
        samples, stored = len(sampled_frames(frames, self.stride)), self.flow_shape[0]
        text = f"flow needs two sampled frames: {stored} steps are stored for {samples}"
        if frames < 2:
            raise ValueError(text)
        if samples < 2 or not stored:
            raise EstimateError(f"{self.path}: {text} at stride {self.stride} of {frames} frames")
        _require_timeline(self.path, "flow", stored, samples - 1, frames, self.stride)
        return min(stored, samples - 1)

    def step(self, index: int) -> tuple[Floats, Mask]:
        """Flow float32 (H, W, 2) in pixels and validity bool (H, W) of one step.

        Raises ``EstimateError`` for flow that is valid and not finite.
        """
        flow, valid = self._flow.read(index).astype(np.float32), self._valid.read(index) != 0
        _require_finite(self.path, f"dataset 'flow'[{index}]", flow, valid)
        return flow, valid


class DepthEstimate:
    """``depth.h5``: disparity on the model's own grid, larger is nearer.

    shape : (F, H, W) of the video. stored : (n, h, w). stride : frames between samples. fps : of the video.
    """

    def __init__(self, file: DenseFile) -> None:
        self.path = file.path
        self._disparity = file.array("disparity", rank=3, kinds="f")
        self.stored = self._disparity.shape
        frames, height, width = file.numbers("shape", (3,))
        self.shape = (int(frames), int(height), int(width))
        self.stride = max(1, file.whole("stride", 0))
        self.fps = float(file.numbers("fps"))
        if 0 in self.stored[1:]:
            raise EstimateError(f"{file.path}: dataset 'disparity' of shape {self.stored} has no pixels")

    def frames(self, shape: Shape) -> range:
        """The frames of a video of shape (F, H, W) that there is a map of.

        Raises ``EstimateError`` when the file was made from another video or holds no map.
        """
        if shape != self.shape:
            raise EstimateError(
                f"{self.path}: cached depth of {self.shape[0]} frames at {self.shape[1:]} does not match "
                f"{shape}"
            )
        samples, stored = sampled_frames(shape[0], self.stride), self.stored[0]
        if not stored:
            raise EstimateError(f"{self.path}: dataset 'disparity' of shape {self.stored} holds no map")
        _require_timeline(self.path, "disparity", stored, len(samples), shape[0], self.stride)
        return samples[:stored]

    def disparity(self, index: int) -> Floats:
        """One map float32 (h, w). Raises ``EstimateError`` when it is not finite."""
        found = self._disparity.read(index).astype(np.float32)
        _require_finite(self.path, f"dataset 'disparity'[{index}]", found)
        return found


@dataclass(frozen=True)
class TrackEstimate:
    """``tracks.npz``: tracked points of the video.

    tracks : float32 (Q, F', 2), pixels. visible : bool (Q, F'). queries : float32 (Q, 3), ``(0, x, y)``.
    on_mask : bool (Q,). stride : frames between samples. path : the file.
    """

    tracks: Floats
    visible: Mask
    queries: Floats
    on_mask: Mask
    stride: int
    path: Path = Path(TRACKS)

    def require_video(self, shape: Shape) -> None:
        """Raise ``EstimateError`` unless these are tracks of a video of shape (F, H, W).

        A query just inside the right or lower edge belongs to such a video, though its pixel may not: the
        prepare stage's grid makes such queries, and the protocol has an error for them.
        """
        frames, height, width = shape
        samples = len(sampled_frames(frames, self.stride))
        if self.tracks.shape[1] != samples:
            raise EstimateError(
                f"{self.path}: 'tracks' holds {self.tracks.shape[1]} frames; expected {samples}, at stride "
                f"{self.stride} of {frames} frames"
            )
        low, high = np.zeros(3), (frames, width, height)
        outside = ~((self.queries >= low) & (self.queries < high)).all(axis=1)
        outside |= self.queries[:, 0] != np.floor(self.queries[:, 0])
        if outside.any():
            first = int(np.argmax(outside))
            raise EstimateError(
                f"{self.path}: 'queries'[{first}] (t, x, y) = {self.queries[first].tolist()} lies outside a "
                f"video of {frames} frames of {width}x{height}"
            )


@contextmanager
def flow_estimate(directory: Path) -> Iterator[FlowEstimate]:
    """Open ``flow.h5``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with open_dense(directory / FLOW) as file:
        yield FlowEstimate(file)


@contextmanager
def depth_estimate(directory: Path) -> Iterator[DepthEstimate]:
    """Open ``depth.h5``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with open_dense(directory / DEPTH) as file:
        yield DepthEstimate(file)


def track_estimate(directory: Path) -> TrackEstimate:
    """Read ``tracks.npz``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    path = directory / TRACKS
    require_file(path)
    try:
        found = _read_tracks(path)
    except (ArchiveError, OSError) as error:
        raise EstimateError(f"{path}: {reason(error)}") from error
    _require_finite(path, "'queries'", found.queries)
    _require_finite(path, "'tracks'", found.tracks, found.visible)
    return found


def _read_tracks(path: Path) -> TrackEstimate:
    with Archive.open(path) as archive:

        def read(name: str, kinds: str, shape: Sequence[int | None]) -> NDArray[Any]:
            header = archive.header(name)
            fits = len(header.shape) == len(shape) and all(
                want in (None, have) for want, have in zip(shape, header.shape, strict=True)
            )
            if not fits or header.dtype.kind not in kinds:
                expected = "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"
                raise EstimateError(
                    f"{path}: {name!r} holds {header.dtype} of shape {header.shape}; expected {expected}"
                )
            return archive.read(name)

        tracks = read("tracks", "f", (None, None, 2)).astype(np.float32)
        count, frames = tracks.shape[:2]
        found = TrackEstimate(
            tracks=tracks,
            visible=read("visible", "biu", (count, frames)) != 0,
            queries=read("queries", "fiu", (count, 3)).astype(np.float32),
            on_mask=read("on_mask", "biu", (count,)) != 0,
            stride=int(read("stride", "iu", ())),
            path=path,
        )
    if found.stride < 0:
        raise EstimateError(f"{path}: 'stride' is {found.stride}; expected a whole number, at least 0")
    return replace(found, stride=max(1, found.stride))


def _require_finite(path: Path, what: str, vectors: Floats, known: Mask | None = None) -> None:
    """Raise ``EstimateError`` for a number that is not finite; of vectors (…, d) only those count that are
    ``known`` (…), where that is given.
    """
    finite = np.isfinite(vectors)
    wrong = ~finite if known is None else known & ~finite.all(axis=-1)
    if wrong.any():
        first = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        where = "" if known is None else " where it is known (valid, visible)"
        raise EstimateError(
            f"{path}: {what} must be finite{where}; at {first} it is {vectors[first].tolist()} "
            f"({np.count_nonzero(wrong)} such in all)"
        )


def _require_timeline(path: Path, name: str, stored: int, expected: int, frames: int, stride: int) -> None:
    """Raise ``EstimateError`` for a file that holds more than its stride can give, by more than the one frame
    that two ways of counting a video's frames may differ by.
    """
    if stored > expected + 1:
        raise EstimateError(
            f"{path}: dataset {name!r} holds {stored} samples; expected {expected}, at stride {stride} of "
            f"{frames} frames"
        )
