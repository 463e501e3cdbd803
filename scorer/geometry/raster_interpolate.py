"""What a pixel's face looks like at the pixel: perspective-correct weights and camera z, in float32."""

from __future__ import annotations

import numba
import numpy as np

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


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
