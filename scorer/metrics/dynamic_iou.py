"""Dynamic IoU: do the moving objects cover the same pixels as in the reference?

Statistics: per frame, the reference's mask, the submission's mask and the band along the reference's edge, as
packed bits, with their counts. Formula: the mean over all frames of |g ∧ p| / |g ∨ p| outside the band, 1
where the union is empty. All frames count, not the sampled timeline. Source: protocol 4dcb-1, Dynamic IoU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.constants import BAND_FRACTION, CLOSE_FRACTION, edge_radius
from contract.names import DYNAMIC_MASK_KEY
from scorer.geometry import masks
from scorer.geometry.raster import visible_faces
from scorer.liquid.tracers import materials_of
from scorer.metrics.base import Measurement
from scorer.scene import Scene
from world.npz import Archive, ArchiveError
from world.reader import World

Mask = NDArray[np.bool_]
Shape = tuple[int, int, int]

ANNOTATED_ID = 1
"""Id under which an annotation's single mask is reported."""


class AnnotationFault(ValueError):
    """An annotation that cannot be read: the operator's fault, and no reason for a score."""

    infrastructure = True


def measure(scene: Scene) -> Measurement:
    """Compare the submission's moving pixels with the reference world's, else with the annotation's.

    A case with neither gives an empty measurement. Raises ``ValueError`` when (F, H, W) differ,
    ``AnnotationFault`` when the annotation is damaged or another video's, and what
    ``scorer.liquid.tracers.materials_of`` does.
    """
    try:
        return _measure(scene)
    except ArchiveError as error:  # worlds have errors of their own
        raise AnnotationFault(f"{scene.annotation_path}: {error}") from error


def _measure(scene: Scene) -> Measurement:
    submission = scene.submission
    with ExitStack() as opened:
        if scene.reference is not None:
            reference = scene.reference
            _same_shape("reference", reference.shape, submission.shape)
            target = Target(reference.dynamic_ids, moving_masks(reference))
        elif scene.annotation_path is not None:
            archive = opened.enter_context(Archive.open(scene.annotation_path))
            # The video gate holds the submission to the video: it is the annotation that does not fit.
            try:
                _same_shape("annotation", _annotation_shape(archive), submission.shape)
            except ValueError as error:
                raise AnnotationFault(f"{scene.annotation_path}: {error}") from error
            target = Target((ANNOTATED_ID,), annotation_masks(archive), annotated=True)
        else:
            return Measurement(detail={}, vouched=frozenset())
        materials_of(submission)  # the protocol knows no moving ids where a liquid cannot be followed
        statistics = gather(target, submission.shape, moving_masks(submission))
    return _measurement(statistics, target, submission.dynamic_ids)


@dataclass(frozen=True)
class Target:
    """What a submission is held against: ids that are reported, and one mask a frame."""

    ids: tuple[int, ...]
    masks: Iterator[Mask]
    annotated: bool = False


@dataclass(frozen=True)
class Statistics:
    """Counts and masks of all frames.

    both, either : int64 (F,), pixels of the intersection and of the union outside the band.
    pixels : total of the reference's and of the submission's mask, band included.
    gt, pred, band : uint8 (F, H, ceil(W/8)), packed masks.
    band_radius : px. close_radius : px, or None when the submission's masks were not closed.
    """

    shape: Shape
    both: NDArray[np.int64]
    either: NDArray[np.int64]
    pixels: tuple[int, int]
    gt: NDArray[np.uint8]
    pred: NDArray[np.uint8]
    band: NDArray[np.uint8]
    band_radius: int
    close_radius: int | None


