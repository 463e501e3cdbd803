"""Reading ``measured.py``: the numbers that this scene is made of."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .camera import Array

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Thing:
    """Something that moves.

    id : mesh id. first : frame that it appears in. colour : RGB 0–255.
    depth, half : camera depth and half thickness, metres.
    centres : float64 (L, 2), column and row, pixels. radii : float64 (L, A), pixels; L is its lifetime in
    frames.
    """

    id: int
    first: int
    colour: Colour
    depth: float
    half: float
    centres: Array
    radii: Array


@dataclass(frozen=True)
class Measured:
    """Everything that was measured in the video."""

    frames: int
    height: int
    width: int
    fps: Fraction
    wall: Colour
    ground: Colour
    things: tuple[Thing, ...]


def load() -> Measured:
    """The numbers in ``measured.py`` beside this module."""
    data = importlib.import_module(f"{__package__}.measured")
    things = tuple(_thing(entry, data.STEPS_PER_PIXEL) for entry in data.THINGS)
    return Measured(
        data.FRAMES,
        data.HEIGHT,
        data.WIDTH,
        Fraction(*data.FPS),
        data.WALL_COLOUR,
        data.GROUND_COLOUR,
        things,
    )


def _thing(entry: Mapping[str, Any], steps: int) -> Thing:
    rows = entry["outline"].strip().splitlines()
    numbers = np.array([row.split() for row in rows], dtype=np.int64).astype(np.float64) / steps
    return Thing(
        entry["id"],
        entry["first"],
        entry["colour"],
        entry["depth"],
        entry["half"],
        centres=numbers[:, :2],
        radii=numbers[:, 2:],
    )
