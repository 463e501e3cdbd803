"""The rasteriser's passes over faces and pixels, each on a range of them, so that several threads can share
the work.
"""

from __future__ import annotations

import numba
import numpy as np

from contract.constants import MISS, NEAR
from scorer.geometry.raster_clip import MOST_CORNERS, clip_triangle, outside
from scorer.geometry.raster_fill import fill_triangle
from scorer.geometry.raster_project import NOT_SNAPPED, snap

_SPAN_LIMIT = 32767
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_NEAR2 = np.float32(2.0 * NEAR)
_CLAMP = np.float32(1 << 20)


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
        clipped = (low_x == NOT_SNAPPED) | (max(high_x, high_y) - min(low_x, low_y) > _SPAN_LIMIT)
        kept[at, 0] = f
        kept[at, 1] = all_rows if clipped else np.int32(first | (last << 16))
        at += np.int64(clipped | ((first <= last) & (left <= right)))
    return at - start


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _corner(clip, vertex, tile, out):  # type: ignore[no-untyped-def]
    """(x, y, z, w) of a vertex in the tile's clip space, float32."""
    w = clip[vertex, 2]
    out[0] = clip[vertex, 0] * tile[0] + w * tile[1]
    out[1] = clip[vertex, 1] * tile[2] + w * tile[3]
    out[2] = w - _NEAR2
    out[3] = w


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _mix(a, b, c, s, t, k):  # type: ignore[no-untyped-def]
    """Clip coordinate k at barycentric (s, t) of a triangle."""
    return a[k] + (b[k] - a[k]) * s + (c[k] - a[k]) * t


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _snap_clipped(value, reciprocal, scale):  # type: ignore[no-untyped-def]
    """Snapped coordinate of a clipped corner; int64, saturated (a corner of the frustum's tip may be
    anywhere).
    """
    snapped = snap(value, reciprocal, scale)
    return np.int64(min(max(snapped, -_CLAMP), _CLAMP)) if snapped == snapped else np.int64(0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fill_clipped(clip, faces, face, tile, grid, window, corners, order, owner):  # type: ignore[no-untyped-def]
    """Clip one face to the frustum and fill the fan of what is left."""
    a, b, c = corners[0, :4], corners[1, :4], corners[2, :4]
    _corner(clip, faces[face, 0], tile, a)
    _corner(clip, faces[face, 1], tile, b)
    _corner(clip, faces[face, 2], tile, c)
    if outside(a, b, c):
        return
    polygon = np.empty((MOST_CORNERS, 2), np.float32)
    scratch = np.empty((MOST_CORNERS, 2), np.float32)
    count = clip_triangle(a, b, c, polygon, scratch)
    x = np.empty(MOST_CORNERS, np.int64)
    y = np.empty(MOST_CORNERS, np.int64)
    w = np.empty(MOST_CORNERS, np.float32)
    for k in range(count):
        s, t = polygon[k, 0], polygon[k, 1]
        w[k] = _mix(a, b, c, s, t, 3)
        reciprocal = _ONE / w[k]
        x[k] = _snap_clipped(_mix(a, b, c, s, t, 0), reciprocal, tile[4]) + grid[0]
        y[k] = _snap_clipped(_mix(a, b, c, s, t, 1), reciprocal, tile[5]) + grid[1]
    for k in range(1, count - 1):
        fill_triangle(
            x[0], y[0], w[0], x[k], y[k], w[k], x[k + 1], y[k + 1], w[k + 1], face, window, order, owner
        )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def band_kernel(clip, snapped, faces, kept, chunks, tile, grid, top, bottom, order, owner):  # type: ignore[no-untyped-def]
    """Fill rows [top, bottom) of a tile. ``order`` and ``owner`` are the tile's views; ``chunks`` int64 (C,
    2): start and number of the kept faces of each chunk, in face order.
    """
    window = np.array([top, bottom, 0, grid[2] + 1], np.int64)
    corners = np.empty((3, 4), np.float32)
    for i in range(top, bottom):
        for j in range(grid[2] + 1):
            order[i, j] = np.inf
            owner[i, j] = MISS
    for chunk in range(len(chunks)):
        for n in range(chunks[chunk, 0], chunks[chunk, 0] + chunks[chunk, 1]):
            rows = kept[n, 1]
            if (rows & 0xFFFF) >= bottom or (rows >> 16) < top:
                continue
            f = kept[n, 0]
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            xa, ya = np.int64(snapped[a, 0]), np.int64(snapped[a, 1])
            xb, yb = np.int64(snapped[b, 0]), np.int64(snapped[b, 1])
            xc, yc = np.int64(snapped[c, 0]), np.int64(snapped[c, 1])
            low = min(xa, xb, xc, ya, yb, yc)
            if low == NOT_SNAPPED or max(xa, xb, xc, ya, yb, yc) - low > _SPAN_LIMIT:
                _fill_clipped(clip, faces, f, tile, grid, window, corners, order, owner)
                continue
            fill_triangle(
                xa + grid[0], ya + grid[1], clip[a, 2],
                xb + grid[0], yb + grid[1], clip[b, 2],
                xc + grid[0], yc + grid[1], clip[c, 2],
                f, window, order, owner,
            )  # fmt: skip


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _saturate(value):  # type: ignore[no-untyped-def]
    """Clamp to [0, 1]; NaN becomes 0."""
    return min(max(value, _ZERO), _ONE) if value == value else _ZERO


@numba.njit(cache=True, nogil=True, error_model="numpy")
def interpolate_kernel(clip, faces, owner, grid, depth, bary, start, stop):  # type: ignore[no-untyped-def]
    """Camera z and the first two barycentrics of rows [start, stop), perspective-correct, float32.

    ``grid`` float32 (4,): step and origin of the normalised x, then of y. ``bary`` (2, H, W), or empty when
    unwanted.
    """
    wanted = bary.shape[1] > 0
    for i in range(start, stop):
        fy = grid[2] * np.float32(i) + grid[3]
        for j in range(owner.shape[1]):
            f = owner[i, j]
            if f < 0:
                depth[i, j] = np.inf
                if wanted:
                    bary[0, i, j] = _ZERO
                    bary[1, i, j] = _ZERO
                continue
            fx = grid[0] * np.float32(j) + grid[1]
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            wa, wb, wc = clip[a, 2], clip[b, 2], clip[c, 2]
            xa, ya = clip[a, 0] - fx * wa, clip[a, 1] - fy * wa
            xb, yb = clip[b, 0] - fx * wb, clip[b, 1] - fy * wb
            xc, yc = clip[c, 0] - fx * wc, clip[c, 1] - fy * wc
            area0 = xb * yc - yb * xc
            area1 = xc * ya - yc * xa
            area2 = xa * yb - ya * xb
            reciprocal = _ONE / (area0 + area1 + area2)
            b0 = _saturate(area0 * reciprocal)
            b1 = _saturate(area1 * reciprocal)
            shrink = _ONE / max(b0 + b1, _ONE)
            b0 *= shrink
            b1 *= shrink
            b2 = _ONE - b0 - b1
            depth[i, j] = (b0 * wa + b1 * wb) + b2 * wc
            if wanted:
                bary[0, i, j] = b0
                bary[1, i, j] = b1
