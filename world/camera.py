"""The camera of a world: one pinhole, one pose for the whole take.

Axes: +x right, +y down, +z forward. The extrinsic takes camera points to world points. The centre of the
pixel in row i and column j is (j + 0.5, i + 0.5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.names import EXTRINSIC_KEY, INTRINSICS_KEY
from contract.record import write_json
from world.validation.files import Unreadable, read_json

Matrix = npt.NDArray[np.float64]


def read_camera(path: Path) -> tuple[Matrix, Matrix]:
    """Intrinsics (3, 3) in pixels and camera-to-world extrinsic (4, 4) in metres, float64.

    Raises ``ValueError`` when the file is missing or not the JSON object of the world format; orthonormality
    is the checker's.
    """
    try:
        record = read_json(path)
    except Unreadable as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path.name}: must hold an object")
    intrinsics = _matrix(record, INTRINSICS_KEY, (3, 3), path.name)
    return intrinsics, _matrix(record, EXTRINSIC_KEY, (4, 4), path.name)


def write_camera(path: Path, intrinsics: npt.ArrayLike, extrinsic: npt.ArrayLike) -> None:
    """Write ``camera.json``. Raises ``ValueError`` on a wrong shape or a value that is not finite."""
    record = {
        INTRINSICS_KEY: _checked(np.asarray(intrinsics, np.float64), (3, 3), INTRINSICS_KEY).tolist(),
        EXTRINSIC_KEY: _checked(np.asarray(extrinsic, np.float64), (4, 4), EXTRINSIC_KEY).tolist(),
    }
    write_json(path, record)


def to_camera(points: npt.ArrayLike, extrinsic: Matrix) -> Matrix:
    """World points (N, 3) in camera axes, float64: Rᵀ(p − t)."""
    result: Matrix = (np.asarray(points, np.float64) - extrinsic[:3, 3]) @ extrinsic[:3, :3]
    return result


def project(points: npt.ArrayLike, intrinsics: Matrix, extrinsic: Matrix) -> tuple[Matrix, Matrix]:
    """Image points (N, 2) in pixels and camera depths (N,) in metres of world points (N, 3), float64.

    Points at depth 0 give non-finite image points, without a warning.
    """
    camera = to_camera(points, extrinsic)
    image = camera @ intrinsics.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return image[:, :2] / image[:, 2:3], camera[:, 2]


def look_at(eye: npt.ArrayLike, target: npt.ArrayLike, up: npt.ArrayLike = (0.0, 0.0, 1.0)) -> Matrix:
    """Extrinsic (4, 4) of a camera at ``eye`` that looks at ``target`` with ``up`` upward in the image.

    Raises ``ValueError`` when the direction is zero or parallel to ``up``.
    """
    position = np.asarray(eye, np.float64)
    forward = np.asarray(target, np.float64) - position
    right = np.cross(forward, np.asarray(up, np.float64))
    if not np.linalg.norm(right) > 1e-12 * max(1.0, float(np.linalg.norm(forward))):
        raise ValueError("the viewing direction is zero or parallel to the up direction")
    forward = forward / np.linalg.norm(forward)
    right = right / np.linalg.norm(right)
    extrinsic = np.eye(4)
    extrinsic[:3, 0], extrinsic[:3, 1], extrinsic[:3, 2] = right, np.cross(forward, right), forward
    extrinsic[:3, 3] = position
    return extrinsic


def _matrix(record: dict[str, Any], key: str, shape: tuple[int, int], name: str) -> Matrix:
    if key not in record:
        raise ValueError(f"{name}: {key} is missing")
    try:
        matrix = np.array(record[key], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {key} is not numeric ({error})") from error
    return _checked(matrix, shape, f"{name}: {key}")


def _checked(matrix: Matrix, shape: tuple[int, int], name: str) -> Matrix:
    if matrix.shape != shape:
        raise ValueError(f"{name} has shape {matrix.shape}, expected {shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite")
    return matrix
