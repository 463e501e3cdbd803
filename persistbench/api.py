"""What a model implements, and what it is given and returns (spec 70 §2)."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

KEEP = -1  # of a shape attribute: as the dataset has it
Resolution = Union[int, tuple[int, int]]


@dataclass(frozen=True)
class ModelInput:
    """One case, as a model sees it. Neither the target view's pixels nor masks nor visibility are in it.

    uid : the case.
    input_frames : float32 (T, H, W, 3), RGB in [0, 1].
    input_cameras, target_cameras : ``cam_poses`` (T, 4, 4) camera to world, OpenCV axes, and
        ``cam_intrinsic`` (3, 3) in pixels, sampled, cropped and scaled as the frames are.
    """

    uid: str
    input_frames: np.ndarray
    input_cameras: Mapping[str, np.ndarray]
    target_cameras: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ModelOutput:
    """The predicted target view: ``frames`` (T, H, W, 3) like the input, uint8, or floats in [0, 1]."""

    frames: np.ndarray


class BaseModel(ABC):
    """A model under test. It is made once per worker, with ``device`` and the keys of ``--model-config``.

    num_frames : how many frames it wants of each case, or -1 for what the dataset has.
    resolution : (height, width) that it wants, or -1.
    """

    num_frames: int = KEEP
    resolution: Resolution = KEEP

    def __init__(self, device: str = "cuda:0") -> None:
        self.device = device

    @property
    def eval_length(self) -> int:
        return self.num_frames

    @property
    def eval_reso(self) -> Resolution:
        return self.resolution

    @abstractmethod
    def predict(self, sample: ModelInput) -> ModelOutput:
        """Predict the target view of one case."""

    def close(self) -> None:  # noqa: B027 - optional, hence not abstract
        """Give back what the model holds; called exactly once."""


@dataclass(frozen=True)
class ShapePolicy:
    """The frame count and size that a model wants; -1 keeps the dataset's."""

    length: int = KEEP
    resolution: Resolution = KEEP

    @property
    def native(self) -> bool:
        return self.length == KEEP and self.resolution == KEEP

    def record(self) -> dict[str, Any]:
        """As it stands in ``run.json`` under ``preprocessing``."""
        size = self.resolution
        return {"eval_length": self.length, "eval_reso": size if isinstance(size, int) else list(size)}


def shape_policy(length: object, resolution: object) -> ShapePolicy:
    """Check what ``eval_length`` and ``eval_reso`` say.

    NumPy integers are taken, booleans are not. Errors: ``ValueError``.
    """
    count = _positive(length)
    if count is None and not _keeps(length):
        raise ValueError(f"num_frames must be -1 or a positive integer, not {length!r}")
    if _keeps(resolution):
        return ShapePolicy(KEEP if count is None else count, KEEP)
    sides = [_positive(side) for side in resolution] if isinstance(resolution, (list, tuple)) else []
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        raise ValueError(
            f"resolution must be -1 or two positive integers (height, width), not {resolution!r}"
        )
    return ShapePolicy(KEEP if count is None else count, (sides[0], sides[1]))


def policy_from_record(record: object) -> ShapePolicy:
    """The policy that ``run.json`` states. Errors: ``ValueError``."""
    if not isinstance(record, dict) or set(record) != {"eval_length", "eval_reso"}:
        raise ValueError("preprocessing must state eval_length and eval_reso")
    return shape_policy(record["eval_length"], record["eval_reso"])


def _integer(value: object) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _positive(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and number >= 1 else None


def _keeps(value: object) -> bool:
    return _integer(value) == KEEP


def output_pixels(output: object, expected_shape: tuple[int, ...]) -> np.ndarray:
    """The pixels of a prediction, uint8 (T, H, W, 3): floats are scaled by 255 and rounded half to even.

    Errors: ``TypeError`` for a wrong type, ``ValueError`` for a wrong shape, non-finite values or values
    outside [0, 1]. Source: spec 70 §2.3.
    """
    if not isinstance(output, ModelOutput):
        raise TypeError(f"predict must return a ModelOutput, not {type(output).__name__}")
    frames = output.frames
    if not isinstance(frames, np.ndarray):
        raise TypeError(f"ModelOutput.frames must be a NumPy array, not {type(frames).__name__}")
    if frames.shape != tuple(expected_shape):
        raise ValueError(f"ModelOutput.frames has shape {frames.shape}; expected {tuple(expected_shape)}")
    if frames.dtype == np.uint8:
        return frames
    if frames.dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(f"ModelOutput.frames must be uint8 or floating, not {frames.dtype}")
    # Frame by frame: a long video need not be there three times over.
    pixels = np.empty(frames.shape, np.uint8)
    for index, frame in enumerate(frames):
        if not np.isfinite(frame).all():
            raise ValueError(f"ModelOutput.frames has values that are not finite (frame {index})")
        if frame.size and (frame.min() < 0 or frame.max() > 1):
            raise ValueError(f"ModelOutput.frames has floating values outside [0, 1] (frame {index})")
        # In the model's own precision, half included: so do the published numbers.
        pixels[index] = np.rint(frame * frame.dtype.type(255)).astype(np.uint8)
    return pixels
