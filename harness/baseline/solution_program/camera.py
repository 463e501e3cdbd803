"""The camera that the scene is seen with, and where image points lie on its ground.

Nothing about the real camera is known, so it is assumed: a field of view of 50° along the longer side, 1.5 m
above ground that is flat, looking along +y and a little down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FIELD_OF_VIEW = math.radians(50.0)
PITCH = math.radians(10.0)
EYE_HEIGHT = 1.5


@dataclass(frozen=True)
class Camera:
    """Pinhole camera for pictures of ``height`` × ``width`` pixels; axes +x right, +y down, +z forward."""

    height: int
    width: int

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return max(self.height, self.width) / 2 / math.tan(FIELD_OF_VIEW / 2)

    @property
    def intrinsics(self) -> Array:
        """Float64 (3, 3), pixels; principal point at the middle."""
        return np.array(
            [[self.focal, 0, self.width / 2], [0, self.focal, self.height / 2], [0, 0, 1]], dtype=np.float64
        )

    @property
    def extrinsic(self) -> Array:
        """Float64 (4, 4), camera to world, metres; the world's +z is up."""
        sine, cosine = math.sin(PITCH), math.cos(PITCH)
        return np.array(
            [[1, 0, 0, 0], [0, -sine, cosine, 0], [0, -cosine, -sine, EYE_HEIGHT], [0, 0, 0, 1]],
            dtype=np.float64,
        )

    def lift(self, columns: Array, rows: Array, depth: Array) -> Array:
        """World points (…, 3) seen at image points (pixels) and camera depths (metres)."""
        right = (columns - self.width / 2) / self.focal * depth
        down = (rows - self.height / 2) / self.focal * depth
        # Spelt out, not a matrix product: the order of the sums must not depend on the machine.
        rotation, eye = self.extrinsic[:3, :3], self.extrinsic[:3, 3]
        axes = [
            rotation[axis, 0] * right + rotation[axis, 1] * down + rotation[axis, 2] * depth
            for axis in range(3)
        ]
        return np.stack([part + eye[axis] for axis, part in enumerate(axes)], axis=-1)

    def project(self, points: Array) -> tuple[Array, Array, Array]:
        """Columns, rows (pixels) and depth (metres) of world points (N, 3)."""
        seen = (points - self.extrinsic[:3, 3]) @ self.extrinsic[:3, :3]
        depth = seen[:, 2]
        return (
            self.focal * seen[:, 0] / depth + self.width / 2,
            self.focal * seen[:, 1] / depth + self.height / 2,
            depth,
        )

    def ground_depth(self, row: float) -> float:
        """Camera depth of the ground at an image row, metres; infinite at and above the horizon."""
        slope = (row - self.height / 2) / self.focal
        # The ray (0, slope, 1) falls by slope·cos + sin a metre of depth, and has the eye's height to fall.
        fall = slope * math.cos(PITCH) + math.sin(PITCH)
        return EYE_HEIGHT / fall if fall > 1e-9 else math.inf

    def row_of_ground(self, distance: float) -> float:
        """Image row of the ground ``distance`` metres ahead of the camera's foot."""
        _, rows, _ = self.project(np.array([[0.0, distance, 0.0]]))
        return float(rows[0])
