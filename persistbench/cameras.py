"""Cameras and visibility of a case: read safely, sampled, scaled, written (spec 70 §3.3, §5.2, §6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .safeload import load
from .store import replacing

VISIBLE_ABOVE = 0.7
INVISIBLE_BELOW = 0.3


@dataclass(frozen=True)
class Cameras:
    """poses : floats (T, 4, 4), camera to world, OpenCV axes. intrinsic : (3, 3), pixels, for all frames."""

    poses: np.ndarray
    intrinsic: np.ndarray

    def mapping(self) -> dict[str, np.ndarray]:
        return {"cam_poses": self.poses, "cam_intrinsic": self.intrinsic}


def read_cameras(path: Path) -> Cameras:
    """Read a camera file without unpickling. Errors: ``OSError``, ``ValueError`` naming file and fault."""
    value = load(path)
    if not isinstance(value, dict) or not {"cam_poses", "cam_intrinsic"} <= set(value):
        raise ValueError(f"{path} must hold cam_poses and cam_intrinsic")
    poses, intrinsic = np.asarray(value["cam_poses"]), np.asarray(value["cam_intrinsic"])
    if poses.ndim != 3 or poses.shape[1:] != (4, 4) or poses.dtype.kind not in "iuf":
        raise ValueError(f"{path}: cam_poses must be numbers (T, 4, 4), not {poses.dtype} {poses.shape}")
    if intrinsic.shape != (3, 3) or intrinsic.dtype.kind not in "iuf":
        raise ValueError(
            f"{path}: cam_intrinsic must be numbers (3, 3), not {intrinsic.dtype} {intrinsic.shape}"
        )
    if not (np.isfinite(poses).all() and np.isfinite(intrinsic).all()):
        raise ValueError(f"{path} holds numbers that are not finite")
    return Cameras(poses, intrinsic)


def write_cameras(path: Path, cameras: Cameras) -> None:
    """Write a camera file as existing adapters read it: a dictionary of arrays, freshly encoded by us."""
    with replacing(path) as partial, partial.open("wb") as target:
        np.save(target, np.array(cameras.mapping(), dtype=object), allow_pickle=True)


def cropped_and_scaled(
    intrinsic: np.ndarray, offset: tuple[int, int], scale: tuple[float, float]
) -> np.ndarray:
    """Intrinsics after a crop at ``offset`` and a resize by ``scale``, both (x, y); skew stays (§5.2)."""
    result = intrinsic.astype(np.float64) if intrinsic.dtype.kind in "iu" else intrinsic.copy()
    result[0, 2] -= offset[0]
    result[1, 2] -= offset[1]
    for row in (0, 1):
        result[row, row] *= scale[row]
        result[row, 2] *= scale[row]
    return result


def resized_intrinsic(intrinsic: np.ndarray, source: tuple[int, int], target: tuple[int, int]) -> np.ndarray:
    """Intrinsics after a resize, sizes as (width, height); no half-pixel shift (§7.2)."""
    if source == target:
        return intrinsic.copy()
    scale = (target[0] / source[0], target[1] / source[1])
    return cropped_and_scaled(intrinsic, (0, 0), scale)


def read_visibility(path: Path) -> np.ndarray:
    """How visible the object is from the input camera: float64 (T,), usually 0, 0.5 or 1.

    Errors: ``OSError``, ``ValueError`` naming file and fault.
    """
    value = load(path)
    if not isinstance(value, dict) or "view_0_visibility" not in value:
        raise ValueError(f"{path} must hold view_0_visibility")
    try:
        series = np.asarray(value["view_0_visibility"], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: view_0_visibility must be numbers") from None
    if series.ndim != 1 or series.size == 0:
        raise ValueError(f"{path}: view_0_visibility must be one number a frame, not an array {series.shape}")
    return series


def visibility_groups(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boolean (T,) twice: the visible and the invisible frames. NaN and the middle are in neither (§3.5)."""
    return series > VISIBLE_ABOVE, series < INVISIBLE_BELOW
