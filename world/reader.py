"""Open a world lazily: facts first, geometry one frame at a time, memory bounded by a small cache.

The reader checks what it reads (types, shapes, indices, finiteness), so that nothing hostile reaches a
metric; whether a world obeys the whole format is for :mod:`world.validation`.
"""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.names import (
    ARCHIVE_SUFFIX,
    CAMERA,
    DYNAMICS,
    LIQUID_IDS_KEY,
    MESHES,
    RENDER,
    SOLVER,
    SOLVER_MANIFEST,
)
from world.camera import Matrix, read_camera
from world.materials import Material
from world.meshes import Faces, Mesh, MeshArchive, Vertices, empty_mesh, mesh_id
from world.npz import Archive, ArchiveError
from world.validation.files import Unreadable, mode_of, read_json
from world.validation.violation import reason
from world.video import VideoError, VideoInfo, probe

__all__ = ["Material", "World", "WorldError"]

CACHE_BYTES = 256 << 20
"""Decoded meshes that are kept for the next metric that asks for the same frame."""
_OPEN_ARCHIVES = 64
_LARGEST_ID = int(np.iinfo(np.int32).max)


class WorldError(ValueError):
    """A world that cannot be read as one; the message is one line."""


class World:
    """A world directory, read on demand. Not for use by several threads at once.

    Every array is read-only. Frames are 0 … F − 1, where F is the number of frames that ``render.mp4``
    decodes to.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._cache: OrderedDict[tuple[int, int], Mesh] = OrderedDict()
        self._cached_bytes = 0
        self._open: OrderedDict[int, Archive] = OrderedDict()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the archives and forget cached geometry."""
        while self._open:
            self._open.popitem()[1].close()
        self._cache.clear()
        self._cached_bytes = 0

    @cached_property
    def video(self) -> VideoInfo:
        """Facts of ``render.mp4``, which is decoded once to its end. Raises ``WorldError``."""
        try:
            return probe(self.path / RENDER)
        except (VideoError, OSError) as error:
            raise WorldError(f"{RENDER}: {reason(error)}") from error

    @property
    def frames(self) -> int:
        return self.video.frames

    @property
    def height(self) -> int:
        return self.video.height

    @property
    def width(self) -> int:
        return self.video.width

    @property
    def fps(self) -> Fraction:
        return self.video.fps

    @property
    def shape(self) -> tuple[int, int, int]:
        """(F, H, W)"""
        return self.video.shape

    @cached_property
    def _camera(self) -> tuple[Matrix, Matrix]:
        try:
            return read_camera(self.path / CAMERA)
        except ValueError as error:
            raise WorldError(str(error)) from error

    @property
    def intrinsics(self) -> Matrix:
        """(3, 3) float64, pixels."""
        return self._camera[0]

    @property
    def extrinsic(self) -> Matrix:
        """(4, 4) float64 camera-to-world, metres."""
        return self._camera[1]

    @cached_property
    def _archives(self) -> dict[int, MeshArchive]:
        directory = self.path / MESHES
        found: dict[int, MeshArchive] = {}
        try:
            names = sorted(entry.name for entry in directory.iterdir())
        except OSError as error:
            raise WorldError(f"{MESHES}: {error.strerror or error}") from error
        for name in names:
            number = mesh_id(name)
            if number is None or number in found:
                raise WorldError(f"{MESHES}/{name}: not the name of a mesh archive, or an id twice")
            try:
                found[number] = MeshArchive(directory / name, f"{MESHES}/{name}")
            except ArchiveError as error:
                raise WorldError(str(error)) from error
        return dict(sorted(found.items()))

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of all mesh archives, ascending."""
        return tuple(self._archives)

    def lifetime(self, number: int) -> range:
        """Frames that the archive of object ``number`` covers."""
        return self._archives[number].frames

    def object_mesh(self, number: int, frame: int) -> Mesh:
        """Vertices float32 (V, 3) and faces int32 (T, 3) of an object; (0, 3) arrays when it is absent."""
        archive = self._archives.get(number)
        if archive is None or frame not in archive.frames:
            return empty_mesh()
        key = (number, frame)
        mesh = self._cache.get(key)
        if mesh is None:
            try:
                mesh = archive.read(self._opened(number, archive), frame)
            except ArchiveError as error:
                raise WorldError(str(error)) from error
            self._keep(key, mesh)
        else:
            self._cache.move_to_end(key)
        return mesh

    def _opened(self, number: int, mesh: MeshArchive) -> Archive:
        archive = self._open.pop(number, None) or mesh.open()
        self._open[number] = archive
        if len(self._open) > _OPEN_ARCHIVES:
            self._open.popitem(last=False)[1].close()
        return archive

    def _keep(self, key: tuple[int, int], mesh: Mesh) -> None:
        self._cache[key] = mesh
        self._cached_bytes += mesh[0].nbytes + mesh[1].nbytes
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, old = self._cache.popitem(last=False)
            self._cached_bytes -= old[0].nbytes + old[1].nbytes

    def parts(self, frame: int) -> list[tuple[int, Vertices, Faces]]:
        """``(id, vertices, faces)`` of the objects with at least one face at ``frame``, ascending id."""
        meshes = ((number, *self.object_mesh(number, frame)) for number in self._archives)
        return [(number, vertices, faces) for number, vertices, faces in meshes if len(faces)]

    def soup(self, frame: int) -> tuple[Vertices, Faces, npt.NDArray[np.int32]]:
        """All parts of a frame as one: vertices (V, 3), faces (T, 3) with shifted indices, owner (T,) ids."""
        parts = self.parts(frame)
        if not parts:
            return (*empty_mesh(), np.zeros(0, np.int32))
        if parts[-1][0] > _LARGEST_ID:
            raise WorldError(f"{MESHES}: id {parts[-1][0]} is above {_LARGEST_ID}, the largest that is drawn")
        starts = np.cumsum([0, *(len(vertices) for _, vertices, _ in parts)])
        vertices = np.concatenate([vertices for _, vertices, _ in parts])
        shifted = [part[2] + np.int32(start) for part, start in zip(parts, starts[:-1], strict=True)]
        counts = [len(faces) for _, _, faces in parts]
        owner = np.repeat(np.array([number for number, _, _ in parts], np.int32), counts)
        return vertices, np.concatenate(shifted), owner

    @cached_property
    def materials(self) -> tuple[Material, ...]:
        """The dynamics archives in order of file name. Raises ``WorldError``."""
        directory = self.path / DYNAMICS
        if not directory.exists():
            # Tools that keep no empty directories drop it; to a reader that means no material.
            return ()
        try:
            names = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(ARCHIVE_SUFFIX))
        except OSError as error:
            raise WorldError(f"{DYNAMICS}: {error.strerror or error}") from error
        materials = []
        for name in names:
            try:
                materials.append(Material(directory / name, f"{DYNAMICS}/{name}"))
            except ArchiveError as error:
                raise WorldError(str(error)) from error
        return tuple(materials)

    @cached_property
    def liquid_ids(self) -> tuple[int, ...]:
        """Sorted mesh ids of a liquid whose solver follows no particles, from ``solver/manifest.json``.

        ``true`` counts as 1 and ``false`` as 0, as the world format has always let them (its checker warns).
        """
        manifest = f"{SOLVER}/{SOLVER_MANIFEST}"
        if mode_of(self.path / SOLVER) is None:
            return ()
        try:
            record = read_json(self.path / SOLVER / SOLVER_MANIFEST)
        except Unreadable as error:
            raise WorldError(f"{manifest}: {error}") from error
        listed = record.get(LIQUID_IDS_KEY) if isinstance(record, dict) else None
        if not isinstance(listed, list) or not listed or not all(isinstance(item, int) for item in listed):
            raise WorldError(f"{manifest}: {LIQUID_IDS_KEY} must be a non-empty list of integers")
        return tuple(sorted({int(number) for number in listed}))

    @cached_property
    def dynamic_ids(self) -> tuple[int, ...]:
        """Sorted ids of the meshes that some material moves, identity-less liquids included."""
        listed = {number for material in self.materials for number in material.ids}
        return tuple(sorted(listed | set(self.liquid_ids)))
