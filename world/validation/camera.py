"""camera.json: one pinhole camera for the whole take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.constants import ROTATION_TOLERANCE
from contract.names import CAMERA, EXTRINSIC_KEY, INTRINSICS_KEY
from world.validation.files import Unreadable, mode_of, read_json
from world.validation.violation import Violation, reason, shown

Matrix = npt.NDArray[np.float64]

_SHAPES = {INTRINSICS_KEY: (3, 3), EXTRINSIC_KEY: (4, 4)}


@dataclass(frozen=True)
class Camera:
    """Intrinsics (3, 3) in pixels and camera-to-world extrinsic (4, 4) in metres, both float64."""

    intrinsics: Matrix
    extrinsic: Matrix
    loose: tuple[str, ...] = ()
    """Keys whose entries are not all JSON numbers (texts and booleans convert, but hardly on purpose)."""


def check_camera(world: Path) -> tuple[list[Violation], Camera | None]:
    """Check ``camera.json`` (C1–C8); the camera is None unless both matrices are good."""
    path = world / CAMERA
    if mode_of(path) is None:
        return [
            Violation(CAMERA, "path", "is required: intrinsics 3x3 and extrinsic 4x4 camera-to-world")
        ], None
    try:
        value = read_json(path)
    except Unreadable as error:
        return [Violation(CAMERA, "json", str(error))], None
    if not isinstance(value, dict):
        return [Violation(CAMERA, "json", f"must be an object, not {type(value).__name__}")], None
    found: list[Violation] = []
    good: dict[str, Matrix] = {}
    for key, shape in _SHAPES.items():
        if key not in value:
            found.append(Violation(CAMERA, key, f"is required: a nested list of shape {shape}"))
            continue
        matrix, fault = _matrix(value[key], shape)
        if matrix is None:
            found.append(Violation(CAMERA, key, fault))
        else:
            good[key] = matrix
    if len(good) < len(_SHAPES):
        return found, None
    fault = rotation_fault(good[EXTRINSIC_KEY])
    if fault:
        return [*found, Violation(CAMERA, EXTRINSIC_KEY, fault)], None
    loose = tuple(key for key in _SHAPES if not _plain(value[key]))
    return found, Camera(good[INTRINSICS_KEY], good[EXTRINSIC_KEY], loose)


def rotation_fault(extrinsic: Matrix) -> str:
    """What is wrong with the rotation block of a finite (4, 4) matrix; empty when it is a proper rotation."""
    rotation = extrinsic[:3, :3]
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.abs(rotation.T @ rotation - np.eye(3)).max())
        # ``not <=`` rather than ``>``: entries that overflow give NaN.
        if not error <= ROTATION_TOLERANCE:
            return (
                f"rotation block must be orthonormal: |RᵀR − I| reaches {error:.3g}, "
                f"at most {ROTATION_TOLERANCE:g} is allowed (no scale or shear in the camera's matrix)"
            )
        if np.linalg.det(rotation) < 0:
            return "rotation block must be proper: its determinant is −1, so it mirrors the scene"
    return ""


def _matrix(value: Any, shape: tuple[int, int]) -> tuple[Matrix | None, str]:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        return None, f"is not numeric ({reason(error)})"
    if matrix.shape != shape:
        return None, f"has shape {matrix.shape}, expected {shape}"
    if not np.isfinite(matrix).all():
        return None, f"must be finite, holds {shown(matrix[~np.isfinite(matrix)].tolist())}"
    return matrix, ""


def _plain(value: list[list[Any]]) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) for row in value for x in row)


def camera_advice(camera: Camera, size: tuple[int, int] | None) -> list[Violation]:
    """What the rules let pass and still spoils scores; ``size`` is (height, width) of the render if known."""
    found: list[Violation] = []
    for key in camera.loose:
        found.append(Violation(CAMERA, key, "holds texts or booleans; write plain numbers"))
    k = camera.intrinsics
    if np.linalg.matrix_rank(k) < 3:
        found.append(
            Violation(CAMERA, INTRINSICS_KEY, "is singular: everything projects to a line or a point")
        )
    elif k[0, 0] <= 0 or k[1, 1] <= 0:
        text = f"has focal lengths {k[0, 0]:g} and {k[1, 1]:g}; both should be positive (+x right, +y down)"
        found.append(Violation(CAMERA, INTRINSICS_KEY, text))
    elif k[1, 0] != 0 or tuple(k[2]) != (0.0, 0.0, 1.0):
        found.append(Violation(CAMERA, INTRINSICS_KEY, "should be [[fx, s, cx], [0, fy, cy], [0, 0, 1]]"))
    elif size is not None:
        height, width = size
        if abs(k[0, 2] - width / 2) > 0.5 or abs(k[1, 2] - height / 2) > 0.5:
            text = (
                f"has its principal point at ({k[0, 2]:g}, {k[1, 2]:g}); without lens shift it lies at "
                f"({width / 2:g}, {height / 2:g}) for {width}x{height} pixels"
            )
            found.append(Violation(CAMERA, INTRINSICS_KEY, text))
    if tuple(camera.extrinsic[3]) != (0.0, 0.0, 0.0, 1.0):
        text = "bottom row should be 0 0 0 1 (it is never read; is the matrix transposed?)"
        found.append(Violation(CAMERA, EXTRINSIC_KEY, text))
    return found
