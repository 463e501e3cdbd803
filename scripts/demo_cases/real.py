"""`demo_clip`: a clip as a camera would give it, without a world: a ball rolls into a row of dominoes.

The picture has wood grain, a wall, a darker rim and sensor noise. The mask is no by-product of the renderer:
it is drawn from the outlines of the moving bodies (the conic of a ball, the convex hull of a box's corners),
as a person would trace them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import world.camera
from demo_cases import shading
from demo_cases.rigid import meshes, paint
from demo_cases.rigid_body import Motion, Solid, simulate
from demo_cases.scene import Array, Body, Camera, Scene, look_at, moving, still
from demo_cases.shapes import box, octasphere, slab

SPEED, RADIUS = 2.1, 0.20
SOLIDS = (
    Solid(
        (RADIUS,) * 3,
        (-1.45, -0.02, RADIUS + 0.003),
        ball=True,
        velocity=(SPEED, 0, 0),
        spin=(0, SPEED / RADIUS, 0),
    ),
    *(Solid((0.045, 0.17, 0.32), (-0.55 + 0.30 * k, 0.0, 0.323)) for k in range(5)),
    Solid((0.13,) * 3, (0.20, -0.62, 1.30), ball=True, density=300.0, velocity=(0.25, 0.0, 0.0)),
)
_PAINT = (
    (0.62, 0.07, 0.06),
    *[(0.66, 0.58, 0.42), (0.20, 0.36, 0.30)] * 2,
    (0.66, 0.58, 0.42),
    (0.85, 0.62, 0.05),
)
LOOK = shading.Look(
    horizon=(0.40, 0.36, 0.32),
    zenith=(0.22, 0.20, 0.18),
    lamp=(1.05, 0.86, 0.62),
    ambient=(0.17, 0.17, 0.19),
    bounce=(0.14, 0.09, 0.06),
)
NOISE = 2.5
"""Standard deviation of the sensor noise, in steps of 1/255."""


def build() -> tuple[Scene, NDArray[np.uint8]]:
    """The scene and its mask, uint8 (F,H,W): 1 where a moving body is seen."""
    motion = simulate(SOLIDS)
    bodies = list(_set())
    for id, (solid, (history, faces)) in enumerate(zip(SOLIDS, meshes(SOLIDS, motion), strict=True), start=3):
        rest = octasphere(solid.half[0], 3)[0] if solid.ball else box(solid.half)[0]
        colours = paint(solid, faces, rest, _PAINT[id - 3])
        bodies.append(
            moving(id, history, faces, colours, smooth=solid.ball, gloss=0.3 if solid.ball else 0.1)
        )
    camera = look_at((-0.9, -3.4, 1.55), (0.05, 0.0, 0.30), 1.2)
    scene = Scene("demo_clip", camera, tuple(bodies), (), light=(1.5, -2.0, 3.4))
    return scene, outline_mask(motion, camera)


def images(scene: Scene, seed: int = 5) -> Iterator[NDArray[np.uint8]]:
    """The rendered frames as a cheap camera sees them: darker towards the rim, with noise in every frame."""
    height, width = scene.camera.height, scene.camera.width
    y, x = np.mgrid[0:height, 0:width] + 0.5
    rim = 1.0 - 0.35 * ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) / 0.5
    rng = np.random.default_rng(seed)
    for image in shading.images(scene, LOOK):
        noise = NOISE * rng.standard_normal((height, width, 1)) + 0.5 * NOISE * rng.standard_normal(
            image.shape
        )
        yield np.clip(np.rint(image * rim[..., None] + noise), 0, 255).astype(np.uint8)


def _set() -> tuple[Body, Body]:
    """A table top with wood grain and a plastered wall behind it, both coloured face by face."""
    rng = np.random.default_rng(3)
    tiles = (24, 160)
    floor = slab((8.0, 4.8), tiles, 0.1)
    planks = np.floor(np.arange(tiles[1]) / 20).astype(int)
    tone = rng.uniform(0.75, 1.15, planks.max() + 1)[planks][None] * np.ones((tiles[0], 1))
    phase = rng.uniform(0.0, 6.0, planks.max() + 1)[planks]
    rings = np.sin(
        2.2 * np.arange(tiles[1])[None] + phase + 1.5 * np.sin(np.arange(tiles[0])[:, None] / 3.0 + phase)
    )
    tone = tone * (1.0 + 0.12 * rings) * np.where(np.arange(tiles[1]) % 20 == 0, 0.55, 1.0)
    colours = np.full((len(floor[1]), 3), 0.2)
    colours[: 2 * tone.size] = np.repeat(tone.ravel(), 2)[:, None] * (0.40, 0.24, 0.12)
    plaster = slab((8.0, 2.4), (100, 30), 0.1)
    # The slab stands up at the far end of the table: its top becomes the side that faces the camera.
    upright = plaster[0][:, [0, 2, 1]] * [1.0, -1.0, 1.0] + [0.0, 2.4, 1.2]
    patches = rng.uniform(0.85, 1.1, (100, 30))
    shades = np.full((len(plaster[1]), 3), 0.3)
    shades[: 2 * patches.size] = np.repeat(patches.ravel(), 2)[:, None] * (0.38, 0.42, 0.40)
    return still(1, floor, np.clip(colours, 0.0, 1.0)), still(2, (upright, plaster[1]), shades)


def outline_mask(motion: Motion, camera: Camera) -> NDArray[np.uint8]:
    """Union of the outlines of all bodies, (F,H,W), 1 where a pixel's centre lies inside one."""
    frames = len(motion.positions)
    mask = np.zeros((frames, camera.height, camera.width), np.uint8)
    y, x = np.mgrid[0 : camera.height, 0 : camera.width] + 0.5
    for frame in range(frames):
        for number, solid in enumerate(SOLIDS):
            centre = motion.positions[frame, number]
            if solid.ball:
                mask[frame] |= _inside_ball(x, y, centre, solid.half[0], camera)
            else:
                corners = box(solid.half)[0] @ motion.rotations[frame, number].T + centre
                points, _ = world.camera.project(corners, camera.intrinsics, camera.extrinsic)
                mask[frame] |= _inside_polygon(x, y, convex_hull(points))
    return mask


