"""Which cells of a grid lie inside a shell: |winding number| of the cell's middle above one half.

The winding number w(q) = Σ Ω / 4π over the triangles, Ω the signed solid angle under which q sees one, is
not summed over every triangle. A shell plus a cap (triangles from an apex to the edges of its rim) is
closed, so the winding number of the two together is a whole number: the signed count of crossings of a ray,
found for all cells of a column at once. The cap's own solid angles, few, are then taken off.

Where that could differ from the float32 sum over every triangle that protocol 4dcb-1 prescribes (a point next
to a triangle, a number next to one half, coordinates that overflow float32) the sum itself is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scorer.geometry.sampling.solid_angles import INSIDE, NEAR_FACE, inside_by_sum, winding_by_turns
from scorer.geometry.sampling.threads import in_blocks
from scorer.geometry.sampling.voxels import Box, centres

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

_NEAR_HALF = 1e-5
"""Distance of |w| from one half within which float32 may decide."""
_LARGEST = 1e9
"""Coordinates above this make products of three lengths too large for comfort in float32."""
_SUMS = 1 << 24
"""Solid angles that a thread sums at a time."""
_HIT_COST = 8.0
"""Cost of a triangle's crossing of a column, in solid angles; decides which way is shorter."""


def inside_cells(
    corners: Doubles, faces: Ints, rim: Ints, cell: Longs, box: Box, number: Longs, h: float
) -> Mask:
    """bool (Q,), whether the middle of each cell is inside.

    corners : float64 (V, 3), float32 values. faces : int32 (T, 3). rim : int32 (R, 2), the edges that keep
    ``faces`` from being closed (``Shells.rims``). cell : int64 (Q, 3), the cells of ``box`` with the numbers
    ``number`` int64 (Q,), ascending.
    """
    middle = centres(cell, h)
    if not np.abs(corners).max() < _LARGEST:
        return inside_by_sum(corners.astype(np.float32), faces, middle.astype(np.float32))
    winding, doubtful = _winding(corners, faces, rim, box, number, middle, h)
    inside: Mask = np.abs(winding) > INSIDE
    doubtful |= np.abs(np.abs(winding) - INSIDE) < _NEAR_HALF
    _mark_touching(corners, faces, box.base, box.counts, number, middle, h, doubtful)
    rows = np.flatnonzero(doubtful)
    if len(rows):
        near, rounded = middle[rows].astype(np.float32), corners.astype(np.float32)

        def work(start: int, stop: int) -> None:
            inside[rows[start:stop]] = inside_by_sum(rounded, faces, near[start:stop])

        in_blocks(len(rows), max(1, _SUMS // len(faces)), work)
    return inside


def _winding(
    corners: Doubles, faces: Ints, rim: Ints, box: Box, number: Longs, middle: Doubles, h: float
) -> tuple[Doubles, Mask]:
    """Winding number float64 (Q,) and whether it needs another look."""
    if 2 * len(rim) >= len(faces) or _hits(corners, faces, rim, h) * _HIT_COST > len(middle) * len(faces):
        return winding_by_turns(corners, faces, middle)
    if not len(rim):
        count, doubtful = _crossings(corners, faces, box.base, box.counts, number, middle, h)
        return count.astype(np.float64), doubtful
    ends = corners[rim.reshape(-1)]
    with_apex = np.concatenate([corners, ends.mean(axis=0)[None]])
    apex = np.full(len(rim), len(corners), np.int32)
    cap = np.column_stack([apex, rim[:, 1], rim[:, 0]])
    closed = np.concatenate([faces, cap])
    count, doubtful = _crossings(with_apex, closed, box.base, box.counts, number, middle, h)
    seen, facing = winding_by_turns(with_apex, cap, middle)
    return count - seen, doubtful | facing


def _hits(corners: Doubles, faces: Ints, rim: Ints, h: float) -> float:
    """About how many columns the triangles of a shell and its cap cover, and rows they pass."""
    spans = np.ptp(corners[faces][:, :, :2], axis=1) / h + 1.0
    wide, deep = np.ptp(corners[:, :2], axis=0) / h + 1.0
    capped = (wide * deep + len(rim) * (wide + deep)) if len(rim) else 0.0
    return float(np.prod(spans, axis=1).sum() + capped)


@njit(cache=True, nogil=True)
def _crossing(vertices: np.ndarray, a: int, b: int, y: float) -> Any:
    """x at which the edge between two vertices passes ``y``: the same to the bit from both of its sides."""
    swap = vertices[a, 1] > vertices[b, 1]
    if vertices[a, 1] == vertices[b, 1]:
        swap = vertices[a, 0] > vertices[b, 0]
    if swap:
        a, b = b, a
    share = (y - vertices[a, 1]) / (vertices[b, 1] - vertices[a, 1])
    return vertices[a, 0] + (vertices[b, 0] - vertices[a, 0]) * share


@njit(cache=True, nogil=True)
def _first(number: np.ndarray, value: int, full: bool) -> Any:
    """Row of the first number that is not below ``value``."""
    if full:
        return min(max(value, 0), len(number))
    return np.searchsorted(number, value)


@njit(cache=True, nogil=True)
def _crossings(
    vertices: np.ndarray,
    faces: np.ndarray,
    base: np.ndarray,
    counts: np.ndarray,
    number: np.ndarray,
    middle: np.ndarray,
    h: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Signed crossings int64 (Q,) of a ray from each middle along +z with a closed mesh, and bool (Q,),
    whether the point is too near a triangle to say.

    Which columns a triangle covers is decided by the edges that pass a row of columns, each compared with
    the column in the same way by every triangle that has it: crossings of a closed mesh add up to nothing,
    however coordinates are rounded.
    """
    size = len(number)
    full = size == counts[0] * counts[1] * counts[2]
    change = np.zeros(size + 1, np.int64)
    doubtful = np.zeros(size, np.bool_)
    largest = np.abs(vertices).max()
    for f in range(len(faces)):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay, az = vertices[a, 0], vertices[a, 1], vertices[a, 2]
        ux, uy, uz = vertices[b, 0] - ax, vertices[b, 1] - ay, vertices[b, 2] - az
        vx, vy, vz = vertices[c, 0] - ax, vertices[c, 1] - ay, vertices[c, 2] - az
        nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        z_low = min(az, vertices[b, 2], vertices[c, 2])
        z_high = max(az, vertices[b, 2], vertices[c, 2])
        y_low = min(ay, vertices[b, 1], vertices[c, 1])
        y_high = max(ay, vertices[b, 1], vertices[c, 1])
        reach = max(abs(ux), abs(uy), abs(uz), abs(vx), abs(vy), abs(vz))
        slack = 1e-14 * reach * reach
        first_row = max(0, math.floor(y_low / h) - base[1] - 1)
        last_row = min(counts[1] - 1, math.floor(y_high / h) - base[1] + 1)
        for row in range(first_row, last_row + 1):
            y = (base[1] + row + 0.5) * h
            if not (y_low < y <= y_high):
                continue
            up = down = 0.0
            for k in range(3):
                start, stop = faces[f, k], faces[f, (k + 1) % 3]
                above = vertices[stop, 1] >= y
                if above != (vertices[start, 1] >= y):
                    x = _crossing(vertices, start, stop, y)
                    if above:
                        up = x
                    else:
                        down = x
            sign = 1 if down < up else -1
            left, right = min(up, down), max(up, down)
            column = max(0, math.floor(left / h) - base[0] - 1)
            last = min(counts[0] - 1, math.floor(right / h) - base[0] + 1)
            while column <= last:
                x = (base[0] + column + 0.5) * h
                if left <= x < right:
                    line = (column * counts[1] + row) * counts[2]
                    begin, end = _first(number, line, full), _first(number, line + counts[2], full)
                    if begin < end:
                        dx, dy = x - ax, y - ay
                        if nz != 0.0:
                            z = az - (nx * dx + ny * dy) / nz
                            z = min(max(z, z_low), z_high)
                            blur = slack * (abs(dx) + abs(dy) + abs(z - az)) / abs(nz)
                        else:
                            z, blur = z_low, z_high - z_low
                        blur += NEAR_FACE * largest
                        q = begin
                        if end - begin > 16:
                            guess = math.floor((z - blur) / h) - base[2] - 1
                            q = max(begin, min(end, _first(number, line + max(0, guess), full)))
                        while q < end and middle[q, 2] < z + blur:
                            if middle[q, 2] > z - blur:
                                doubtful[q] = True
                            q += 1
                        while q > begin and middle[q - 1, 2] >= z:
                            q -= 1
                        change[begin] += sign
                        change[q] -= sign
                column += 1
    count = np.empty(size, np.int64)
    running = 0
    for q in range(size):
        running += change[q]
        count[q] = running
    return count, doubtful


@njit(cache=True, nogil=True)
def _mark_touching(
    vertices: np.ndarray,
    faces: np.ndarray,
    base: np.ndarray,
    counts: np.ndarray,
    number: np.ndarray,
    middle: np.ndarray,
    h: float,
    touching: np.ndarray,
) -> None:
    """Set ``touching`` bool (Q,) where a middle lies on a triangle, as far as float32 can tell.

    Each triangle is looked at along the axis to which it is nearest square: columns of that direction meet
    its plane at one cell each, which is rarely near enough to be looked up.
    """
    full = len(number) == counts[0] * counts[1] * counts[2]
    slack = NEAR_FACE * np.abs(vertices).max()
    normal, cell = np.empty(3), np.empty(3, np.int64)
    for f in range(len(faces)):
        a, b, c = vertices[faces[f, 0]], vertices[faces[f, 1]], vertices[faces[f, 2]]
        u, v = b - a, c - a
        normal[0] = u[1] * v[2] - u[2] * v[1]
        normal[1] = u[2] * v[0] - u[0] * v[2]
        normal[2] = u[0] * v[1] - u[1] * v[0]
        k = np.argmax(np.abs(normal))
        if normal[k] == 0.0:
            continue
        i, j = (k + 1) % 3, (k + 2) % 3
        low, high = np.minimum(np.minimum(a, b), c) - slack, np.maximum(np.maximum(a, b), c) + slack
        p0, p1 = max(0, _lowest(low[i], h) - base[i]), min(counts[i] - 1, _lowest(high[i], h) - base[i])
        q0, q1 = max(0, _lowest(low[j], h) - base[j]), min(counts[j] - 1, _lowest(high[j], h) - base[j])
        if (p1 - p0 + 1.0) * (q1 - q0 + 1.0) > len(number):
            for row in range(len(number)):
                m = middle[row]
                z = a[k] - (normal[i] * (m[i] - a[i]) + normal[j] * (m[j] - a[j])) / normal[k]
                touching[row] |= abs(m[k] - z) <= 2.0 * slack and _between(low, m, high)
            continue
        for p in range(p0, p1 + 1):
            x = (base[i] + p + 0.5) * h
            for q in range(q0, q1 + 1):
                y = (base[j] + q + 0.5) * h
                z = a[k] - (normal[i] * (x - a[i]) + normal[j] * (y - a[j])) / normal[k]
                r = _lowest(z, h) - base[k]
                if abs((base[k] + r + 0.5) * h - z) > 2.0 * slack or not 0 <= r < counts[k]:
                    continue
                cell[i], cell[j], cell[k] = p, q, r
                value = (cell[0] * counts[1] + cell[1]) * counts[2] + cell[2]
                row = _first(number, value, full)
                if row < len(number) and number[row] == value:
                    touching[row] |= _between(low, middle[row], high)


@njit(cache=True, nogil=True)
def _between(low: np.ndarray, point: np.ndarray, high: np.ndarray) -> Any:
    x, y, z = point[0], point[1], point[2]
    return low[0] <= x <= high[0] and low[1] <= y <= high[1] and low[2] <= z <= high[2]


@njit(cache=True, nogil=True)
def _lowest(x: float, h: float) -> Any:
    return math.floor(x / h)
