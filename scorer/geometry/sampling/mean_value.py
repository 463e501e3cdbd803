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
_LANES = 16
"""Points that are worked on at a time, next to each other in memory."""
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
    value = _ASIN[13]
    for k in (12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0):
        value = value * z + _ASIN[k]
    value *= math.sqrt(z)
    return value if low else 0.5 * math.pi - 2.0 * value


@njit(cache=True, nogil=True, error_model="numpy")
def _weights(
    corners: np.ndarray, faces: np.ndarray, edges: np.ndarray, opposite: np.ndarray, points: np.ndarray
) -> np.ndarray:
    size = len(corners)
    weights = np.empty((len(points), size), np.float32)
    unit, far = np.empty((3, size, _LANES)), np.empty((size, _LANES))
    half_sine, half_cosine = np.empty((len(edges), _LANES)), np.empty((len(edges), _LANES))
    angle = np.empty((len(edges), _LANES))
    total = np.empty((size, _LANES))
    place = np.empty((3, _LANES))
    for first in range(0, len(points), _LANES):
        for lane in range(_LANES):
            row = min(first + lane, len(points) - 1)
            for axis in range(3):
                place[axis, lane] = points[row, axis]
        _directions(corners, place, unit, far)
        _sides(edges, unit, half_sine, half_cosine, angle)
        total[:] = 0.0
        _add_shares(faces, opposite, unit, far, half_sine, half_cosine, angle, total)
        _normalise(total, far, weights[first : first + _LANES])
    return weights


@njit(cache=True, nogil=True, error_model="numpy")
def _normalise(total: np.ndarray, far: np.ndarray, weights: np.ndarray) -> None:
    """Fill some rows of weights (at most as many as lanes, V) from shares (V, lanes)."""
    whole = np.zeros(_LANES)
    for v in range(len(total)):
        for lane in range(_LANES):
            whole[lane] += total[v, lane]
    for v in range(len(total)):
        for lane in range(len(weights)):
            weights[lane, v] = total[v, lane] / whole[lane]
    for lane in range(len(weights)):
        if not (math.isfinite(whole[lane]) and abs(whole[lane]) >= SMALLEST):
            weights[lane] = 0.0
            weights[lane, np.argmin(far[:, lane])] = 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _directions(corners: np.ndarray, place: np.ndarray, unit: np.ndarray, far: np.ndarray) -> None:
    for v in range(len(corners)):
        x, y, z = corners[v, 0], corners[v, 1], corners[v, 2]
        for lane in range(_LANES):
            dx, dy, dz = x - place[0, lane], y - place[1, lane], z - place[2, lane]
            d = math.sqrt(dx * dx + dy * dy + dz * dz)
            clamped = d if d > SMALLEST else SMALLEST
            far[v, lane] = d
            unit[0, v, lane] = dx / clamped
            unit[1, v, lane] = dy / clamped
            unit[2, v, lane] = dz / clamped


