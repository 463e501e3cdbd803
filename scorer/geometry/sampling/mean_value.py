"""Mean value coordinates of points about a triangle mesh (Ju, Schaefer and Warren 2005), with the reference's
guards: a triangle that has the point in its plane adds nothing.

With the chord ℓ between two unit directions and t = ℓ/2, the angle between them is θ = 2 asin t and
sin θ = 2 t √(1 − t²); sin η and sin(η − θ) of the half perimeter η follow from the half angles by addition
theorems, so that the arcsines, one an edge, are the only transcendental functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]

SMALLEST = 1e-9
_ASIN = (
    1.0,
    0.16666666666666782,
    0.07499999999970099,
    0.04464285717385472,
    0.030381942773507455,
    0.022372212710027286,
    0.017351657219203988,
    0.013980248993542669,
    0.011403724313662877,
    0.01075290151721428,
    0.003810211091847595,
    0.02145523553323242,
    -0.020644115191606586,
    0.032408508816300224,
)
"""asin(√z) / √z on [0, 1/4] as a polynomial in z through 14 Chebyshev points; relative error 2e-16."""


@dataclass(frozen=True, eq=False)
class Cage:
    """A mesh about which coordinates are wanted.

    corners : float64 (V, 3). faces : int32 (T, 3), every vertex used. edges : int32 (E, 2), each once.
    opposite : int32 (T, 3), the edge opposite each corner of a face.
    """

    corners: Doubles
    faces: Ints
    edges: Ints
    opposite: Ints

    @classmethod
    def of(cls, corners: Doubles, faces: Ints) -> Cage:
        ends = np.sort(faces[:, [1, 2, 2, 0, 0, 1]].reshape(-1, 2).astype(np.int64), axis=1)
        key, opposite = np.unique(ends[:, 0] * len(corners) + ends[:, 1], return_inverse=True)
        edges = np.column_stack([key // len(corners), key % len(corners)]).astype(np.int32)
        return cls(corners, faces, edges, opposite.reshape(-1, 3).astype(np.int32))


def mean_value_weights(cage: Cage, points: Doubles) -> Floats:
    """Weights float32 (S, V) of ``points`` float64 (S, 3); each row sums to 1.

    A row whose shares sum to less than 1e-9, or that is not finite, is 1 at the nearest vertex.
    """
    return _weights(cage.corners, cage.faces, cage.edges, cage.opposite, points)


@njit(cache=True, nogil=True, inline="always")
def _asin(x: float) -> float:
    """arcsin of x in [0, 1] within two units in the last place, without branches, so that loops of it
    vectorise. Above one half: arcsin x = π/2 − 2 arcsin √((1 − x)/2).
    """
    low = x < 0.5
    z = x * x if low else 0.5 * (1.0 - x)
    value = _ASIN[-1]
    for k in range(len(_ASIN) - 2, -1, -1):
        value = value * z + _ASIN[k]
    value *= math.sqrt(z)
    return value if low else 0.5 * math.pi - 2.0 * value


@njit(cache=True, nogil=True)
def _weights(
    corners: np.ndarray, faces: np.ndarray, edges: np.ndarray, opposite: np.ndarray, points: np.ndarray
) -> np.ndarray:
    size = len(corners)
    weights = np.empty((len(points), size), np.float32)
    ux, uy, uz, far = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    half_sine, half_cosine, angle = np.empty(len(edges)), np.empty(len(edges)), np.empty(len(edges))
    share = np.empty((3, len(faces)))
    total = np.empty(size)
    for row in range(len(points)):
        x, y, z = points[row, 0], points[row, 1], points[row, 2]
        for v in range(size):
            dx, dy, dz = corners[v, 0] - x, corners[v, 1] - y, corners[v, 2] - z
            d = math.sqrt(dx * dx + dy * dy + dz * dz)
            clamped = max(d, SMALLEST)
            far[v] = d
            ux[v], uy[v], uz[v] = dx / clamped, dy / clamped, dz / clamped
        for e in range(len(edges)):
            a, b = edges[e, 0], edges[e, 1]
            dx, dy, dz = ux[a] - ux[b], uy[a] - uy[b], uz[a] - uz[b]
            t = min(0.5 * math.sqrt(dx * dx + dy * dy + dz * dz), 1.0)
            half_sine[e] = t
            half_cosine[e] = math.sqrt(1.0 - t * t)
            angle[e] = 2.0 * _asin(t)
        _shares(faces, opposite, ux, uy, uz, far, half_sine, half_cosine, angle, share)
        total[:] = 0.0
        for f in range(len(faces)):
            for k in range(3):
                if math.isfinite(share[k, f]):
                    total[faces[f, k]] += share[k, f]
        whole = 0.0
        for v in range(size):
            whole += total[v]
        if math.isfinite(whole) and abs(whole) >= SMALLEST:
            for v in range(size):
                weights[row, v] = total[v] / whole
        else:
            nearest = 0
            for v in range(size):
                weights[row, v] = 0.0
                if far[v] < far[nearest]:
                    nearest = v
            weights[row, nearest] = 1.0
    return weights


@njit(cache=True, nogil=True, error_model="numpy")
def _shares(
    faces: np.ndarray,
    opposite: np.ndarray,
    ux: np.ndarray,
    uy: np.ndarray,
    uz: np.ndarray,
    far: np.ndarray,
    half_sine: np.ndarray,
    half_cosine: np.ndarray,
    angle: np.ndarray,
    share: np.ndarray,
) -> None:
    """Share of each corner of each face, (3, T); 0 or not finite for a face that adds nothing."""
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        p, q, r = opposite[f, 0], opposite[f, 1], opposite[f, 2]
        sp, sq, sr = half_sine[p], half_sine[q], half_sine[r]
        cp, cq, cr = half_cosine[p], half_cosine[q], half_cosine[r]
        one, two, three, none = sp * cq * cr, cp * sq * cr, cp * cq * sr, sp * sq * sr
        around = one + two + three - none
        sine_p, sine_q, sine_r = 2.0 * sp * cp, 2.0 * sq * cq, 2.0 * sr * cr
        c0 = 2.0 * around * (two + three - one + none) / (sine_q * sine_r) - 1.0
        c1 = 2.0 * around * (one + three - two + none) / (sine_r * sine_p) - 1.0
        c2 = 2.0 * around * (one + two - three + none) / (sine_p * sine_q) - 1.0
        turn = (
            ux[i] * (uy[j] * uz[k] - uz[j] * uy[k])
            + uy[i] * (uz[j] * ux[k] - ux[j] * uz[k])
            + uz[i] * (ux[j] * uy[k] - uy[j] * ux[k])
        )
        sign = 1.0 if turn > 0.0 else (-1.0 if turn < 0.0 else 0.0)
        # a negative radicand counts as zero; not a number stays one and drops out of the sum
        s0 = sign * math.sqrt(0.0 if c0 * c0 > 1.0 else 1.0 - c0 * c0)
        s1 = sign * math.sqrt(0.0 if c1 * c1 > 1.0 else 1.0 - c1 * c1)
        s2 = sign * math.sqrt(0.0 if c2 * c2 > 1.0 else 1.0 - c2 * c2)
        flat = abs(s0) < SMALLEST or abs(s1) < SMALLEST or abs(s2) < SMALLEST
        tp, tq, tr = angle[p], angle[q], angle[r]
        w0 = (tp - c1 * tr - c2 * tq) / (far[i] * sine_q * s2)
        w1 = (tq - c2 * tp - c0 * tr) / (far[j] * sine_r * s0)
        w2 = (tr - c0 * tq - c1 * tp) / (far[k] * sine_p * s1)
        share[0, f] = 0.0 if flat else w0
        share[1, f] = 0.0 if flat else w1
        share[2, f] = 0.0 if flat else w2
