"""Where samples are at other frames: weighted sums of the columns of their material.

Source: protocol 4dcb-1, tracking. Sums are taken in float64 and stored in float32, in one order for each
sample whatever the number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scorer.geometry.sampling.affine import affine_motions, apply_maps, near_surface
from scorer.geometry.sampling.mean_value import Cage, mean_value_weights
from scorer.geometry.sampling.threads import in_blocks

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

HISTORY_BYTES = 1 << 26
"""Size of the positions of a component that are held at a time."""
WEIGHTS = 1 << 22
"""Weights of a block of samples (16 MiB)."""
_HISTORY = 1 << 22
"""Positions of columns that are read at a time."""
_TILE = 64
_VERTICES = 64


class Moving(Protocol):
    """Anything that gives positions float32 (stop − start, n, 3) of columns int64 (n,)."""

    def take(self, start: int, stop: int, columns: Longs) -> Floats: ...


def track_columns(material: Moving, columns: Longs, weights: Floats, start: int, stop: int) -> Floats:
    """Positions float32 (stop − start, S, 3) of weighted sums of columns int64 (S, k)."""
    out = np.empty((stop - start, len(columns), 3), np.float32)
    used, local = np.unique(columns, return_inverse=True)
    local = local.reshape(columns.shape)
    step = max(1, _HISTORY // max(1, len(used)))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        out[first - start : last - start] = combine(material.take(first, last, used), local, weights)
    return out


def combine(history: Floats, columns: Longs, weights: Floats) -> Floats:
    """Positions float32 (t, S, 3) of weighted sums of a few columns each.

    history : float32 (t, n, 3). columns : int64 (S, k), below n. weights : float32 (S, k). NaN where a
    column of non-zero weight is not finite.
    """
    out = np.empty((len(history), len(columns), 3), np.float32)
    in_blocks(len(history), 8, lambda start, stop: _gather(history, columns, weights, out, start, stop))
    return out


@njit(cache=True, nogil=True)
def _gather(
    history: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for t in range(start, stop):
        for s in range(len(columns)):
            x = y = z = 0.0
            alive = True
            for k in range(columns.shape[1]):
                w = np.float64(weights[s, k])
                if w == 0.0:
                    continue
                c = columns[s, k]
                px, py, pz = history[t, c, 0], history[t, c, 1], history[t, c, 2]
                alive = alive and math.isfinite(px) and math.isfinite(py) and math.isfinite(pz)
                x += w * px
                y += w * py
                z += w * pz
            out[t, s, 0] = x if alive else np.nan
            out[t, s, 1] = y if alive else np.nan
            out[t, s, 2] = z if alive else np.nan


@dataclass(frozen=True, eq=False)
class Interior:
    """Samples inside one shell, at the frame on which they were made.

    cage : the shell then. closed : whether its triangles leave no rim. points : float64 (S, 3).
    """

    cage: Cage
    closed: bool
    points: Doubles

    def follow(self, history: Floats) -> Floats:
        """Positions float32 (t, S, 3) for the shell's ``history`` float32 (t, V, 3).

        Where the shell moves by an affine map so do the samples: mean value coordinates about a closed
        shell reproduce affine maps, except on the shell itself.
        """
        out = np.full((len(history), len(self.points), 3), np.nan, np.float32)
        alive: Mask = np.asarray(np.isfinite(history).all(axis=2))
        somewhere = alive.any(axis=1)
        affine = np.zeros(len(history), np.bool_)
        if self.closed:
            affine, maps = affine_motions(self.cage.corners, history)
            apply_maps(maps, affine, self.points, out)
            if affine.any():
                touching = np.flatnonzero(near_surface(self.cage.corners, self.cage.faces, self.points))
                self._combined(history, np.flatnonzero(affine), touching, alive, out)
        every = np.arange(len(self.points))
        self._combined(history, np.flatnonzero(~affine & somewhere), every, alive, out)
        return out

    def _combined(self, history: Floats, frames: Longs, rows: Longs, alive: Mask, out: Floats) -> None:
        """Fill ``out`` at some frames and rows from weights."""
        if not len(frames) or not len(rows):
            return
        size = history.shape[1]
        wide = -(-3 * len(frames) // _TILE) * _TILE
        flat = np.zeros((size, wide), np.float32)
        living = alive[frames]
        known = np.where(living[:, :, None], history[frames], np.float32(0.0))
        flat[:, : 3 * len(frames)] = known.transpose(1, 0, 2).reshape(size, -1)
        patterns, pattern = np.unique(living, axis=0, return_inverse=True)
        block = max(1, min(1024, WEIGHTS // max(size, wide)))

        def work(start: int, stop: int) -> None:
            weights = mean_value_weights(self.cage, self.points[rows[start:stop]])
            moved = _product(weights, flat)[:, : 3 * len(frames)].astype(np.float32)
            moved = moved.reshape(stop - start, len(frames), 3).transpose(1, 0, 2)
            for number, living in enumerate(patterns):
                if not living.all():
                    lost = (weights[:, ~living] != 0.0).any(axis=1)
                    at = np.flatnonzero(pattern.reshape(-1) == number)
                    moved[np.ix_(at, np.flatnonzero(lost))] = np.nan
            out[np.ix_(frames, rows[start:stop])] = moved

        in_blocks(len(rows), block, work)


@njit(cache=True, nogil=True)
def _product(weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """float64 (S, C): weights float32 (S, V) times columns float32 (V, C), summed over V in ascending order.
    C is a multiple of the tile.
    """
    rows, size = weights.shape
    wide = columns.shape[1]
    out = np.zeros((rows, wide))
    tile = np.zeros((_VERTICES, _TILE))
    for c0 in range(0, wide, _TILE):
        for v0 in range(0, size, _VERTICES):
            many = min(_VERTICES, size - v0)
            for v in range(many):
                for c in range(_TILE):
                    tile[v, c] = columns[v0 + v, c0 + c]
            for s in range(rows):
                _accumulate(weights[s, v0 : v0 + many], tile, out[s, c0 : c0 + _TILE])
    return out


@njit(cache=True, nogil=True)
def _accumulate(weights: np.ndarray, tile: np.ndarray, sums: np.ndarray) -> None:
    """Add a few rows of the tile at a time to ``sums`` (tile,), one after the other."""
    whole = len(weights) // 8 * 8
    for v in range(0, whole, 8):
        w0, w1 = np.float64(weights[v]), np.float64(weights[v + 1])
        w2, w3 = np.float64(weights[v + 2]), np.float64(weights[v + 3])
        w4, w5 = np.float64(weights[v + 4]), np.float64(weights[v + 5])
        w6, w7 = np.float64(weights[v + 6]), np.float64(weights[v + 7])
        for c in range(_TILE):
            x = sums[c] + w0 * tile[v, c]
            x = x + w1 * tile[v + 1, c]
            x = x + w2 * tile[v + 2, c]
            x = x + w3 * tile[v + 3, c]
            x = x + w4 * tile[v + 4, c]
            x = x + w5 * tile[v + 5, c]
            x = x + w6 * tile[v + 6, c]
            sums[c] = x + w7 * tile[v + 7, c]
    for v in range(whole, len(weights)):
        w = np.float64(weights[v])
        for c in range(_TILE):
            sums[c] += w * tile[v, c]
