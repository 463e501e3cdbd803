"""Affine motions: a shell that moves by one takes its samples along, without their weights."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

_FIT_RMS, _FIT_MOST = 1.5e-7, 6e-7
"""Largest residuals of an affine motion, over the largest coordinate or the radius: what rounding to float32
leaves.
"""
_TOUCHING = 1e-4
"""Distance from a triangle, over its size, within which its coordinates are worked out rather than assumed to
reproduce affine maps.
"""


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
        most, squares, largest = 0.0, np.zeros(3), 1.0
        for v in range(size):
            for axis in range(3):
                residual = history[t, v, axis] - mean[axis]
                largest = max(largest, abs(history[t, v, axis]))
                for k in range(3):
                    residual -= linear[axis, k] * centred[v, k]
                squares[axis] += residual * residual
                most = max(most, abs(residual))
        rms = math.sqrt(squares.max() / size)
        fits[t] = most <= _FIT_MOST * largest and rms <= _FIT_RMS * largest
        for axis in range(3):
            maps[t, axis, 3] = mean[axis]
            for k in range(3):
                maps[t, axis, k] = linear[axis, k]
                maps[t, axis, 3] -= linear[axis, k] * middle[k]
    return fits, maps


@njit(cache=True, nogil=True)
def apply_maps(maps: np.ndarray, use: np.ndarray, points: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` float32 (t, S, 3) at the frames to ``use`` with the images of ``points`` (S, 3)."""
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
