"""Clouds of what a camera sees: the centres of the pixels that a frame's meshes cover, at their depth.

Source: protocol 4dcb-1, visible clouds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import NEAR
from scorer.geometry.raster import rasterize
from scorer.geometry.similarity import Similarity, rotate
from world.camera import to_camera
from world.reader import World

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]


def back_project(depth: NDArray[np.float32], intrinsics: ArrayLike) -> tuple[Floats, Mask]:
    """Points of a depth image, and which pixels have one.

    depth : float32 (H, W) camera z in metres, not finite on a miss. intrinsics : (3, 3).
    Returns float32 (n, 3) camera-frame metres, pixels row by row, and bool (H, W). The point of pixel (j, i)
    is z · K⁻¹ (j + ½, i + ½, 1), worked out in float64.
    """
    covered = np.isfinite(depth)
    row, column = (index + 0.5 for index in np.nonzero(covered))
    z = depth[covered].astype(np.float64)
    points = np.empty((len(z), 3), np.float32)
    with np.errstate(over="ignore"):
        for axis, (a, b, c) in enumerate(np.linalg.inv(np.asarray(intrinsics, np.float64))):
            points[:, axis] = (column * a + row * b + c) * z
    return points, covered


def visible_cloud(world: World, frame: int) -> Floats:
    """Points float32 (n, 3) of ``frame`` in the world's own camera frame, metres; n may be 0."""
    verts, faces, _ = world.soup(frame)
    depth, _ = rasterize(verts, faces, world.intrinsics, world.extrinsic, world.height, world.width)
    return back_project(depth, world.intrinsics)[0]


def frame_cloud(world: World, frame: int = 0) -> Floats:
    """As :func:`visible_cloud`; raises ``ValueError`` when no pixel is covered."""
    cloud = visible_cloud(world, frame)
    if not len(cloud):
        raise ValueError(f"{world.path}: frame {frame} rasterises to no covered pixel")
    return cloud


def registered_cloud(reference: World, submission: World, placed: Similarity, frame: int = 0) -> Floats:
    """What the reference's camera sees of the submission once it is moved into place.

    placed : takes the submission's camera-frame points to the reference's camera frame.
    Returns float32 (n, 3) in the reference's camera frame, metres; n may be 0.
    """
    verts, faces, _ = submission.soup(frame)
    ours, theirs = reference.extrinsic, submission.extrinsic
    turn = ours[:3, :3] @ placed.rotation @ theirs[:3, :3].T
    shift = ours[:3, 3] + ours[:3, :3] @ placed.offset - placed.scale * (turn @ theirs[:3, 3])
    in_place = Similarity(placed.scale, turn, shift)(verts)
    depth, _ = rasterize(
        in_place, faces, reference.intrinsics, ours, height=reference.height, width=reference.width
    )
    return back_project(depth, reference.intrinsics)[0]


def extent(points: Floats) -> tuple[Doubles, float]:
    """Centroid float64 (3,) of ``points`` (n, 3), and the root of their mean squared distance from it.

    Raises ``ValueError`` when that radius is not a positive number.
    """
    cloud = np.asarray(points, np.float64)
    centre: Doubles = cloud.mean(axis=0)
    radius = math.sqrt(np.square(cloud - centre).sum(axis=1).mean())
    if not radius > 0.0:
        raise ValueError("a scene cloud of zero radius carries no unit of length")
    return centre, radius


def subsample(points: Floats, budget: int, rng: np.random.Generator) -> Floats:
    """``points`` (n, 3) as they are when n ≤ ``budget``, else that many of them, none twice, in the order
    drawn.
    """
    if len(points) <= budget:
        return points
    return points[rng.choice(len(points), budget, replace=False)]


def in_view(points: ArrayLike, world: World) -> Mask:
    """Which of ``points`` (n, 3), world metres, lie before the near plane and inside the world's image.

    Whether something hides them does not matter. A point that is not finite is not in view.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        camera = to_camera(points, world.extrinsic)
        depth = camera[:, 2]
        image = rotate(camera, world.intrinsics)[:, :2] / depth[:, None]
        inside = ((image >= 0.0) & (image < (world.width, world.height))).all(axis=1)
        return (depth > NEAR) & inside
