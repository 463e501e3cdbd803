"""Points drawn on the moving objects' surfaces: what the mesh candidate of the registration is fitted to.

Source: protocol 4dcb-1, registration, mesh candidate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contract.constants import SEED
from scorer.geometry.cloud import in_view
from scorer.geometry.multistart import frame_numbers
from world.reader import World

Floats = NDArray[np.float32]

FRAMES = 16
POINTS = 8192


def surfaces(reference: World, submission: World) -> tuple[Floats, Floats] | None:
    """Points float32 (F, 8192, 3), world metres, on the moving objects of each world at the same F ≤ 16
    frames; those of the reference are in view of its camera.

    A frame at which either world has no moving surface, or the reference none in view, is left out. None when
    no frame remains.
    """
    gt, pred = [], []
    for frame in frame_numbers(reference.frames, FRAMES):
        drawn = dynamic_surface(reference, frame)
        ours = None if drawn is None else _seen(drawn, reference)
        theirs = None if ours is None else dynamic_surface(submission, frame)
        if ours is not None and theirs is not None:
            gt.append(ours)
            pred.append(theirs)
    return (np.stack(gt), np.stack(pred)) if gt else None


def dynamic_surface(world: World, frame: int) -> Floats | None:
    """Points float32 (8192, 3), uniform by area, on the meshes of the moving objects; None when they have no
    area. The generator depends on the frame alone.
    """
    corners = _triangles(world, frame)
    a, b, c = (corners[:, corner] for corner in range(3))
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    total = areas.sum()
    if not total > 0.0:
        return None
    rng = np.random.default_rng([SEED, frame])
    chosen = rng.choice(len(areas), POINTS, p=areas / total)
    u, v = rng.random((2, POINTS))
    r, s = np.sqrt(u)[:, None], v[:, None]
    points: NDArray[np.float64] = (1 - r) * a[chosen] + r * (1 - s) * b[chosen] + r * s * c[chosen]
    return points.astype(np.float32)


def _triangles(world: World, frame: int) -> NDArray[np.float64]:
    """Corners float64 (T, 3, 3) of the moving objects, which come in the order of their ids as text."""
    meshes = (world.object_mesh(number, frame) for number in sorted(world.dynamic_ids, key=str))
    corners = [vertices[faces] for vertices, faces in meshes if len(faces)]
    return np.concatenate(corners).astype(np.float64) if corners else np.empty((0, 3, 3))


def _seen(points: Floats, world: World) -> Floats | None:
    """The points in view, each repeated so often that they are 8192 again; None when there is none."""
    seen = points[in_view(points, world)]
    return seen[np.arange(POINTS) * len(seen) // POINTS] if len(seen) else None
