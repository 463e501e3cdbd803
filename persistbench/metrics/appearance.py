"""Appearance preservation: patch features pooled under the object, compared by their cosine (spec 70
§7.7).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PATCH = 14
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
_TINY = 1e-8
# Normalised float32 (1, 3, H, W), sides multiples of 14, to patch tokens (1, N, C) in row-major order.
PatchModel = Callable[[np.ndarray], np.ndarray]


def patch_size(size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) enlarged to multiples of the patch."""
    height, width = (-(-side // PATCH) * PATCH for side in size)
    return height, width


def _ramp(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper index and the upper's weight, pixel centres aligned, as torch computes them in
    float32.
    """
    scale = np.float32(source) / np.float32(target)
    position = np.maximum(
        (np.arange(target, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5), 0
    )
    low = np.minimum(position.astype(np.int64), source - 1)
    return low, np.minimum(low + 1, source - 1), (position - low).astype(np.float32)


def model_input(frame: np.ndarray) -> np.ndarray:
    """A frame, float32 (H, W, 3) in [0, 1], as the model wants it: bilinear, no antialias, ImageNet
    statistics.
    """
    height, width = patch_size(frame.shape[:2])
    image = np.asarray(frame, np.float32)
    if (height, width) != frame.shape[:2]:
        low, high, weight = _ramp(image.shape[0], height)
        image = image[low] * (1 - weight)[:, None, None] + image[high] * weight[:, None, None]
        low, high, weight = _ramp(image.shape[1], width)
        image = image[:, low] * (1 - weight)[None, :, None] + image[:, high] * weight[None, :, None]
    return np.ascontiguousarray(((image - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None], np.float32)


def touched_cells(mask: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Cells of ``grid`` that a boolean (H, W) mask touches (adaptive averaging above 0); all when it touches
    none.
    """
    counts = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    edges = []
    for size, cells in zip(mask.shape, grid):
        index = np.arange(cells)
        edges.append((index * size // cells, -(-(index + 1) * size // cells)))
    (top, bottom), (left, right) = edges
    inside = (
        counts[np.ix_(bottom, right)]
        - counts[np.ix_(top, right)]
        - counts[np.ix_(bottom, left)]
        + counts[np.ix_(top, left)]
    )
    cells_touched = inside > 0
    return cells_touched if cells_touched.any() else np.ones(grid, bool)


def pooled(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The unit feature of an object: mean of the tokens (N, C) of touched cells, over its norm. float32
    (C,).
    """
    height, width = patch_size(mask.shape)
    cells = touched_cells(mask, (height // PATCH, width // PATCH)).reshape(-1)
    mean = np.asarray(tokens, np.float32).reshape(len(cells), -1)[cells].mean(0)
    return mean / (np.linalg.norm(mean) + np.float32(_TINY))


def object_feature(frame: np.ndarray, mask: np.ndarray, model: PatchModel) -> np.ndarray:
    """The unit feature of the object under ``mask`` in a full frame, float32 (C,)."""
    return pooled(model(model_input(frame))[0], mask)


def similarity(reference: np.ndarray, predicted: np.ndarray) -> float:
    """Cosine of two unit features, neither clipped nor rescaled."""
    return float(np.dot(reference, predicted))


def eligible_frames(
    reference: np.ndarray, predicted: np.ndarray, valid: frozenset[int], start: int
) -> np.ndarray:
    """Frames, boolean (T,), from ``start`` on that are tracked and have both masks."""
    tracked = np.array([frame in valid for frame in range(len(reference))])
    after = np.arange(len(reference)) >= start
    return after & tracked & reference.any((1, 2)) & predicted.any((1, 2))
