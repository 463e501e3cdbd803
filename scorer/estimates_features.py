"""The prepare stage's features and points of the reference video, read defensively.

Names, types and shapes are checked before data is read, and contents before they are compared with: an
estimate that cannot be right is the operator's fault (``EstimateError``), never a score. Layout: protocol
4dcb-1, estimates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.constants import sampled_frames
from contract.names import GEOPHYS, MOGE, SEMANTIC
from scorer.estimates import EstimateError
from scorer.prepare.output import PROVENANCE
from world.npz import Archive, ArchiveError

Floats = NDArray[np.float32]

_POINTS_LIMIT = 1 << 30
"""Bytes of a point map: 16,384² pixels would not fit, 8K does."""


@dataclass(frozen=True)
class FeatureEstimate:
    """Features of the sampled frames of the reference video.

    rows : float32 (F', D), finite. stride : frames between samples, at least 1. layer : block of the network
    that they were read at, counted from 1; None for global embeddings. checkpoint : identity of the model's
    files that the file notes; empty when it notes none.
    """

    path: Path
    rows: Floats
    stride: int
    layer: int | None = None
    checkpoint: str = ""

    def require_video(self, frames: int) -> None:
        """Raise ``EstimateError`` unless the rows are those of a video of so many frames."""
        expected = len(sampled_frames(frames, self.stride))
        if len(self.rows) != expected:
            raise EstimateError(
                f"{self.path}: holds {len(self.rows)} rows at stride {self.stride}; the reference video of "
                f"{frames} frames has {expected} samples: prepare the case again"
            )

    def require_checkpoint(self, identity: str) -> None:
        """Raise ``EstimateError`` if the file says that its model was another one."""
        if self.checkpoint and identity and self.checkpoint != identity:
            raise EstimateError(f"{self.path}: made with another checkpoint: prepare the case again")

    def require_width(self, width: int) -> None:
        """Raise ``EstimateError`` unless the rows are as wide as the model's at hand."""
        if self.rows.shape[1] != width:
            raise EstimateError(
                f"{self.path}: rows of {self.rows.shape[1]} numbers, but the model at hand gives {width}: "
                "prepare the case again"
            )


def semantic_estimate(directory: Path, name: str) -> FeatureEstimate:
    """Read ``semantic_<name>.npz``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with _Members(directory / SEMANTIC.format(name=name)) as file:
        return FeatureEstimate(
            file.path, file.features("embeddings"), file.stride(), checkpoint=file.checkpoint()
        )


def geophys_estimate(directory: Path, name: str) -> FeatureEstimate:
    """Read ``geophys_<name>.npz``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with _Members(directory / GEOPHYS.format(name=name)) as file:
        rows, layer = file.features("trajectory"), file.whole_number("layer")
        return FeatureEstimate(file.path, rows, file.stride(), layer, file.checkpoint())


def moge_points(directory: Path) -> Floats:
    """Valid points of ``moge.npz``: float32 (n, 3), camera frame, the model's own scale; n may be 0.

    Valid: finite, and inside the mask where the file has one. Raises ``FileNotFoundError`` or
    ``EstimateError``.
    """
    with _Members(directory / MOGE) as file:
        points = file.array("points", "f", (None, None, 3), limit=_POINTS_LIMIT).reshape(-1, 3)
        valid = np.isfinite(points).all(axis=1)
        if "mask" in file.archive:
            mask = file.array("mask", "biu", file.archive.header("points").shape[:2], limit=_POINTS_LIMIT)
            valid &= mask.reshape(-1) != 0
        return points[valid].astype(np.float32)


class _Members:
    """An open ``.npz`` estimate whose faults become ``EstimateError``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> _Members:
        if not self.path.exists():
            raise FileNotFoundError(str(self.path))
        try:
            self.archive = Archive.open(self.path)
        except ArchiveError as error:
            raise EstimateError(f"{self.path}: {error}") from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.archive.close()

    def array(
        self, name: str, kinds: str, shape: tuple[int | None, ...], limit: int = 256 << 20
    ) -> NDArray[Any]:
        """A member of one of the kinds (numpy's letters) and of that shape, None for any side."""
        try:
            header = self.archive.header(name)
            fits = len(header.shape) == len(shape) and all(
                want in (None, have) for want, have in zip(shape, header.shape, strict=True)
            )
            if fits and header.dtype.kind in kinds:
                return self.archive.read(name, limit=limit)
        except ArchiveError as error:
            raise EstimateError(f"{self.path}: {error}") from error
        expected = "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"
        raise EstimateError(
            f"{self.path}: {name!r} holds {header.dtype} of shape {header.shape}; expected {expected}"
        )

    def features(self, name: str) -> Floats:
        """Rows float32 (n, D), n and D at least 1, all finite."""
        rows = self.array(name, "f", (None, None))
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        if 0 in rows.shape:
            raise EstimateError(f"{self.path}: {name!r} of shape {rows.shape} is empty")
        if not np.isfinite(rows).all():
            raise EstimateError(f"{self.path}: {name!r} holds values that are not finite")
        return rows

    def whole_number(self, name: str) -> int:
        return int(self.array(name, "iu", ()))

    def checkpoint(self) -> str:
        """Identity of the model's files, from the note of ``scorer.prepare``; empty without one."""
        if PROVENANCE not in self.archive:
            return ""
        try:
            note = json.loads(str(self.array(PROVENANCE, "U", ())))
        except ValueError as error:
            raise EstimateError(f"{self.path}: {PROVENANCE!r} cannot be read: {error}") from error
        return str(note.get("checkpoint", "")) if isinstance(note, dict) else ""

    def stride(self) -> int:
        stride = self.whole_number("stride")
        if stride < 1:
            raise EstimateError(f"{self.path}: 'stride' is {stride}; expected at least 1")
        return stride