def gather(target: Target, shape: Shape, submission: Iterator[Mask]) -> Statistics:
    """Go through both mask streams frame by frame; no more than the packed masks is kept."""
    frames, height, width = shape
    band_radius = edge_radius(BAND_FRACTION, height, width)
    close_radius = edge_radius(CLOSE_FRACTION, height, width) if target.annotated else None
    closing: Callable[[Mask], Mask] = Remembered(lambda mask: masks.close(mask, close_radius or 0))
    banding: Callable[[Mask], Mask] = Remembered(lambda mask: masks.edge_band(mask, band_radius))
    both, either = np.zeros(frames, np.int64), np.zeros(frames, np.int64)
    totals = np.zeros(2, np.int64)
    packed = np.zeros((3, frames, height, (width + 7) // 8), np.uint8)
    for frame, (gt, drawn) in enumerate(zip(target.masks, submission, strict=True)):
        pred = closing(drawn) if target.annotated else drawn
        band = banding(gt)
        both[frame] = np.count_nonzero(gt & pred & ~band)
        either[frame] = np.count_nonzero((gt | pred) & ~band)
        totals += (np.count_nonzero(gt), np.count_nonzero(pred))
        for store, mask in zip(packed, (gt, pred, band), strict=True):
            store[frame] = masks.pack(mask)
    pixels = (int(totals[0]), int(totals[1]))
    gt_bits, pred_bits, band_bits = packed
    return Statistics(shape, both, either, pixels, gt_bits, pred_bits, band_bits, band_radius, close_radius)


def dynamic_iou(both: NDArray[np.int64], either: NDArray[np.int64]) -> float:
    """Mean over frames of intersection over union; a frame with an empty union counts 1."""
    scores = np.ones(len(both), np.float64)
    np.divide(both, either, out=scores, where=either > 0)
    return float(np.mean(scores))


def moving_masks(world: World) -> Iterator[Mask]:
    """(H, W) bool of each frame: the pixel's nearest surface belongs to a dynamic id. Static geometry
    occludes.

    The array of a frame whose geometry equals the frame's before is that frame's array: treat it as
    read-only.
    """
    _, height, width = world.shape
    nothing = np.zeros((height, width), np.bool_)
    soup: tuple[Any, ...] = ()
    mask = nothing
    for frame in range(world.frames):
        verts, faces, owner = now = world.soup(frame)
        if soup and all(np.array_equal(a, b) for a, b in zip(soup, now, strict=True)):
            yield mask
            continue
        soup = now
        moving = np.isin(owner, world.dynamic_ids)
        if moving.any():
            face = visible_faces(verts, faces, world.intrinsics, world.extrinsic, height, width)
            mask = np.append(moving, False)[face]  # a miss is face −1, the appended False
        else:
            mask = nothing
        yield mask


def annotation_masks(archive: Archive) -> Iterator[Mask]:
    """(H, W) bool of each frame of an annotation; non-zero is dynamic."""
    for frame in range(_annotation_shape(archive)[0]):
        yield archive.rows(DYNAMIC_MASK_KEY, frame, frame + 1)[0] != 0


class Remembered:
    """A function of a mask that is not repeated while it is given the very same array."""

    def __init__(self, function: Callable[[Mask], Mask]) -> None:
        self._function = function
        self._argument: Mask | None = None
        self._result: Mask | None = None

    def __call__(self, mask: Mask) -> Mask:
        if self._result is None or self._argument is not mask:
            self._argument, self._result = mask, self._function(mask)
        return self._result


def _annotation_shape(archive: Archive) -> tuple[int, ...]:
    header = archive.header(DYNAMIC_MASK_KEY)
    if header.dtype.kind not in "biu":
        raise ArchiveError(f"member {DYNAMIC_MASK_KEY!r} holds {header.dtype}; expected uint8")
    return header.shape


def _same_shape(name: str, theirs: tuple[int, ...], ours: Shape) -> None:
    if tuple(theirs) != tuple(ours):
        raise ValueError(f"{name} is {tuple(theirs)} and the submission is {tuple(ours)}")


def _measurement(statistics: Statistics, target: Target, submission_ids: tuple[int, ...]) -> Measurement:
    reference: dict[str, Any] = {"ids": list(target.ids)}
    if target.annotated:
        reference["source"] = "annotation"
    detail: dict[str, Any] = {
        "dynamic_iou": dynamic_iou(statistics.both, statistics.either),
        "dynamic_gt": reference,
        "dynamic_pred": {"ids": list(submission_ids)},
        "dynamic_pixels": list(statistics.pixels),
        "dynamic_band_px": statistics.band_radius,
    }
    if statistics.close_radius is not None:
        detail["dynamic_close_px"] = statistics.close_radius
    arrays: dict[str, NDArray[Any]] = {
        "gt": statistics.gt,
        "pred": statistics.pred,
        "band": statistics.band,
        "shape": np.array(statistics.shape, np.int64),
        "gt_ids": np.array(target.ids, np.uint16),
        "pred_ids": np.array(submission_ids, np.uint16),
    }
    return Measurement(detail, {"dynamic": arrays})
