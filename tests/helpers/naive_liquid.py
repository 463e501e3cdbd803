"""Liquid tracers once more, plainly: whole arrays, rolled tables, sorting."""

from __future__ import annotations

import numpy as np


def sample(grid: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Staggered trilinear velocity float64 (n, 3) of a grid (nx, ny, nz, 3)."""
    dims = np.array(grid.shape[:3])
    out = np.empty(points.shape)
    for c in range(3):
        at = points - 0.5
        at[:, c] += 0.5
        low = np.clip(np.floor(at).astype(np.int64), 0, dims - 2)
        part = np.clip(at - low, 0, 1)
        total = np.zeros(len(points))
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(np.where(corner, part, 1 - part), axis=1)
            x, y, z = (low + corner).T
            total += weight * grid[x, y, z, c]
        out[:, c] = total
    return out


def advance(points: np.ndarray, now: np.ndarray, later: np.ndarray, dt: float) -> np.ndarray:
    def velocity(at: np.ndarray, fraction: float) -> np.ndarray:
        return (1 - fraction) * sample(now, at) + fraction * sample(later, at)

    points = points.copy()
    alive = np.isfinite(points).all(axis=1)
    moved = points[alive]
    step = dt / 4
    for k in range(4):
        first = velocity(moved, k / 4)
        second = velocity(moved + step * first, (k + 1) / 4)
        moved = moved + 0.5 * step * (first + second)
    outside = ((moved < 0) | (moved >= now.shape[:3])).any(axis=1)
    moved[outside] = np.nan
    points[alive] = moved
    return points


def seed(points: np.ndarray, phi: np.ndarray, spacing: float, rng: np.random.Generator) -> np.ndarray:
    dims = np.array(phi.shape)
    shape = np.floor((dims - 0.5) / spacing).astype(np.int64) + 1
    held = np.zeros(shape, bool)
    living = points[np.isfinite(points).all(axis=1)]
    homes = np.clip(np.floor(living / spacing).astype(np.int64), 0, shape - 1)
    held[tuple(homes.T)] = True
    covered = np.zeros(shape, bool)
    for shift in np.ndindex(3, 3, 3):
        covered |= np.roll(held, np.array(shift) - 1, axis=(0, 1, 2))
    cells = np.argwhere(phi < 0)
    homes = np.floor((cells + 0.5) / spacing).astype(np.int64)
    free = ~covered[tuple(homes.T)]
    cells, homes = cells[free], homes[free]
    order = rng.permutation(len(cells))
    flat = np.ravel_multi_index(homes[order].T, shape)
    _, first = np.unique(flat, return_index=True)
    chosen = cells[order][first]
    return chosen + rng.random((len(chosen), 3))


def trial(
    velocity: np.ndarray, phi: np.ndarray, times: np.ndarray, spacing: float, most: int
) -> np.ndarray | None:
    """(F, N, 3), or None when N would exceed ``most``."""
    rng = np.random.default_rng(20260821)
    points, frames = np.zeros((0, 3)), []
    for frame in range(len(velocity)):
        if frame:
            dt = times[frame] - times[frame - 1]
            points = advance(points, velocity[frame - 1], velocity[frame], dt)
        points = np.concatenate([points, seed(points, phi[frame], spacing, rng)])
        if len(points) > most:
            return None
        frames.append(points.copy())
    out = np.full((len(frames), len(points), 3), np.nan)
    for row, found in zip(out, frames, strict=True):
        row[: len(found)] = found
    return out


def search(velocity: np.ndarray, phi: np.ndarray, times: np.ndarray, most: int) -> tuple[float, np.ndarray]:
    """The finest spacing that fits, and its tracers."""
    fullest = max((one < 0).sum() for one in phi)
    spacing = max(1.0, (2 * fullest / most) ** (1 / 3))
    best = trial(velocity, phi, times, spacing, most)
    failing = None
    if best is None:
        while best is None:
            failing = spacing
            spacing *= 1.5
            best = trial(velocity, phi, times, spacing, most)
    else:
        while spacing > 1:
            finer = max(1.0, spacing / 1.5)
            found = trial(velocity, phi, times, finer, most)
            if found is None:
                failing = finer
                break
            spacing, best = finer, found
    if failing is not None:
        for _ in range(6):
            middle = (failing + spacing) / 2
            found = trial(velocity, phi, times, middle, most)
            if found is None:
                failing = middle
            else:
                spacing, best = middle, found
    return spacing, best
