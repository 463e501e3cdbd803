"""Build the world: ``python -m scene WORLD_DIRECTORY``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from world.writer import WorldWriter

from .camera import Camera
from .drawing import Canvas, Image
from .shapes import Mesh, ground, pebble, pebble_faces, wall
from .things import Measured, Thing, load

GROUND_ID, WALL_ID = 1, 2


def main(world: Path) -> None:
    """Write the whole world to ``world``; what was there is replaced at the end."""
    measured = load()
    camera = Camera(measured.height, measured.width)
    meshes = {thing.id: _vertices(camera, thing) for thing in measured.things}
    with WorldWriter(
        world,
        frames=measured.frames,
        height=measured.height,
        width=measured.width,
        fps=measured.fps,
        intrinsics=camera.intrinsics,
        extrinsic=camera.extrinsic,
    ) as out:
        for id_, mesh in ((GROUND_ID, ground()), (WALL_ID, wall())):
            out.mesh(id_, [mesh.vertices] * measured.frames, mesh.faces)
        for thing in measured.things:
            vertices, faces = meshes[thing.id], pebble_faces(thing.radii.shape[1])
            out.mesh(thing.id, list(vertices), faces, first=thing.first)
            positions = np.full((measured.frames, *vertices.shape[1:]), np.nan, dtype=np.float32)
            positions[thing.first : thing.first + len(vertices)] = vertices
            out.dynamics(f"thing_{thing.id:03d}", positions, [thing.id], faces=faces)
        out.render(_images(measured, camera, meshes))


def _vertices(camera: Camera, thing: Thing) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return pebble(camera, thing.centres, thing.radii, thing.depth, thing.half)


def _images(
    measured: Measured, camera: Camera, meshes: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
) -> Iterator[Image]:
    """Every frame of the render, drawn from the very vertices that are exported."""
    still = Canvas(camera)
    still.draw(ground(), measured.ground)
    still.draw(wall(), measured.wall)
    for frame in range(measured.frames):
        canvas = still.copy()
        for thing in measured.things:
            index = frame - thing.first
            if 0 <= index < len(thing.centres):
                mesh = Mesh(meshes[thing.id][index], pebble_faces(thing.radii.shape[1]))
                canvas.draw(mesh, thing.colour)
        yield canvas.image
        if frame % 100 == 99 or frame == measured.frames - 1:
            sys.stderr.write(f"drew {frame + 1} of {measured.frames} frames\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scene WORLD_DIRECTORY")
    main(Path(sys.argv[1]))
