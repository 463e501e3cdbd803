"""The rasteriser's rules again, a pixel at a time: float32 scalars, Python integers and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

F = np.float32
NEAR = 1e-3


def clip_space(vertex, k, e, height, width):
    """(x_c, y_c, z_c, w_c) of one world point, every operation rounded to float32."""
    d = [F(vertex[r]) - F(e[r][3]) for r in range(3)]
    p = [d[0] * F(e[0][c]) + d[1] * F(e[1][c]) + d[2] * F(e[2][c]) for c in range(3)]
    q = [p[0] * F(k[r][0]) + p[1] * F(k[r][1]) + p[2] * F(k[r][2]) for r in range(2)]
    return (F(2) * q[0] / F(width) - p[2], F(2) * q[1] / F(height) - p[2], p[2] - F(2 * NEAR), p[2])


def snapped(corner, height, width):
    r = F(1) / corner[3]
    pair = (corner[0] * r * F(8 * width), corner[1] * r * F(8 * height))
    return tuple(round(float(v)) if math.isfinite(v) else None for v in pair)


def cut_axis(polygon, corners, axis, sign):
    """The part of a polygon of (s, t) where w + sign·c ≥ 0."""
    c0, c1, c2 = corners
    base = c0[3] + sign * c0[axis]
    ds = (c1[3] - c0[3]) + sign * (c1[axis] - c0[axis])
    dt = (c2[3] - c0[3]) + sign * (c2[axis] - c0[axis])
    out = []
    values = [base + ds * s + dt * t for s, t in polygon]
    for n, (s, t) in enumerate(polygon):
        (ps, pt), a, b = polygon[n - 1], values[n - 1], values[n]
        if a * b < 0:
            m = a / (a - b)
            out.append((ps * (F(1) - m) + s * m, pt * (F(1) - m) + t * m))
        if b >= 0:
            out.append((s, t))
    return out if len(out) >= 3 else []


def pieces(corners, height, width):
    """Snapped sub-triangles ((X, Y, w), ...) that a triangle draws as."""
    if not all(math.isfinite(v) for corner in corners for v in corner):
        return []
    for axis in range(3):
        for sign in (F(1), F(-1)):
            if all(c[3] < sign * c[axis] for c in corners):
                return []
    if all(c[3] >= abs(c[2]) for c in corners):
        points = [snapped(c, height, width) for c in corners]
        flat = [v for p in points for v in p]
        if all(v is not None and -32768 <= v <= 32767 for v in flat) and max(flat) - min(flat) <= 32767:
            return [[(*p, c[3]) for p, c in zip(points, corners, strict=True)]]
    polygon = [(F(0), F(0)), (F(1), F(0)), (F(0), F(1))]
    for axis in range(3):
        if any(c[3] < abs(c[axis]) for c in corners):
            for sign in (F(1), F(-1)):
                polygon = cut_axis(polygon, corners, axis, sign) if polygon else []
    c0, c1, c2 = corners
    ring = []
    for s, t in polygon:
        corner = [c0[n] + (c1[n] - c0[n]) * s + (c2[n] - c0[n]) * t for n in (0, 1, 2, 3)]
        ring.append((*snapped(corner, height, width), corner[3]))
    return [[ring[0], ring[n], ring[n + 1]] for n in range(1, len(ring) - 1)]


def owns(a, b, p):
    """Whether the centre p lies on the inner side of the edge a → b, ties by the top-left rule."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    e = (a[0] - p[0]) * dy - (a[1] - p[1]) * dx
    return e > 0 if dy > 0 or (dy == 0 and dx <= 0) else e >= 0


def face_map(verts, faces, k, e, height, width):
    """(H, W) int face indices, -1 on a miss; ties of the exact order go to the later face."""
    order = [[None] * width for _ in range(height)]
    owner = np.full((height, width), -1, np.int32)
    with np.errstate(all="ignore"):
        clip = [clip_space(v, k, e, height, width) for v in verts]
        for index, face in enumerate(faces):
            for triangle in pieces([clip[v] for v in face], height, width):
                _fill(triangle, index, order, owner, height, width)
    return owner


def _fill(triangle, index, order, owner, height, width):
    a, b, c = triangle
    area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    if area == 0 or not all(w > 0 for *_, w in triangle):
        return
    if area < 0:
        b, c, area = c, b, -area
    values = [Fraction(1.0 - 2.0 * NEAR / float(v[2])) for v in (a, b, c)]
    for i in range(height):
        for j in range(width):
            p = (16 * j + 8 - 8 * width, 16 * i + 8 - 8 * height)
            if not (owns(a, b, p) and owns(b, c, p) and owns(c, a, p)):
                continue
            share = [
                (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
                for q, r in ((b, c), (c, a), (a, b))
            ]
            value = sum(Fraction(s, area) * v for s, v in zip(share, values, strict=True))
            if order[i][j] is None or value <= order[i][j]:
                order[i][j] = value
                owner[i, j] = index


def barycentrics(corners, i, j, height, width):
    """(b0, b1, b2) of pixel (i, j) in a triangle of clip corners, float32."""
    with np.errstate(all="ignore"):
        fx = F(2) / F(width) * F(j) + (F(1) / F(width) - F(1))
        fy = F(2) / F(height) * F(i) + (F(1) / F(height) - F(1))
        p = [(c[0] - fx * c[3], c[1] - fy * c[3]) for c in corners]
        a = [p[m][0] * p[n][1] - p[m][1] * p[n][0] for m, n in ((1, 2), (2, 0), (0, 1))]
        r = F(1) / (a[0] + a[1] + a[2])
        b = [F(0) if math.isnan(v) else F(min(max(v, F(0)), F(1))) for v in (a[0] * r, a[1] * r)]
        scale = F(1) / max(b[0] + b[1], F(1))
        b = [b[0] * scale, b[1] * scale]
        return b[0], b[1], F(1) - b[0] - b[1]
