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
_VERTICES = 128
_FIT_RMS, _FIT_MOST = 1.5e-7, 6e-7
"""Largest residuals, in radii, of an affine motion: what rounding positions to float32 leaves."""
_TOUCHING = 1e-4
"""Distance from a triangle, over its size, within which its coordinates are worked out rather than assumed to
reproduce affine maps.
"""


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
            _apply(maps, affine, self.points, out)
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
    acc = np.empty((4, _TILE))
    for c0 in range(0, wide, _TILE):
        for v0 in range(0, size, _VERTICES):
            v1 = min(v0 + _VERTICES, size)
            for s0 in range(0, rows, 4):
                many = min(4, rows - s0)
                for k in range(many):
                    for c in range(_TILE):
                        acc[k, c] = out[s0 + k, c0 + c]
                if many == 4:
                    for v in range(v0, v1):
                        w0, w1 = np.float64(weights[s0, v]), np.float64(weights[s0 + 1, v])
                        w2, w3 = np.float64(weights[s0 + 2, v]), np.float64(weights[s0 + 3, v])
                        for c in range(_TILE):
                            p = np.float64(columns[v, c0 + c])
                            acc[0, c] += w0 * p
                            acc[1, c] += w1 * p
                            acc[2, c] += w2 * p
                            acc[3, c] += w3 * p
                else:
                    for v in range(v0, v1):
                        for k in range(many):
                            w = np.float64(weights[s0 + k, v])
                            for c in range(_TILE):
                                acc[k, c] += w * np.float64(columns[v, c0 + c])
                for k in range(many):
                    for c in range(_TILE):
                        out[s0 + k, c0 + c] = acc[k, c]
    return out


def affine_motions(corners: Doubles, history: Floats) -> tuple[Mask, Doubles]:
    """Which frames bool (t,) show the shell under an affine map of ``corners`` float64 (V, 3), and the maps
    float64 (t, 3, 4), linear part and offset.

    history : float32 (t, V, 3). The map of a frame is fitted by least squares and must leave no more than
    rounding to float32 leaves. A flat shell has none.
    """
    middle = corners.mean(axis=0)
    centred = corners - middle
    gram = np.einsum("vi,vj->ij", centred, centred)
    if not np.isfinite(gram).all() or np.linalg.cond(gram) > 1e8:
        return np.zeros(len(history), np.bool_), np.zeros((len(history), 3, 4))
    return _affine_fits(centred, middle, np.linalg.inv(gram), history)


@njit(cache=True, nogil=True)
def _affine_fits(
    centred: np.ndarray, middle: np.ndarray, inverse: np.ndarray, history: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    frames, size = history.shape[:2]
    fits = np.zeros(frames, np.bool_)
    maps = np.zeros((frames, 3, 4))
    for t in range(frames):
        mean, cross = np.zeros(3), np.zeros((3, 3))
        for v in range(size):
            for axis in range(3):
                mean[axis] += history[t, v, axis]
        mean /= size
        if not math.isfinite(mean[0] + mean[1] + mean[2]):
            continue
        for v in range(size):
            for axis in range(3):
                moved = history[t, v, axis] - mean[axis]
                for k in range(3):
                    cross[axis, k] += moved * centred[v, k]
        linear = np.zeros((3, 3))
        for axis in range(3):
            for k in range(3):
                for m in range(3):
                    linear[axis, k] += cross[axis, m] * inverse[m, k]
        most, squares = 0.0, np.zeros(3)
        for v in range(size):
            for axis in range(3):
                residual = history[t, v, axis] - mean[axis]
                for k in range(3):
                    residual -= linear[axis, k] * centred[v, k]
                squares[axis] += residual * residual
                most = max(most, abs(residual))
        fits[t] = most <= _FIT_MOST and squares.max() <= size * _FIT_RMS * _FIT_RMS
        for axis in range(3):
            maps[t, axis, 3] = mean[axis]
            for k in range(3):
                maps[t, axis, k] = linear[axis, k]
                maps[t, axis, 3] -= linear[axis, k] * middle[k]
    return fits, maps


@njit(cache=True, nogil=True)
def _apply(maps: np.ndarray, use: np.ndarray, points: np.ndarray, out: np.ndarray) -> None:
    for t in range(len(maps)):
        if use[t]:
            m = maps[t]
            for s in range(len(points)):
                x, y, z = points[s, 0], points[s, 1], points[s, 2]
                for axis in range(3):
                    out[t, s, axis] = m[axis, 0] * x + m[axis, 1] * y + m[axis, 2] * z + m[axis, 3]


def near_surface(corners: Doubles, faces: Ints, points: Doubles) -> Mask:
    """bool (S,), which points lie so near a triangle that its plane could decide their coordinates."""
    if not len(points):
        return np.zeros(0, np.bool_)
    order = np.argsort(points[:, 0], kind="stable")
    return _near(corners, faces, points, order, points[order, 0].copy())


@njit(cache=True, nogil=True)
def _near(
    corners: np.ndarray, faces: np.ndarray, points: np.ndarray, order: np.ndarray, sorted_x: np.ndarray
) -> np.ndarray:
    near = np.zeros(len(points), np.bool_)
    for f in range(len(faces)):
        a, b, c = corners[faces[f, 0]], corners[faces[f, 1]], corners[faces[f, 2]]
        u, v = b - a, c - a
        reach = max(np.abs(u).max(), np.abs(v).max(), np.abs(v - u).max())
        slack = _TOUCHING * reach
        nx, ny, nz = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
        area = math.sqrt(nx * nx + ny * ny + nz * nz)
        low, high = np.minimum(np.minimum(a, b), c) - slack, np.maximum(np.maximum(a, b), c) + slack
        first = np.searchsorted(sorted_x, low[0])
        while first < len(order) and sorted_x[first] <= high[0]:
            p = points[order[first]]
            if low[1] <= p[1] <= high[1] and low[2] <= p[2] <= high[2]:
                away = abs(nx * (p[0] - a[0]) + ny * (p[1] - a[1]) + nz * (p[2] - a[2]))
                near[order[first]] |= away <= slack * area
            first += 1
    return near
