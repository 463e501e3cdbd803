"""Analytic optical flow: where the surface point that each pixel sees goes, one step of the timeline later.

The camera stands still. Objects whose mesh keeps its faces are followed exactly, static ones stay, the others
follow the material near them. Occlusion at the later frame and leaving the image are not tested. Source:
protocol 4dcb-1, analytic flow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from contract.constants import SEED
from scorer.analytic.material import Columns, carried
from scorer.analytic.pixels import Drawn, Geometry, draw, image_points, same_topology, to_camera, to_world
from scorer.geometry.raster_cpu import camera_points
from scorer.liquid.tracers import materials_of

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@dataclass
class FlowDetail:
    """How each object present was followed, and how many pixels no material reached."""

    exact: list[int] = field(default_factory=list)
    material: list[int] = field(default_factory=list)
    static: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    unreached: int = 0


def frame_flow(world: Geometry, frame: int, stride: int = 1) -> tuple[Floats, Mask, FlowDetail]:
    """Flow float32 (H, W, 2) in pixels ``(u, v)`` from ``frame`` to ``frame + stride``, where it is known
    (H, W) bool (elsewhere the flow is 0), and how it came about.

    A ``stride`` below 1 acts as 1. Past the last frame, or with nothing present, nothing is known. Material
    is only asked for when some object needs it. Raises what ``scorer.liquid.tracers.materials_of`` does.
    """
    later = frame + max(1, int(stride))
    detail = FlowDetail()
    flow = np.zeros((world.height, world.width, 2), np.float32)
    valid = np.zeros((world.height, world.width), np.bool_)
    drawn = draw(world, frame) if later < world.frames else None
    if drawn is None:
        return flow, valid, detail
    after, follow = _next_vertices(world, drawn, later, detail)
    extrinsic = world.extrinsic.astype(np.float32)
    now = camera_points(drawn.verts, extrinsic)
    then = camera_points(after, extrinsic)
    gone = np.array([number in detail.gone for number, _, _ in drawn.parts])[drawn.part]
    _project_flow(
        *drawn.buffers(), drawn.faces, gone, now, then, world.intrinsics.astype(np.float32),
        flow.reshape(-1, 2), valid.reshape(-1),
    )  # fmt: skip
    for row in follow:
        columns = Columns(materials_of(world), drawn.parts[row][0])
        _follow(world, drawn, row, now, columns, (frame, later), (flow, valid), detail)
    return flow, valid, detail


def _next_vertices(world: Geometry, drawn: Drawn, later: int, detail: FlowDetail) -> tuple[Floats, list[int]]:
    """The soup's vertices at the later frame (those of now where they are not followed), and the rows of the
    objects that follow material.
    """
    after = drawn.verts.copy()
    follow = []
    for row, (number, vertices, faces) in enumerate(drawn.parts):
        mesh = world.object_mesh(number, later)
        if same_topology((vertices, faces), mesh):
            after[drawn.starts[row] : drawn.starts[row + 1]] = mesh[0]
            detail.exact.append(number)
        elif number not in world.dynamic_ids:
            detail.static.append(number)
        elif not len(mesh[1]):
            detail.gone.append(number)
        else:
            detail.material.append(number)
            follow.append(row)
    return after, follow


def _follow(
    world: Geometry,
    drawn: Drawn,
    row: int,
    now: Floats,
    columns: Columns,
    frames: tuple[int, int],
    result: tuple[Floats, Mask],
    detail: FlowDetail,
) -> None:
    """Replace the flow of the pixels that see the object in ``row`` by that of the material near them."""
    frame, later = frames
    pixels = drawn.seen(row)
    here = drawn.at(pixels, now)
    rng = np.random.default_rng((SEED, frame, drawn.parts[row][0]))
    moved, reached = carried(to_world(here, world.extrinsic), *columns.between(frame, later), rng)
    detail.unreached += int(len(pixels) - np.count_nonzero(reached))
    there = to_camera(moved, world.extrinsic)
    before, after = image_points(here, world.intrinsics), image_points(there, world.intrinsics)
    known = reached & np.isfinite(after).all(axis=1) & (here[:, 2] > 0) & (there[:, 2] > 0)
    flow, valid = result
    with np.errstate(invalid="ignore"):
        flow.reshape(-1, 2)[pixels] = np.where(known[:, None], after - before, _ZERO)
    valid.reshape(-1)[pixels] = known


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _project_flow(face, b0, b1, faces, gone, now, then, k, flow, valid):  # type: ignore[no-untyped-def]
    """Flow and validity of every pixel whose face's vertices are at ``now`` and ``then`` in the camera."""
    for pixel in range(face.shape[0]):
        f = face[pixel]
        if f < 0 or gone[f]:
            continue
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        p, q = b0[pixel], b1[pixel]
        r = _ONE - p - q
        x = (p * now[a, 0] + q * now[b, 0]) + r * now[c, 0]
        y = (p * now[a, 1] + q * now[b, 1]) + r * now[c, 1]
        z = (p * now[a, 2] + q * now[b, 2]) + r * now[c, 2]
        x1 = (p * then[a, 0] + q * then[b, 0]) + r * then[c, 0]
        y1 = (p * then[a, 1] + q * then[b, 1]) + r * then[c, 1]
        z1 = (p * then[a, 2] + q * then[b, 2]) + r * then[c, 2]
        u = (k[0, 0] * x + k[0, 1] * y) / z + k[0, 2]
        v = (k[1, 1] * y) / z + k[1, 2]
        u1 = (k[0, 0] * x1 + k[0, 1] * y1) / z1 + k[0, 2]
        v1 = (k[1, 1] * y1) / z1 + k[1, 2]
        if np.isfinite(u1) and np.isfinite(v1) and z > _ZERO and z1 > _ZERO:
            flow[pixel, 0] = u1 - u
            flow[pixel, 1] = v1 - v
            valid[pixel] = True
