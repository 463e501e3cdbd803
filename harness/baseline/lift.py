"""From tracks in the picture to things in space, and from there to the numbers that the solution is made of.

Depth cannot be seen by one still camera. Each thing is put where the ground is seen at the lowest point that
it ever reaches, and moves in the plane through there that faces the camera; it is as thick as it is wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.baseline.observe import Footage, Picture
from harness.baseline.outlines import Sighting
from harness.baseline.solution_program.camera import Camera
from harness.baseline.solution_program.shapes import WALL_DISTANCE
from harness.baseline.tracks import Track

STEPS_PER_PIXEL = 8
"""Outlines are handed over in whole steps of 1/8 pixel."""
NEARER = 0.97
"""Things stand this much nearer than the ground at their feet, so that the ground never cuts them."""
FARTHEST, NEAREST = 9.0, 1.0
"""Range of depths, metres."""
THICKEST = 0.3
"""Largest half thickness, as a share of the depth."""
FIRST_ID = 3
"""Ids 1 and 2 are the ground and the wall."""


@dataclass(frozen=True)
class Thing:
    """One entry of the solution's data; ``outline`` holds rows of whole steps: column, row, then the
    radii.
    """

    id: int
    first: int
    colour: tuple[int, int, int]
    depth: float
    half: float
    outline: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Scene:
    """All that was measured."""

    footage: Footage
    wall: tuple[int, int, int]
    ground: tuple[int, int, int]
    things: tuple[Thing, ...]


def lift(footage: Footage, plate: Picture, tracks: list[Track]) -> Scene:
    """Place every track in space and take the colours of wall and ground from the plate."""
    camera = Camera(footage.height, footage.width)
    skyline = int(np.clip(camera.row_of_ground(WALL_DISTANCE) / footage.factor, 1, plate.shape[0] - 1))
    things = [_thing(FIRST_ID + index, track, camera, footage.factor) for index, track in enumerate(tracks)]
    return Scene(footage, _mean(plate[:skyline]), _mean(plate[skyline:]), tuple(things))


def _thing(id_: int, track: Track, camera: Camera, factor: int) -> Thing:
    lowest = max(sighting.bottom for sighting in track.sightings) * factor
    depth = float(np.clip(NEARER * camera.ground_depth(lowest), NEAREST, FARTHEST))
    size = float(np.median([sighting.size for sighting in track.sightings])) * factor
    half = min(size * depth / camera.focal, THICKEST * depth)
    weights = np.array([sighting.area for sighting in track.sightings])
    colour = np.average([sighting.colour for sighting in track.sightings], axis=0, weights=weights)
    return Thing(
        id_,
        track.first,
        _rgb(colour),
        round(depth, 4),
        round(half, 5),
        tuple(_row(sighting, factor) for sighting in track.sightings),
    )


def _row(sighting: Sighting, factor: int) -> tuple[int, ...]:
    numbers = np.concatenate([sighting.centre, sighting.radii]) * (factor * STEPS_PER_PIXEL)
    return tuple(int(number) for number in np.rint(numbers))


def _mean(picture: Picture) -> tuple[int, int, int]:
    return _rgb(picture.reshape(-1, 3).mean(axis=0))


def _rgb(colour: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in np.rint(colour))
    return red, green, blue
