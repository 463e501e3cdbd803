"""The rasteriser on the CPU: numba kernels that release the GIL, a thread for each part of the work.

Three passes a tile: snap the vertices, keep the faces whose box holds a pixel centre, fill them band by band.
A last pass interpolates. No pixel is written by two threads and each band meets its faces in ascending order,
so the number of threads does not touch the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from scorer.geometry.raster_fill import band_kernel
from scorer.geometry.raster_interpolate import interpolate_kernel
from scorer.geometry.raster_project import camera_kernel, clip_kernel, keep_kernel, snap_kernel

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

LARGEST_TILE = 2048
"""An image side above this is drawn in equal tiles, each with its own snapping grid."""
_SMALL = 1 << 17
"""Vertices, faces or pixels that each thread of a pass must at least have (about a millisecond of work)."""
_BANDS_A_THREAD = 2
"""Bands are handed out as threads become free; a few more than threads even out a picture with its detail in
one half.
"""


def default_threads() -> int:
    """Threads used when none are asked for: what numba would use (``NUMBA_NUM_THREADS``, else the CPUs we may
    run on).
    """
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def camera_points(verts: Floats, extrinsic: Floats, threads: int | None = None) -> Floats:
    """Points in camera space, ``(p − t) @ R`` in float32: subtraction first, products left to right.

    verts float32 (V, 3) world metres, extrinsic float32 (4, 4) camera-to-world → float32 (V, 3).
    """
    out = np.empty_like(verts)
    rotation = np.ascontiguousarray(extrinsic[:3, :3])
    translation = np.ascontiguousarray(extrinsic[:3, 3])
    _shared(
        len(verts), threads, lambda start, stop: camera_kernel(verts, rotation, translation, out, start, stop)
    )
    return out


def clip_points(
    points: Floats, intrinsics: Floats, height: int, width: int, threads: int | None = None
) -> Floats:
    """Clip coordinates ``(x_c, y_c, w_c)`` of camera points, float32 (V, 3); ``z_c = w_c − 2·NEAR`` is
    implied.

    ``x_c = 2·q_x/W − z`` and ``y_c = 2·q_y/H − z`` with ``q = K·P``; the third row of K does not enter.
    """
    out = np.empty_like(points)
    tall, wide = np.float32(height), np.float32(width)
    _shared(
        len(points),
        threads,
        lambda start, stop: clip_kernel(points, intrinsics, tall, wide, out, start, stop),
    )
    return out


@dataclass(frozen=True)
class _Tile:
    """A rectangle of the image with its own clip space: offset, size of the clip space, size inside the
    image.
    """

    left: int
    top: int
    width: int
    height: int
    columns: int
    rows: int


def tiles(height: int, width: int) -> list[_Tile]:
    """The tiles of an image, row by row; a single one up to ``LARGEST_TILE`` a side."""
    tall, wide = _tile_side(height), _tile_side(width)
    return [
        _Tile(left, top, wide, tall, min(wide, width - left), min(tall, height - top))
        for top in range(0, height, tall)
        for left in range(0, width, wide)
    ]


def _tile_side(side: int) -> int:
    count = -(-_eights(side) // LARGEST_TILE)
    return side if count == 1 else _eights(-(-side // count))


def _eights(number: int) -> int:
    return (number + 7) // 8 * 8


def draw(clip: Floats, faces: Ints, height: int, width: int, threads: int | None = None) -> Ints:
    """Face index seen at each pixel, int32 (H, W), ``MISS`` where none.

    clip float32 (V, 3) as from :func:`clip_points`; faces int32 (T, 3) with every index in [0, V).
    """
    owner = np.empty((height, width), np.int32)
    order = np.empty((height, width), np.float64)
    for tile in tiles(height, width):
        rows, columns = slice(tile.top, tile.top + tile.rows), slice(tile.left, tile.left + tile.columns)
        _draw_tile(clip, faces, (height, width), tile, order[rows, columns], owner[rows, columns], threads)
    return owner


def _draw_tile(
    clip: Floats,
    faces: Ints,
    size: tuple[int, int],
    tile: _Tile,
    order: NDArray[np.float64],
    owner: Ints,
    threads: int | None,
) -> None:
    height, width = size
    space = np.array(
        [
            width / tile.width,
            (width - tile.width - 2 * tile.left) / tile.width,
            height / tile.height,
            (height - tile.height - 2 * tile.top) / tile.height,
            8 * tile.width,
            8 * tile.height,
        ],
        np.float32,
    )
    grid = np.array([8 * tile.width - 8, 8 * tile.height - 8, tile.columns - 1, tile.rows - 1], np.int64)
    snapped = np.empty((len(clip), 2), np.int32)
    _shared(len(clip), threads, lambda start, stop: snap_kernel(clip, space, snapped, start, stop))
    kept = np.empty((len(faces), 2), np.int32)
    chunks = np.array(
        _shared(
            len(faces),
            threads,
            lambda start, stop: (start, keep_kernel(snapped, faces, grid, kept, start, stop)),
        ),
        np.int64,
    )
    _shared(
        tile.rows,
        threads,
        lambda top, bottom: band_kernel(
            clip, snapped, faces, kept, chunks, space, grid, top, bottom, order, owner
        ),
        weight=tile.columns + int(chunks[:, 1].sum()) // tile.rows,
        parts_a_thread=_BANDS_A_THREAD,
    )


def interpolate(
    clip: Floats, faces: Ints, owner: Ints, *, barycentrics: bool, threads: int | None = None
) -> tuple[Floats, Floats]:
    """Camera z (H, W) float32, ``+inf`` on a miss, and barycentrics (2, H, W) (zero on a miss; (2, 0, 0) if
    unwanted).

    Per pixel from the unsnapped, unclipped corners of the face that ``owner`` names; perspective-correct.
    """
    height, width = owner.shape
    depth = np.empty((height, width), np.float32)
    bary = np.empty((2, height, width) if barycentrics else (2, 0, 0), np.float32)
    one = np.float32(1.0)
    two = np.float32(2.0)
    grid = np.array(
        [
            two / np.float32(width),
            one / np.float32(width) - one,
            two / np.float32(height),
            one / np.float32(height) - one,
        ],
        np.float32,
    )
    _shared(
        height,
        threads,
        lambda start, stop: interpolate_kernel(clip, faces, owner, grid, depth, bary, start, stop),
        weight=width,
        parts_a_thread=_BANDS_A_THREAD,
    )
    return depth, bary


def _shared(
    count: int,
    threads: int | None,
    work: Callable[[int, int], Any],
    *,
    weight: int = 1,
    parts_a_thread: int = 1,
) -> list[Any]:
    """``work(start, stop)`` over [0, count) in contiguous parts, results in order; small work stays in this
    thread.
    """
    wanted = default_threads() if threads is None else max(1, threads)
    useful = min(wanted, max(1, count * weight // _SMALL), max(1, count))
    parts = 1 if useful == 1 else min(count, useful * parts_a_thread)
    edges = [count * k // parts for k in range(parts + 1)]
    pairs = list(pairwise(edges))
    if parts == 1:
        return [work(*pair) for pair in pairs]
    return list(_pool(useful).map(lambda pair: work(*pair), pairs))


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="raster")


# A forked child has the pools' objects but not their threads: it must start its own.
os.register_at_fork(after_in_child=_pool.cache_clear)
