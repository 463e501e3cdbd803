"""Binary pictures: neighbourhood counts, growing and shrinking, connected pieces. Plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


def strongest(colours: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Largest of the three channels of (…, 3); numpy's own maximum over a short axis is ten times slower."""
    result: npt.NDArray[Any] = np.maximum(np.maximum(colours[..., 0], colours[..., 1]), colours[..., 2])
    return result


def faintest(colours: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Smallest of the three channels of (…, 3)."""
    result: npt.NDArray[Any] = np.minimum(np.minimum(colours[..., 0], colours[..., 1]), colours[..., 2])
    return result


def box_sum(picture: Floats, radius: int) -> Floats:
    """Sum over the (2·radius + 1)² square around each cell of a float32 (h, w) picture; outside counts as
    0.
    """
    for axis in (0, 1):
        length = picture.shape[axis]
        total = np.cumsum(picture, axis=axis, dtype=np.float64)
        upper = np.take(total, np.minimum(np.arange(length) + radius, length - 1), axis=axis)
        below = np.arange(length) - radius - 1
        lower = np.take(total, np.maximum(below, 0), axis=axis)
        outside = (below < 0)[:, None] if axis == 0 else (below < 0)[None, :]
        picture = (upper - np.where(outside, 0.0, lower)).astype(np.float32)
    return picture


def box_mean(picture: Floats, radius: int) -> Floats:
    """Mean over the part of the square around each cell that lies inside the picture, float32 (h, w)."""
    return box_sum(picture, radius) / box_sum(np.ones_like(picture), radius)


def box_max(picture: Floats, radius: int) -> Floats:
    """Largest value in the square around each cell, float32 (h, w)."""
    for axis in (0, 1):
        result = picture.copy()
        for shift in range(1, min(radius, picture.shape[axis] - 1) + 1):
            near, far = _shifted(axis, shift)
            np.maximum(result[near], picture[far], out=result[near])
            np.maximum(result[far], picture[near], out=result[far])
        picture = result
    return picture


def grow(mask: Mask, radius: int) -> Mask:
    """Cells with a set cell in the square around them."""
    for axis in (0, 1):
        result = mask.copy()
        for shift in range(1, min(radius, mask.shape[axis] - 1) + 1):
            near, far = _shifted(axis, shift)
            result[near] |= mask[far]
            result[far] |= mask[near]
        mask = result
    return mask


def close(mask: Mask, radius: int) -> Mask:
    """Grow, then shrink by the same square: gaps up to 2·radius wide are bridged, borders stay."""
    return ~grow(~grow(mask, radius), radius) if radius > 0 else mask


def majority(mask: Mask) -> Mask:
    """Cells whose 3 × 3 square is mostly set: single cells and hairlines vanish, pinholes fill."""
    return box_sum(mask.astype(np.float32), 1) >= 5.0


def label(mask: Mask) -> tuple[Labels, int]:
    """Connected pieces of ``mask``, cells touching by side or corner.

    Returns ``(labels, count)``: int32 (h, w), 0 where unset, 1 … count elsewhere, numbered in reading order
    of each piece's first cell. Works on horizontal runs, which are joined where they touch runs of the row
    above.
    """
    height, width = mask.shape
    padded = np.zeros((height, width + 2), dtype=np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    stops = np.nonzero(change == -1)[1]
    if rows.size == 0:
        return np.zeros(mask.shape, dtype=np.int32), 0
    # Two runs of neighbouring rows touch when start ≤ other stop and stop ≥ other start (stop is exclusive,
    # and corners count). On one axis over all rows this is a range of runs in the previous row.
    stride = width + 2
    first = np.searchsorted(rows * stride + stops, (rows - 1) * stride + starts, side="left")
    last = np.searchsorted(rows * stride + starts, (rows - 1) * stride + stops, side="right")
    counts = np.maximum(last - first, 0)
    lower = np.repeat(np.arange(rows.size), counts)
    upper = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(lower.size)
    roots = join(rows.size, lower, upper)
    names, compact = np.unique(roots, return_inverse=True)
    flat = np.zeros(height * width, dtype=np.int32)
    lengths = stops - starts
    cells = np.repeat(rows * width + starts - np.cumsum(lengths) + lengths, lengths) + np.arange(
        lengths.sum()
    )
    flat[cells] = np.repeat(compact.reshape(-1) + 1, lengths)
    return flat.reshape(height, width), int(names.size)


def join(count: int, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Smallest member of each node's connected set, for ``count`` nodes and edges left–right."""
    root = np.arange(count)
    while True:
        a, b = root[left], root[right]
        if np.array_equal(a, b):
            return root
        low = np.minimum(a, b)
        np.minimum.at(root, a, low)
        np.minimum.at(root, b, low)
        while not np.array_equal(root, root[root]):
            root = root[root]


def _shifted(axis: int, shift: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Index pairs that line up a picture with itself moved by ``shift`` along ``axis``."""
    near, far, every = slice(None, -shift), slice(shift, None), slice(None)
    return ((near, every), (far, every)) if axis == 0 else ((every, near), (every, far))


def filled(mask: Mask, share: float) -> Mask:
    """``mask`` with its holes filled: unset pieces that do not reach the border, up to a share of the
    picture.
    """
    labels, count = label(~mask)
    open_ = np.zeros(count + 1, dtype=np.bool_)
    for border in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        open_[border] = True
    small = np.bincount(labels.ravel(), minlength=count + 1) <= share * mask.size
    return mask | (small & ~open_)[labels]


def boxes(labels: Labels, count: int) -> npt.NDArray[np.int64]:
    """Bounding box of each label 1 … count, int64 (count, 4): first row, last row + 1, first column, last
    column + 1.
    """
    rows, columns = np.nonzero(labels)
    names = labels[rows, columns] - 1
    result = np.empty((count, 4), dtype=np.int64)
    result[:, 0], result[:, 1], result[:, 2], result[:, 3] = labels.shape[0], 0, labels.shape[1], 0
    np.minimum.at(result[:, 0], names, rows)
    np.maximum.at(result[:, 1], names, rows + 1)
    np.minimum.at(result[:, 2], names, columns)
    np.maximum.at(result[:, 3], names, columns + 1)
    return result
