"""Winding numbers summed over every triangle: exactly in float64, and in float32 as the protocol has it."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

INSIDE = 0.5
NEAR_FACE = 5e-7
"""Distance from a triangle, over the largest coordinate, within which float32 may decide."""
_FACING = 1e-6
"""|tan Ω/2| of a triangle seen under almost a hemisphere below which a point counts as next to it."""


@njit(cache=True, nogil=True)
def winding_by_turns(
    vertices: np.ndarray, faces: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Winding number float64 (Q,) of each point summed over every face, and bool (Q,), whether it lies next
    to one. Half angles are added by multiplying complex numbers and counting the turns of the product.
    """
    largest = np.abs(vertices).max()
    # Few of the vertices may be used: a rim's, of a large sheet's. Each point looks at those only.
    used = np.zeros(len(vertices), np.bool_)
    for f in range(len(faces)):
        for k in range(3):
            used[faces[f, k]] = True
    number = np.cumsum(used) - 1
    kept = vertices[used]
    local = np.empty(faces.shape, np.int64)
    for f in range(len(faces)):
        for k in range(3):
            local[f, k] = number[faces[f, k]]
    return _turns(kept, local, points, NEAR_FACE * largest)


@njit(cache=True, nogil=True)
def _turns(
    vertices: np.ndarray, faces: np.ndarray, points: np.ndarray, beside: float
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`winding_by_turns`, of vertices that are all used; points within ``beside`` of one are next
    to a face.
    """
    winding = np.empty(len(points))
    near = np.zeros(len(points), np.bool_)
    unit = np.zeros((len(vertices), 3))
    for q in range(len(points)):
        for v in range(len(vertices)):
            x = vertices[v, 0] - points[q, 0]
            y = vertices[v, 1] - points[q, 1]
            z = vertices[v, 2] - points[q, 2]
            length = math.sqrt(x * x + y * y + z * z)
            if length <= beside:
                near[q] = True
            scale = 1.0 / length if length > 0.0 else 0.0
            unit[v, 0], unit[v, 1], unit[v, 2] = x * scale, y * scale, z * scale
        real, imaginary, turns = 1.0, 0.0, 0
        for f in range(len(faces)):
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            ax, ay, az = unit[a, 0], unit[a, 1], unit[a, 2]
            ux, uy, uz = unit[b, 0] - ax, unit[b, 1] - ay, unit[b, 2] - az
            vx, vy, vz = unit[c, 0] - ax, unit[c, 1] - ay, unit[c, 2] - az
            sine = ax * (uy * vz - uz * vy) + ay * (uz * vx - ux * vz) + az * (ux * vy - uy * vx)
            wx, wy, wz = vx - ux, vy - uy, vz - uz
            squares = ux * ux + uy * uy + uz * uz + vx * vx + vy * vy + vz * vz + wx * wx + wy * wy + wz * wz
            cosine = 4.0 - 0.5 * squares  # 1 + a·b + b·c + c·a of unit vectors
            if cosine < 1e-4 and abs(sine) <= _FACING * max(-cosine, 1e-3):
                near[q] = True
            if sine == 0.0:
                continue
            next_real = real * cosine - imaginary * sine
            next_imaginary = real * sine + imaginary * cosine
            if sine > 0.0:
                if imaginary >= 0.0 and next_imaginary < 0.0:
                    turns += 1
            elif imaginary < 0.0 and next_imaginary >= 0.0:
                turns -= 1
            real, imaginary = next_real, next_imaginary
            if f % 8 == 0:
                size = abs(real) + abs(imaginary)
                if size > 0.0:
                    real /= size
                    imaginary /= size
        winding[q] = (math.atan2(imaginary, real) + 2.0 * math.pi * turns) / (2.0 * math.pi)
    return winding, near


@njit(cache=True, nogil=True)
def inside_by_sum(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """bool (Q,): every triangle's angle in float32, summed."""
    inside = np.empty(len(points), np.bool_)
    whole = np.float32(2.0 * math.pi)
    for q in range(len(points)):
        x, y, z = points[q, 0], points[q, 1], points[q, 2]
        total = 0.0
        for f in range(len(faces)):
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            ax, ay, az = vertices[a, 0] - x, vertices[a, 1] - y, vertices[a, 2] - z
            bx, by, bz = vertices[b, 0] - x, vertices[b, 1] - y, vertices[b, 2] - z
            cx, cy, cz = vertices[c, 0] - x, vertices[c, 1] - y, vertices[c, 2] - z
            i, j, k = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
            la = np.sqrt(ax * ax + ay * ay + az * az)
            lb = np.sqrt(bx * bx + by * by + bz * bz)
            lc = np.sqrt(cx * cx + cy * cy + cz * cz)
            sine = np.float32(0.0) + ax * i + ay * j + az * k  # never −0, whose angle would be −π
            ab, bc = ax * bx + ay * by + az * bz, bx * cx + by * cy + bz * cz
            cosine = la * lb * lc + ab * lc + bc * la + (cx * ax + cy * ay + cz * az) * lb
            if sine == 0.0 and cosine > 0.0:
                continue  # an angle of 0, as all are about a point in the plane of a flat sheet
            total += np.float64(np.arctan2(sine, cosine))
        share = np.float32(total) / whole
        inside[q] = np.isfinite(share) and abs(share) > np.float32(INSIDE)
    return inside
