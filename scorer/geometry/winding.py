"""Winding numbers of triangle soups, summed over every triangle: no approximation, no tree.

The winding number of point q is Σ Ω / 4π over the triangles, Ω the signed solid angle under which q sees one:
tan(Ω/2) = a·(b × c) / (|a||b||c| + (a·b)|c| + (b·c)|a| + (c·a)|b|) with a, b, c the corners relative to q
(Van Oosterom and Strackee, 1983). Half angles are added by multiplying complex numbers and counting the
turns of the product, which spares one arctangent a triangle.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_RESCALE = 8
"""Factors between two rescalings of the running product."""


@njit(cache=True, nogil=True)
def winding_number(
    vertices: np.ndarray,
    faces: np.ndarray,
    used: np.ndarray,
    x: float,
    y: float,
    z: float,
    scratch: np.ndarray,
) -> float:
    """Winding number of (x, y, z) about ``faces``.

    vertices : float32 (V, 3). faces : int (T, 3). used : int (U,), the vertices that the faces name.
    scratch : float64 (V, 4), overwritten at ``used``.

    A triangle that has the point in its plane, or for a corner, adds nothing (as in libigl's fast winding
    number).
    """
    for vertex in used:
        px = np.float64(vertices[vertex, 0]) - x
        py = np.float64(vertices[vertex, 1]) - y
        pz = np.float64(vertices[vertex, 2]) - z
        length = math.sqrt(px * px + py * py + pz * pz)
        # Unit vectors: the solid angle does not depend on the corners' distances.
        scale = 1.0 / length if length > 0.0 else 0.0
        scratch[vertex, 0] = px * scale
        scratch[vertex, 1] = py * scale
        scratch[vertex, 2] = pz * scale
        scratch[vertex, 3] = scale
    real = 1.0
    imaginary = 0.0
    turns = 0
    for f in range(len(faces)):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        if scratch[a, 3] == 0.0 or scratch[b, 3] == 0.0 or scratch[c, 3] == 0.0:
            continue
        ax, ay, az = scratch[a, 0], scratch[a, 1], scratch[a, 2]
        bx, by, bz = scratch[b, 0], scratch[b, 1], scratch[b, 2]
        cx, cy, cz = scratch[c, 0], scratch[c, 1], scratch[c, 2]
        # Differences of neighbouring corners keep the small triple product of a distant triangle accurate.
        ux, uy, uz = bx - ax, by - ay, bz - az
        vx, vy, vz = cx - ax, cy - ay, cz - az
        sine = ax * (uy * vz - uz * vy) + ay * (uz * vx - ux * vz) + az * (ux * vy - uy * vx)
        if sine == 0.0:
            continue
        cosine = (
            1.0
            + (ax * bx + ay * by + az * bz)
            + (bx * cx + by * cy + bz * cz)
            + (cx * ax + cy * ay + cz * az)
        )
        next_real = real * cosine - imaginary * sine
        next_imaginary = real * sine + imaginary * cosine
        # The half angle lies in (−π, π); the sum leaves that range when the imaginary part changes sign
        # behind zero.
        if sine > 0.0:
            if imaginary >= 0.0 and next_imaginary < 0.0:
                turns += 1
        elif imaginary < 0.0 and next_imaginary >= 0.0:
            turns -= 1
        real, imaginary = next_real, next_imaginary
        if f % _RESCALE == 0:
            size = abs(real) + abs(imaginary)
            if size > 0.0:
                real /= size
                imaginary /= size
    return (math.atan2(imaginary, real) + 2.0 * math.pi * turns) / (2.0 * math.pi)


@njit(cache=True, nogil=True)
def winding_numbers(
    vertices: np.ndarray, faces: np.ndarray, used: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """``winding_number`` of every point (float64 (P, 3)); float64 (P,)."""
    scratch = np.empty((len(vertices), 4))
    numbers = np.empty(len(points))
    for i in range(len(points)):
        numbers[i] = winding_number(vertices, faces, used, points[i, 0], points[i, 1], points[i, 2], scratch)
    return numbers
