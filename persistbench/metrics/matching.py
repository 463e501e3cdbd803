"""Find the object of the reference in the predicted frame by its patch features (spec 70 §7.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .boxes import MARGIN, Box, mask_box, pixel_box

_TINY = 1e-8
_BLOCK = 32  # channels transformed at a time: bounds memory, changes nothing


def _bilinear(grid: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``grid`` (h, w, C) at fractional rows ``y`` and columns ``x``, float32 (len(y), len(x), C); zero
    outside.
    """
    height, width = grid.shape[:2]
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    total = np.zeros((len(y), len(x), grid.shape[2]), np.float32)
    for rows, wy in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
        for columns, wx in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
            wy_in = np.where((rows >= 0) & (rows < height), wy, 0).astype(np.float32)
            wx_in = np.where((columns >= 0) & (columns < width), wx, 0).astype(np.float32)
            taken = grid[np.clip(rows, 0, height - 1)][:, np.clip(columns, 0, width - 1)]
            total += taken * (wy_in[:, None] * wx_in[None, :])[..., None]
    return total


def dense_features(tokens: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A token grid (h, w, C) spread over a (height, width) image, float32 (H, W, C): bilinear,
    corner-aligned.
    """
    ramps = [np.linspace(0, n - 1, length) for n, length in zip(tokens.shape[:2], size)]
    return _bilinear(np.asarray(tokens, np.float32), ramps[0], ramps[1])


def crop_features(tokens: np.ndarray, mask: np.ndarray, margin: float = MARGIN) -> np.ndarray:
    """Features inside the box of ``mask``, one per pixel of the box, float32 (h, w, C); at least one."""
    box = mask_box(mask, margin)
    x0, y0, x1, y1 = pixel_box(box, mask.shape)

    def ramp(low: float, high: float, count: int, tokens_across: int) -> np.ndarray:
        positions = np.linspace(2 * low - 1, 2 * high - 1, count, dtype=np.float32)
        return (positions + 1) / 2 * np.float32(tokens_across - 1)

    rows = ramp(box[1], box[3], max(1, y1 - y0), tokens.shape[0])
    columns = ramp(box[0], box[2], max(1, x1 - x0), tokens.shape[1])
    return _bilinear(np.asarray(tokens, np.float32), rows, columns)


def _unit(features: np.ndarray) -> np.ndarray:
    features = np.asarray(features, np.float32)
    return features / (np.linalg.norm(features, axis=-1, keepdims=True) + np.float32(_TINY))


def distance_map(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``1 -`` mean cosine of ``source`` (h, w, C) at every placement inside ``target`` (H, W, C).

    Returns float64 (H - h + 1, W - w + 1). The correlation is a product of spectra, summed over channels
    before it is transformed back once; a placement inside the image never wraps, so nothing is padded.
    Errors: ``ValueError`` where the source is larger than the target or has other channels.
    """
    (height, width, channels), (rows, columns) = source.shape, target.shape[:2]
    if height > rows or width > columns or channels != target.shape[2]:
        raise ValueError(f"a source of {source.shape} does not fit into a target of {target.shape}")
    small, large = _unit(source), _unit(target)
    spectrum = np.zeros((rows, columns // 2 + 1), np.complex128)
    for first in range(0, channels, _BLOCK):
        part = slice(first, first + _BLOCK)
        over = np.fft.rfft2(large[..., part].astype(np.float64), axes=(0, 1))
        under = np.fft.rfft2(small[..., part].astype(np.float64), s=(rows, columns), axes=(0, 1))
        spectrum += (over * under.conj()).sum(-1)
    total = np.fft.irfft2(spectrum, s=(rows, columns), axes=(0, 1))
    return 1 - total[: rows - height + 1, : columns - width + 1] / (height * width)


@dataclass(frozen=True)
class Match:
    """box : fractions of width and height. score : lower is better, 0 to 2."""

    box: Box
    score: float


def match(source: np.ndarray, target: np.ndarray, stride: int = 1) -> Match:
    """The placement of ``source`` in ``target`` with the least distance; the first in row-major order on
    ties.

    Errors: ``ValueError`` as :func:`distance_map`.
    """
    distances = distance_map(source, target)[::stride, ::stride]
    # Equal placements differ by rounding; single precision is what the protocol compares.
    row, column = np.unravel_index(int(np.argmin(distances.astype(np.float32))), distances.shape)
    y, x = int(row) * stride, int(column) * stride
    height, width = target.shape[:2]
    box = (x / width, y / height, (x + source.shape[1]) / width, (y + source.shape[0]) / height)
    return Match(box, float(np.float32(distances[row, column])))
