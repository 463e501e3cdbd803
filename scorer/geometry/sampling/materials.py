"""Materials in the frame that both worlds share: axes of the reference's camera, its visible cloud at the
origin, of radius 1.

Positions are mapped when they are asked for, a block of frames at a time: a copy of all of them in float64
would be many times what the archive holds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from scorer.geometry.sampling.topology import Shells
from scorer.geometry.similarity import rotate

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

_BLOCK = 1 << 18
"""Points that are mapped at a time."""


class Placement(Protocol):
    """Anything like ``scorer.geometry.registration.Registration``."""

    @property
    def centre(self) -> Doubles: ...
    @property
    def radius(self) -> float: ...
    def map_reference(self, points: ArrayLike) -> Doubles: ...
    def map_submission(self, points: ArrayLike) -> Doubles: ...


class Archive(Protocol):
    """Anything like ``world.reader.Material``; a view of positions is enough."""

    @property
    def name(self) -> str: ...
    @property
    def faces(self) -> Ints | None: ...
    @property
    def tets(self) -> Ints | None: ...
    @property
    def pos(self) -> Floats: ...


class MovedMaterial:
    """One dynamics archive in the common frame, in reference radii.

    name : file stem. faces : int32 (T, 3) or None. tets : int32 (K, 4) or None; at most one is not None.
    frames, columns : F and N.
    """

    def __init__(self, archive: Archive, extrinsic: Doubles, mapped: Callable[[ArrayLike], Doubles]) -> None:
        """extrinsic : (4, 4) camera-to-world of the archive's world. mapped : from that camera's frame in
        metres to the common frame, an affine map.
        """
        self.name = archive.name
        self.faces = archive.faces
        self.tets = archive.tets
        self._pos = archive.pos
        self._extrinsic = extrinsic
        self._map = mapped
        self.frames, self.columns = self._pos.shape[:2]

    def at(self, frame: int, columns: Longs | None = None) -> Floats:
        """Positions float32 (N or len(columns), 3) at a frame; NaN while a column is not alive."""
        return self._placed(self._pos[frame] if columns is None else self._pos[frame, columns])

    def take(self, start: int, stop: int, columns: Longs) -> Floats:
        """Positions float32 (stop − start, len(columns), 3) of some columns."""
        picked = self._pos[start:stop, columns]
        return self._placed(picked.reshape(-1, 3)).reshape(picked.shape)

    @property
    def pos(self) -> Floats:
        """Positions float32 (F, N, 3); a fresh copy on each use."""
        return self._placed(self._pos.reshape(-1, 3)).reshape(self._pos.shape)

    @cached_property
    def shells(self) -> Shells:
        """Components of all faces; for a material that has any."""
        if self.faces is None or not len(self.faces):
            raise ValueError(f"{self.name} has no faces")
        return Shells.of(self.faces, self.columns)

    @cached_property
    def _lifetimes(self) -> tuple[Longs, Longs]:
        born = np.full(self.columns, self.frames, np.int64)
        live = np.zeros(self.frames, np.int64)
        for frame in range(self.frames):
            alive = self._alive(self._pos[frame])
            live[frame] = np.count_nonzero(alive)
            born[alive] = np.minimum(born[alive], frame)
        return born, live

    @property
    def births(self) -> Longs:
        """First frame int64 (N,) at which each column is finite; F for one that never is."""
        return self._lifetimes[0]

    @property
    def live(self) -> Longs:
        """Finite columns int64 (F,) of each frame."""
        return self._lifetimes[1]

    def _alive(self, points: Floats) -> Mask:
        """Which of ``points`` (n, 3) are finite once they are moved."""
        alive: Mask
        alive, low, high = _finite(points)
        if not alive.any():
            return alive
        corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3)
        if np.isfinite(self._placed(corners)).all():
            return alive  # an affine image of a box lies among the images of its corners
        alive = np.asarray(np.isfinite(self._placed(points)).all(axis=1))
        return alive

    def _placed(self, points: Floats) -> Floats:
        out = np.empty(points.shape, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(points), _BLOCK):
                block = points[start : start + _BLOCK].astype(np.float64) - self._extrinsic[:3, 3]
                out[start : start + _BLOCK] = self._map(rotate(block, self._extrinsic[:3, :3].T))
        return out


@njit(cache=True, nogil=True)
def _finite(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """bool (n,), which points are finite, and their lowest and highest coordinates float32 (3,)."""
    alive = np.empty(len(points), np.bool_)
    low, high = np.full(3, np.inf, np.float32), np.full(3, -np.inf, np.float32)
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        alive[i] = np.isfinite(x) and np.isfinite(y) and np.isfinite(z)
        if alive[i]:
            for axis in range(3):
                low[axis] = min(low[axis], points[i, axis])
                high[axis] = max(high[axis], points[i, axis])
    return alive, low, high
