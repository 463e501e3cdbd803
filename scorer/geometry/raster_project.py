"""From world points to clip coordinates and to the rasteriser's integer grid, and which faces then matter.

Every product and sum below is a separate float32 operation in a fixed order: no fused multiply-add, no
re-association (numba's default), so that the snapped coordinates are the same on every machine and for every
number of threads.
"""

from __future__ import annotations

import numba
import numpy as np

from contract.constants import NEAR

NOT_SNAPPED = np.int32(-(2**31))
"""Both snapped coordinates of a vertex that the fast path cannot use: too near, out of range or not finite.
"""
SNAP_LOW, SNAP_HIGH = -32768, 32767
"""Range of snapped coordinates of the fast path, 1/16 px."""

_TWO = np.float32(2.0)
_ONE = np.float32(1.0)
_NEAR2 = np.float32(2.0 * NEAR)
_ROUND = np.float32(12582912.0)
"""1.5·2^23: adding and subtracting it rounds a float32 below 2^22 to an integer, half to even."""
_FAR_OUT = np.float32(40000.0)
SPAN_LIMIT = 32767
"""Largest extent of a face on the fast path, 1/16 px."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def camera_kernel(verts, rotation, translation, out, start, stop):  # type: ignore[no-untyped-def]
    """``out[v] = (verts[v] − t) @ R`` for v in [start, stop); all float32."""
    for v in range(start, stop):
        x = verts[v, 0] - translation[0]
        y = verts[v, 1] - translation[1]
        z = verts[v, 2] - translation[2]
        for c in range(3):
            out[v, c] = (x * rotation[0, c] + y * rotation[1, c]) + z * rotation[2, c]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def clip_kernel(points, matrix, height, width, out, start, stop):  # type: ignore[no-untyped-def]
    """``out[v] = (x_c, y_c, w_c)`` of camera points for v in [start, stop); ``height`` and ``width`` float32.

    ``z_c = w_c − 2·NEAR`` is left out: whoever needs it recomputes it, to the same bits.
    """
    for v in range(start, stop):
        x, y, z = points[v, 0], points[v, 1], points[v, 2]
        qx = (x * matrix[0, 0] + y * matrix[0, 1]) + z * matrix[0, 2]
        qy = (x * matrix[1, 0] + y * matrix[1, 1]) + z * matrix[1, 2]
        out[v, 0] = _TWO * qx / width - z
        out[v, 1] = _TWO * qy / height - z
        out[v, 2] = z


@numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _snap(value, reciprocal, scale):  # type: ignore[no-untyped-def]
    """Snapped coordinate as a float32 that holds an integer, half to even; NaN and huge values stay what they
    are.
    """
    scaled = value * reciprocal * scale
    if abs(scaled) < _FAR_OUT:
        return (scaled + _ROUND) - _ROUND
    return scaled


@numba.njit(cache=True, nogil=True, error_model="numpy")
def snap_kernel(clip, tile, out, start, stop):  # type: ignore[no-untyped-def]
    """Snapped (X, Y) int32 of each vertex in [start, stop), or ``NOT_SNAPPED`` twice.

    ``tile`` float32 (6,): x scale, x offset, y scale, y offset of the tile's own clip space, then 8·width,
    8·height.
    """
    for v in range(start, stop):
        w = clip[v, 2]
        reciprocal = _ONE / w
        x = _snap(clip[v, 0] * tile[0] + w * tile[1], reciprocal, tile[4])
        y = _snap(clip[v, 1] * tile[2] + w * tile[3], reciprocal, tile[5])
        usable = (
            (w >= abs(w - _NEAR2)) & (x >= SNAP_LOW) & (x <= SNAP_HIGH) & (y >= SNAP_LOW) & (y <= SNAP_HIGH)
        )
        if usable:
            out[v, 0] = np.int32(x)
            out[v, 1] = np.int32(y)
        else:
            out[v, 0] = NOT_SNAPPED
            out[v, 1] = NOT_SNAPPED


@numba.njit(cache=True, nogil=True, error_model="numpy")
def keep_kernel(snapped, faces, grid, kept, start, stop):  # type: ignore[no-untyped-def]
    """Compact the faces of [start, stop) that may own a pixel of the tile to the front of
    ``kept[start:stop]``.

    ``grid`` int64 (4,): tile offset to pixel-centre coordinates in x and y (8·side − 8), then last column and
    last row that exist in the image. A row of ``kept`` (int32): face, first row | last row << 16; a face to
    be clipped has all rows. Returns the number kept.
    """
    at = start
    all_rows = np.int32(grid[3] << 16)
    for f in range(start, stop):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        xa, ya = snapped[a, 0], snapped[a, 1]
        xb, yb = snapped[b, 0], snapped[b, 1]
        xc, yc = snapped[c, 0], snapped[c, 1]
        low_x, high_x = np.int64(min(xa, xb, xc)), np.int64(max(xa, xb, xc))
        low_y, high_y = np.int64(min(ya, yb, yc)), np.int64(max(ya, yb, yc))
        first = max((low_y + grid[1] + 15) >> 4, 0)
        last = min((high_y + grid[1]) >> 4, grid[3])
        left = max((low_x + grid[0] + 15) >> 4, 0)
        right = min((high_x + grid[0]) >> 4, grid[2])
        clipped = (low_x == NOT_SNAPPED) | (max(high_x, high_y) - min(low_x, low_y) > SPAN_LIMIT)
        kept[at, 0] = f
        kept[at, 1] = all_rows if clipped else np.int32(first | (last << 16))
        at += np.int64(clipped | ((first <= last) & (left <= right)))
    return at - start
