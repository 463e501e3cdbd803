"""meshes/<id>.npz: the triangles of one object over its lifetime, looked through frame by frame."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contract.names import ARCHIVE_SUFFIX, MESHES, faces_key, vertices_key
from world.meshes import mesh_id
from world.npz import Archive, ArchiveError
from world.validation.files import describe, is_directory, is_file, mode_of, names_in
from world.validation.violation import Faults, Violation, reason

_MEMBER = re.compile(r"(vertices|faces)_([0-9]{4})")


@dataclass(frozen=True)
class MeshFile:
    """An entry of ``meshes/`` whose name is a mesh id."""

    file: str
    id: int


@dataclass(frozen=True)
class MeshChange:
    """The first frame at which an object differs from its first one, and the member that shows it."""

    first: int
    frame: int
    member: str


@dataclass(frozen=True)
class MeshReport:
    """What one mesh archive holds; the facts count only when ``violation`` is None."""

    mesh: MeshFile
    violation: Violation | None = None
    triangles: int = 0
    change: MeshChange | None = None


@dataclass
class MeshListing:
    """The entries of ``meshes/``: what is wrong with their names, and the files to open, in order."""

    present: bool
    files: list[MeshFile] = field(default_factory=list)
    faults: dict[str, Violation] = field(default_factory=dict)
    """Violation of the directory (key empty) and of entries, by file name."""

    @property
    def declared(self) -> frozenset[int]:
        """Ids that a file name declares, whether or not the archive is sound."""
        return frozenset(mesh.id for mesh in self.files)


def list_meshes(world: Path) -> MeshListing:
    """List ``meshes/`` (M1–M3), in the order of file names."""
    directory = world / MESHES
    text = f"is required: a directory with one <id>{ARCHIVE_SUFFIX} per rendered object"
    if not is_directory(directory):
        return MeshListing(False, faults={"": Violation(MESHES, "path", text)})
    listing = MeshListing(True)
    try:
        names = names_in(directory)
    except OSError as error:
        listing.faults[""] = Violation(MESHES, "path", f"cannot be listed ({reason(error)})")
        return listing
    owners: dict[int, str] = {}
    for name in names:
        identifier = mesh_id(name)
        if identifier is None:
            text = f"must be <id>{ARCHIVE_SUFFIX} with a whole number above 0, and nothing else may lie here"
            listing.faults[name] = Violation(f"{MESHES}/{name}", "name", text)
        elif identifier in owners:
            text = f"{identifier} is declared by {owners[identifier]} already"
            listing.faults[name] = Violation(f"{MESHES}/{name}", "id", text)
        else:
            owners[identifier] = name
            listing.files.append(MeshFile(name, identifier))
    return listing


def check_mesh(world: Path, mesh: MeshFile, frames: int | None, *, scorer: bool = False) -> MeshReport:
    """Look through one archive (M4–M15) with a few megabytes of memory.

    frames : frame count of the render, None when unknown.
    scorer : cast vertices to float32 instead of asking for it.
    """
    name = f"{MESHES}/{mesh.file}"
    path = world / MESHES / mesh.file
    faults = Faults(name)
    look = _Look(faults, scorer)
    mode = mode_of(path)
    if mode is not None and not is_file(path):
        faults.add("npz", f"is {describe(mode)}, not a regular file", urgent=True)
    else:
        try:
            with Archive.open(path) as archive:
                _check_archive(archive, frames, faults, look)
        except (ArchiveError, OSError, MemoryError) as error:
            faults.add("npz", reason(error), urgent=True)
    if faults:
        return MeshReport(mesh, faults.violation())
    return MeshReport(mesh, None, look.triangles, look.change)


def _check_archive(archive: Archive, frames: int | None, faults: Faults, look: _Look) -> None:
    vertices, faces = _check_members(archive.names, frames, faults)
    for frame in sorted(vertices | faces):
        try:
            look.frame(archive, frame, frame in vertices, frame in faces)
        except ArchiveError as error:
            # The other frames are still looked at, so that one run shows everything.
            faults.add("npz", reason(error), urgent=True)


def _check_members(names: Iterable[str], frames: int | None, faults: Faults) -> tuple[set[int], set[int]]:
    """M5–M9, from member names alone."""
    found: dict[str, set[int]] = {"vertices": set(), "faces": set()}
    total = 0
    for name in names:
        total += 1
        match = _MEMBER.fullmatch(name)
        if match:
            found[match[1]].add(int(match[2]))
        else:
            faults.add(name, "is no member of a mesh archive; only vertices_TTTT and faces_TTTT are")
    vertices, faces = found["vertices"], found["faces"]
    if total == 0:
        faults.add("members", "are missing: at least one frame is required")
    for frame in sorted(vertices ^ faces):
        lacking = faces_key(frame) if frame in vertices else vertices_key(frame)
        faults.add(f"frame {frame:04d}", f"lacks {lacking}: vertices and faces come in pairs")
    every = sorted(vertices | faces)
    if every:
        gap = next(
            (f for f, expected in zip(every, range(every[0], every[-1] + 1), strict=False) if f != expected),
            None,
        )
        if gap is not None:
            before = max(frame for frame in every if frame < gap)
            text = f"must be one interval: {gap:04d} follows {before:04d} (write empty arrays between)"
            faults.add("frames", text)
        if frames is not None and every[-1] >= frames:
            text = f"is beyond the render, which has {frames} frames (0000 to {frames - 1:04d})"
            faults.add(f"frame {every[-1]:04d}", text)
    return vertices, faces


class _Look:
    """Checks arrays of successive frames and remembers what the static rule needs: digests, never meshes."""

    def __init__(self, faults: Faults, scorer: bool) -> None:
        self.faults = faults
        self.scorer = scorer
        self.triangles = 0
        self.change: MeshChange | None = None
        self._first: tuple[int, bytes, bytes] | None = None

    def frame(self, archive: Archive, frame: int, has_vertices: bool, has_faces: bool) -> None:
        """M10–M15 for one frame."""
        count: int | None = None
        shapes: list[bytes] = []
        digest = self.change is None
        if has_vertices:
            count, shape = self._vertices(archive, vertices_key(frame), digest)
            shapes.append(shape)
        if has_faces:
            shapes.append(self._faces(archive, faces_key(frame), count, digest))
        if digest and len(shapes) == 2:
            self._compare(frame, shapes[0], shapes[1])

    def _compare(self, frame: int, vertices: bytes, faces: bytes) -> None:
        if self._first is None:
            self._first = (frame, vertices, faces)
        elif vertices != self._first[1]:
            self.change = MeshChange(self._first[0], frame, vertices_key(frame))
        elif faces != self._first[2]:
            self.change = MeshChange(self._first[0], frame, faces_key(frame))

    def _vertices(self, archive: Archive, key: str, digest: bool) -> tuple[int | None, bytes]:
        header = archive.header(key)
        castable = self.scorer and header.dtype.kind in "biuf"
        if header.dtype != np.float32 and not castable:
            self.faults.add(key, f"is {header.dtype}, expected float32")
            return (header.shape[0] if len(header.shape) == 2 else None), b""
        if len(header.shape) != 2 or header.shape[1] != 3:
            self.faults.add(key, f"has shape {header.shape}, expected (V, 3)")
            return None, b""
        state = _digest(header.shape)
        row = 0
        fault = ""
        for block in archive.blocks(key):
            with np.errstate(over="ignore"):
                values = block.astype(np.float32, copy=False)
            if not fault and not np.isfinite(values).all():
                bad = int(np.argmin(np.isfinite(values).all(axis=1)))
                fault = f"must be finite; vertex {row + bad} is {values[bad].tolist()}"
            row += len(values)
            if digest:
                # Adding zero makes −0 and +0 the same bytes, as they are the same value.
                state.update(np.ascontiguousarray(values + np.float32(0)).data)
        if fault:
            self.faults.add(key, fault)
        return header.shape[0], state.digest()

    def _faces(self, archive: Archive, key: str, count: int | None, digest: bool) -> bytes:
        header = archive.header(key)
        if header.dtype != np.int32:
            self.faults.add(key, f"is {header.dtype}, expected int32")
            return b""
        if len(header.shape) != 2 or header.shape[1] != 3:
            self.faults.add(key, f"has shape {header.shape}, expected (T, 3)")
            return b""
        state = _digest(header.shape)
        fault = ""
        for block in archive.blocks(key):
            if not fault and count is not None:
                fault = index_fault(block, count, "vertices of its frame")
            if digest:
                state.update(np.ascontiguousarray(block).data)
        if fault:
            self.faults.add(key, fault)
        self.triangles += header.shape[0]
        return state.digest()


def index_fault(block: np.ndarray[Any, np.dtype[np.int32]], count: int, of: str) -> str:
    """What is wrong with an index array into ``count`` things; empty when nothing is."""
    if block.size == 0:
        return ""
    low, high = int(block.min()), int(block.max())
    if low < 0:
        return f"holds the index {low}; indices start at 0"
    if high >= count:
        return f"holds the index {high}, outside the {count} {of}"
    return ""


def _digest(shape: tuple[int, ...]) -> hashlib.blake2b:
    return hashlib.blake2b(repr(shape).encode(), digest_size=16)