@njit(cache=True, nogil=True, error_model="numpy")
def _sides(
    edges: np.ndarray, unit: np.ndarray, half_sine: np.ndarray, half_cosine: np.ndarray, angle: np.ndarray
) -> None:
    """Sine and cosine of half the angle of each edge, and the angle."""
    w = np.empty((6, _LANES))
    for e in range(len(edges)):
        a, b = edges[e, 0], edges[e, 1]
        for lane in range(_LANES):
            w[0, lane] = unit[0, a, lane] - unit[0, b, lane]
        for lane in range(_LANES):
            w[1, lane] = unit[1, a, lane] - unit[1, b, lane]
        for lane in range(_LANES):
            w[2, lane] = unit[2, a, lane] - unit[2, b, lane]
        for lane in range(_LANES):
            dx, dy, dz = w[0, lane], w[1, lane], w[2, lane]
            t = 0.5 * math.sqrt(dx * dx + dy * dy + dz * dz)
            t = t if t < 1.0 else 1.0
            w[3, lane] = t
            w[4, lane] = math.sqrt(1.0 - t * t)
            w[5, lane] = 2.0 * _asin(t)
        for lane in range(_LANES):
            half_sine[e, lane] = w[3, lane]
            half_cosine[e, lane] = w[4, lane]
            angle[e, lane] = w[5, lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_shares(
    faces: np.ndarray,
    opposite: np.ndarray,
    unit: np.ndarray,
    far: np.ndarray,
    half_sine: np.ndarray,
    half_cosine: np.ndarray,
    angle: np.ndarray,
    total: np.ndarray,
) -> None:
    """Add the shares of the corners of each face to ``total`` (V, lanes)."""
    w = np.empty((24, _LANES))
    for f in range(len(faces)):
        for corner in range(3):
            v, e = faces[f, corner], opposite[f, corner]
            for lane in range(_LANES):
                w[corner, lane] = unit[0, v, lane]
                w[3 + corner, lane] = unit[1, v, lane]
                w[6 + corner, lane] = unit[2, v, lane]
                w[9 + corner, lane] = far[v, lane]
                w[12 + corner, lane] = half_sine[e, lane]
                w[15 + corner, lane] = half_cosine[e, lane]
                w[18 + corner, lane] = angle[e, lane]
        for lane in range(_LANES):
            sp, sq, sr = w[12, lane], w[13, lane], w[14, lane]
            cp, cq, cr = w[15, lane], w[16, lane], w[17, lane]
            one, two, three, none = sp * cq * cr, cp * sq * cr, cp * cq * sr, sp * sq * sr
            around = 2.0 * (one + two + three - none)
            sine_p, sine_q, sine_r = 2.0 * sp * cp, 2.0 * sq * cq, 2.0 * sr * cr
            c0 = around * (two + three - one + none) / (sine_q * sine_r) - 1.0
            c1 = around * (one + three - two + none) / (sine_r * sine_p) - 1.0
            c2 = around * (one + two - three + none) / (sine_p * sine_q) - 1.0
            turn = (
                w[0, lane] * (w[4, lane] * w[8, lane] - w[7, lane] * w[5, lane])
                + w[3, lane] * (w[7, lane] * w[2, lane] - w[1, lane] * w[8, lane])
                + w[6, lane] * (w[1, lane] * w[5, lane] - w[4, lane] * w[2, lane])
            )
            # Where c² passes 1 the sine is 0; a cosine that is not a number stays one and adds nothing.
            r0, r1, r2 = 1.0 - c0 * c0, 1.0 - c1 * c1, 1.0 - c2 * c2
            s0 = math.sqrt(0.0 if r0 < 0.0 else r0)
            s1 = math.sqrt(0.0 if r1 < 0.0 else r1)
            s2 = math.sqrt(0.0 if r2 < 0.0 else r2)
            flat = (s0 < SMALLEST) | (s1 < SMALLEST) | (s2 < SMALLEST) | (turn == 0.0)
            sign = 0.0 if flat else (1.0 if turn > 0.0 else -1.0)
            tp, tq, tr = w[18, lane], w[19, lane], w[20, lane]
            w0 = sign * (tp - c1 * tr - c2 * tq) / (w[9, lane] * sine_q * s2)
            w1 = sign * (tq - c2 * tp - c0 * tr) / (w[10, lane] * sine_r * s0)
            w2 = sign * (tr - c0 * tq - c1 * tp) / (w[11, lane] * sine_p * s1)
            w[21, lane] = w0 if abs(w0) < np.inf else 0.0
            w[22, lane] = w1 if abs(w1) < np.inf else 0.0
            w[23, lane] = w2 if abs(w2) < np.inf else 0.0
        for corner in range(3):
            v = faces[f, corner]
            for lane in range(_LANES):
                total[v, lane] += w[21 + corner, lane]
