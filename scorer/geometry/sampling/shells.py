"""Samples of a shell: inside the components that enclose cells, on the surface of the others.

Source: protocol 4dcb-1, shells. Components are visited in the order of their lowest column and use the
generator in that order, for the cells of a wide box and for the draws of a surface.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scorer.geometry.sampling.enclosure import inside_cells
from scorer.geometry.sampling.following import HISTORY_BYTES, Interior, track_columns
from scorer.geometry.sampling.materials import MovedMaterial
from scorer.geometry.sampling.mean_value import Cage
from scorer.geometry.sampling.surface import areas, surface_samples
from scorer.geometry.sampling.threads import in_blocks
from scorer.geometry.sampling.topology import Shells
from scorer.geometry.sampling.voxels import Box, jittered, thin

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]

FEWEST_FACES = 4
"""Faces below which a component encloses nothing."""
ON_SURFACE = -1
_COMPONENTS = 16
"""Components that a thread takes at a time."""


@dataclass(frozen=True, eq=False)
class ShellSamples:
    """Samples of one material with faces, made when the shell looked like ``shape``.

    points : float64 (S, 3). component : int64 (S,), the component that encloses the sample, or −1 for one on
    the surface, which is the sum of three ``columns`` int64 (S, 3) with ``weights`` float32 (S, 3).
    """

    material: MovedMaterial
    shape: Shape
    points: Doubles
    component: Longs
    columns: Longs
    weights: Floats

    def subset(self, rows: Longs) -> ShellSamples:
        return replace(
            self,
            points=self.points[rows],
            component=self.component[rows],
            columns=self.columns[rows],
            weights=self.weights[rows],
        )

    def track(self, start: int, stop: int) -> Floats:
        """Positions float32 (stop − start, S, 3)."""
        out = np.empty((stop - start, len(self.points), 3), np.float32)
        drawn = np.flatnonzero(self.component == ON_SURFACE)
        if len(drawn):
            out[:, drawn] = track_columns(
                self.material, self.columns[drawn], self.weights[drawn], start, stop
            )
        order = np.argsort(self.component, kind="stable")[len(drawn) :]
        shell, first = np.unique(self.component[order], return_index=True)
        for number, begin, end in zip(shell, first, [*first[1:], len(order)], strict=False):
            rows = order[begin:end]
            interior = self.shape.interior(int(number), self.points[rows])
            columns = self.shape.columns(int(number))
            step = max(1, HISTORY_BYTES // (12 * len(columns)))
            for low in range(start, stop, step):
                high = min(low + step, stop)
                out[low - start : high - start, rows] = interior.follow(
                    self.material.take(low, high, columns)
                )
        return out


@dataclass(frozen=True, eq=False)
class Shape:
    """Shells at one frame.

    corners : float64 (U, 3), places of ``shells.vertices``. rim_start, rim : as ``Shells.rims``.
    """

    shells: Shells
    corners: Doubles
    rim_start: Longs
    rim: Ints

    @classmethod
    def of(cls, shells: Shells, positions: Doubles) -> Shape:
        """positions : float64 (N, 3), finite at every vertex of the shells."""
        corners = positions[shells.vertices]
        return cls(shells, corners, *shells.rims(corners))

    def columns(self, number: int) -> Longs:
        """Columns int64 (V,) of a component."""
        start, stop = self.shells.vertex_start[number : number + 2]
        return self.shells.vertices[start:stop]

    def mesh(self, number: int) -> tuple[Doubles, Ints, Ints]:
        """Corners float64 (V, 3), faces int32 (T, 3) and rim int32 (R, 2) of a component."""
        shells = self.shells
        v0, v1 = shells.vertex_start[number : number + 2]
        f0, f1 = shells.face_start[number : number + 2]
        r0, r1 = self.rim_start[number : number + 2]
        return self.corners[v0:v1], shells.faces[f0:f1], self.rim[r0:r1]

    def interior(self, number: int, points: Doubles) -> Interior:
        """Samples ``points`` float64 (S, 3) inside a component."""
        corners, faces, rim = self.mesh(number)
        return Interior(Cage.of(corners, faces), not len(rim), points)

    def boxes(self, h: float) -> list[Box]:
        """The box of each component."""
        starts = self.shells.vertex_start[:-1]
        low = np.minimum.reduceat(self.corners, starts)
        high = np.maximum.reduceat(self.corners, starts)
        return Box.each(low, high, h)

    def enclosed(self, number: int, box: Box, probed: Longs, h: float) -> Longs:
        """Cells int64 (n, 3), of the ``probed`` ones of a box, whose middle a component encloses."""
        cell = box.cells(probed)
        if not len(cell):
            return cell
        inside = inside_cells(*self.mesh(number), cell, box, probed, h)
        return cell[inside]


def shell_samples(
    material: MovedMaterial, shells: Shells, positions: Doubles, h: float, rng: np.random.Generator
) -> ShellSamples:
    """Sample the shells of a material where its columns are at ``positions`` float64 (N, 3)."""
    shape = Shape.of(shells, positions)
    boxes = shape.boxes(h)
    enclosed = _enclosed_everywhere(shape, boxes, h)
    area = areas(shape.corners, shells.global_faces)
    surfaces = _Surfaces(shape, area, h, rng)
    for number, size in enumerate(shells.sizes):
        if size >= FEWEST_FACES and boxes[number].wide:
            surfaces.draw()  # before the generator serves this box
            enclosed[number] = shape.enclosed(number, boxes[number], boxes[number].probe(rng), h)
        if number not in enclosed or not len(enclosed[number]):
            surfaces.pending.append(number)
    surfaces.draw()
    inner = sorted(number for number, found in enclosed.items() if len(found))
    cells = np.concatenate([enclosed[number] for number in inner] or [np.zeros((0, 3), np.int64)])
    owner = np.repeat(np.array(inner, np.int64), [len(enclosed[number]) for number in inner])
    points = jittered(cells, h)
    kept = thin(points, h, owner)
    return _assembled(material, shape, points[kept], owner[kept], surfaces)


def _enclosed_everywhere(shape: Shape, boxes: list[Box], h: float) -> dict[int, Longs]:
    """Enclosed cells of each component that may enclose any and whose box is searched completely."""
    sizes = shape.shells.sizes
    numbers = [n for n, box in enumerate(boxes) if sizes[n] >= FEWEST_FACES and not box.wide]
    found: dict[int, Longs] = dict.fromkeys(numbers, np.zeros((0, 3), np.int64))

    def work(start: int, stop: int) -> None:
        for number in numbers[start:stop]:
            box = boxes[number]
            found[number] = shape.enclosed(number, box, np.arange(max(0, box.total)), h)

    in_blocks(len(numbers), _COMPONENTS, work)
    return found


class _Surfaces:
    """Components whose surface is to be sampled, and what was drawn for the earlier ones."""

    def __init__(self, shape: Shape, area: Doubles, h: float, rng: np.random.Generator) -> None:
        self._shape, self._area, self._h, self._rng = shape, area, h, rng
        self.pending: list[int] = []
        self.points: list[Doubles] = []
        self.faces: list[Longs] = []
        self.weights: list[Floats] = []
        self.owner: list[Longs] = []

    def draw(self) -> None:
        """Sample the pending components, in order."""
        if not self.pending:
            return
        shells = self._shape.shells
        spans = [(int(shells.face_start[n]), int(shells.face_start[n + 1])) for n in self.pending]
        points, face, weights, span = surface_samples(
            self._shape.corners, shells.global_faces, self._area, spans, self._h, self._rng
        )
        self.points.append(points)
        self.faces.append(face)
        self.weights.append(weights)
        self.owner.append(np.array(self.pending, np.int64)[span])
        self.pending = []


def _assembled(
    material: MovedMaterial, shape: Shape, inner: Doubles, owner: Longs, drawn: _Surfaces
) -> ShellSamples:
    """Inner and drawn samples in the order of their components."""
    shells = shape.shells
    face = np.concatenate([np.zeros(0, np.int64), *drawn.faces])
    many, few = len(inner), len(face)
    columns = np.zeros((many + few, 3), np.int64)
    columns[many:] = shells.vertices[shells.global_faces[face]]
    weights = np.zeros((many + few, 3), np.float32)
    weights[many:] = np.concatenate([np.zeros((0, 3), np.float32), *drawn.weights])
    component = np.concatenate([owner, np.full(few, ON_SURFACE)])
    points = np.concatenate([inner, *drawn.points])
    order = np.argsort(np.concatenate([owner, *drawn.owner]), kind="stable")
    return ShellSamples(material, shape, points[order], component[order], columns[order], weights[order])