def _inside_ball(x: Array, y: Array, centre: Array, radius: float, camera: Camera) -> NDArray[np.bool_]:
    """Pixels whose ray meets the ball: (d·c)² ≥ |d|² (|c|² − r²), a conic in the image."""
    middle = (centre - camera.extrinsic[:3, 3]) @ camera.extrinsic[:3, :3]
    across = (x - camera.intrinsics[0, 2]) / camera.intrinsics[0, 0]
    down = (y - camera.intrinsics[1, 2]) / camera.intrinsics[1, 1]
    along = across * middle[0] + down * middle[1] + middle[2]
    return np.asarray(along**2 >= (across**2 + down**2 + 1.0) * (middle @ middle - radius**2))


def convex_hull(points: Array) -> Array:
    """Corners of the hull of (n,2) points in order around it (monotone chain)."""
    order = sorted(map(tuple, points))

    def chain(row: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        kept: list[tuple[float, ...]] = []
        for x, y in row:
            while len(kept) > 1 and (kept[-1][0] - kept[-2][0]) * (y - kept[-2][1]) <= (
                kept[-1][1] - kept[-2][1]
            ) * (x - kept[-2][0]):
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return np.array(chain(order) + chain(order[::-1]))


def _inside_polygon(x: Array, y: Array, corners: Array) -> NDArray[np.bool_]:
    """Pixels on the inner side of every edge of a convex polygon given counter-clockwise in (x, y)."""
    inside = np.ones(x.shape, bool)
    for (ax, ay), (bx, by) in pairwise([*corners, corners[0]]):
        inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0.0
    return inside
