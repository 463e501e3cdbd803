"""Pixels of one camera in another that differs by a rotation: both look from the same place (spec 70
§6.2).
"""

from __future__ import annotations

import numpy as np

_BEHIND = 1e-8
Size = tuple[int, int]


def _stack(intrinsic: np.ndarray, frames: int) -> np.ndarray:
    if intrinsic.shape == (3, 3):
        return np.broadcast_to(intrinsic, (frames, 3, 3))
    if intrinsic.shape == (frames, 3, 3):
        return intrinsic
    raise ValueError(f"intrinsics must be (3, 3) or ({frames}, 3, 3), not {intrinsic.shape}")


def project_points(
    points: np.ndarray,
    source_intrinsic: np.ndarray,
    target_intrinsic: np.ndarray,
    source_poses: np.ndarray,
    target_poses: np.ndarray,
) -> np.ndarray:
    """Pixels (T, ..., 2) of the source camera in the target camera, float64; NaN behind it.

    Poses (T, 4, 4) are camera to world; translations are ignored. Errors: ``ValueError`` for wrong shapes.
    """
    frames = len(points)
    for name, poses in (("source", source_poses), ("target", target_poses)):
        if poses.shape != (frames, 4, 4):
            raise ValueError(f"{name} poses must be ({frames}, 4, 4), not {poses.shape}")
    source, target = _stack(source_intrinsic, frames), _stack(target_intrinsic, frames)
    result = np.full(points.shape, np.nan)
    for t in range(frames):
        flat = points[t].reshape(-1, 2)
        rays = np.linalg.inv(source[t]) @ np.column_stack((flat, np.ones(len(flat)))).T
        turned = target_poses[t, :3, :3].T @ source_poses[t, :3, :3] @ rays
        with np.errstate(divide="ignore", invalid="ignore"):
            pixels = (target[t] @ turned)[:2] / turned[2]
        pixels[:, ~(turned[2] > _BEHIND) | ~np.isfinite(pixels).all(0)] = np.nan
        result[t] = pixels.T.reshape(points[t].shape)
    return result


def _landing(size: Size, target: Size, cameras: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Target pixel (T, H * W, 2) of each source pixel, and which of them are inside the target."""
    if min(target) < 1:
        raise ValueError(f"the target size must be positive, not {target}")
    frames = len(cameras[2])
    y, x = np.mgrid[: size[0], : size[1]]
    points = np.broadcast_to(np.stack((x, y), -1).reshape(1, -1, 2).astype(float), (frames, x.size, 2))
    found = np.rint(project_points(points, *cameras))
    inside = np.isfinite(found).all(-1)
    inside &= (found >= 0).all(-1) & (found[..., 0] < target[1]) & (found[..., 1] < target[0])
    return np.where(inside[..., None], found, 0).astype(np.int64), inside


def project_masks(masks: np.ndarray, *cameras: np.ndarray, target: Size | None = None) -> np.ndarray:
    """Boolean masks (T, H, W) as the target camera sees them: pixels splatted, holes left open.

    ``cameras`` as in :func:`project_points`; ``target`` (height, width), by default the source's.
    """
    size = (masks.shape[1], masks.shape[2])
    target = target or size
    landing, inside = _landing(size, target, cameras)
    result = np.zeros((len(masks), *target), bool)
    for t, mask in enumerate(masks):
        x, y = landing[t][inside[t] & mask.reshape(-1)].T
        result[t, y, x] = True
    return result


def project_frames(
    frames: np.ndarray, *cameras: np.ndarray, target: Size | None = None, fill: float | tuple[float, ...] = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Frames (T, H, W, 3) as the target camera sees them, and which pixels were filled, boolean (T, H, W).

    Where several pixels land on one, the last in row-major order stays; the rest is ``fill``.
    """
    size = (frames.shape[1], frames.shape[2])
    target = target or size
    landing, inside = _landing(size, target, cameras)
    result = np.empty((len(frames), *target, frames.shape[3]), frames.dtype)
    result[:] = fill
    filled = np.zeros((len(frames), *target), bool)
    for t, frame in enumerate(frames):
        keep = inside[t]
        x, y = landing[t][keep].T
        place = y * target[1] + x
        # Of equal places the last one counts: the first when read backwards.
        unique, backwards = np.unique(place[::-1], return_index=True)
        pixels = frame.reshape(-1, frame.shape[2])[keep][::-1][backwards]
        result[t].reshape(-1, frame.shape[2])[unique] = pixels
        filled[t].reshape(-1)[unique] = True
    return result, filled
