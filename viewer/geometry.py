"""Meshes for the browser: an index from the archives' directories, and packets of a few frames each.

Nothing is unpacked to learn what changes: a member's size and CRC-32 tell two frames' arrays apart. Arrays
that stay (static objects, constant topology) travel once, in the base packet; the others in packets of
consecutive frames. Positions are 16-bit steps of the array's own box: 0.15 mm in an object of 10 m.

A packet, little endian: ``4DMP``, uint32 version, uint32 number of chunks; of each chunk uint32 number,
uint32 kind (0 positions, 1 faces), uint32 rows, uint32 bytes per value, then for positions six float32 (least
corner, step), then rows × 3 values, padded with zeros to a multiple of 4 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contract.names import ARCHIVE_SUFFIX, CAMERA, MESHES, faces_key, vertices_key
from viewer.trees import Item, listing
from world.camera import read_camera
from world.meshes import MeshArchive, mesh_id
from world.npz import ArchiveError

MAGIC, VERSION = b"4DMP", 1
PACKET = 4 << 20
"""Bytes that a packet of frames should have."""
LONGEST_PACKET = 24
MOST_OBJECTS = 4_096


class NoGeometry(ValueError):
    """The world has no meshes that can be shown; the message says why."""


@dataclass(frozen=True)
class Chunk:
    """One distinct array: where to read it, and the first and last frame that show it."""

    object: int
    frame: int
    faces: bool
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Shape:
    """The index of a world's meshes."""

    archives: dict[int, MeshArchive]
    chunks: list[Chunk]
    positions: dict[int, list[int]]
    """Of each object the chunk number of its positions, for each frame of its lifetime."""
    faces: dict[int, list[int]]
    frames: int
    """One more than the last frame that shows anything."""
    step: int
    """Frames of a packet."""
    base: frozenset[int]
    """Chunks that more than one packet needs."""

    def packet(self, number: int) -> list[int]:
        """Chunk numbers of packet ``number``, those of the base left out."""
        start, stop = number * self.step, (number + 1) * self.step
        return [
            index
            for index, chunk in enumerate(self.chunks)
            if index not in self.base and chunk.first < stop and chunk.last >= start
        ]

    @property
    def packets(self) -> int:
        return -(-self.frames // self.step)


def stamp(root: Path, parts: tuple[str, ...]) -> tuple[Item, ...]:
    """What the meshes directory holds; changes when anything in it does."""
    return tuple(listing(root, (*parts, MESHES), MOST_OBJECTS + 1))


def read_shape(root: Path, parts: tuple[str, ...], items: Iterable[Item]) -> Shape:
    """Index the archives of ``items``. Raises ``NoGeometry`` when there is none or one cannot be read."""
    archives: dict[int, MeshArchive] = {}
    for item in items:
        number = mesh_id(item.name)
        if number is None or item.folder or not item.name.endswith(ARCHIVE_SUFFIX):
            continue
        try:
            archives[number] = MeshArchive(root.joinpath(*parts, MESHES, item.name), f"{MESHES}/{item.name}")
        except ArchiveError as error:
            raise NoGeometry(str(error)) from error
    if not archives:
        raise NoGeometry(f"{MESHES}/ holds no mesh archive")
    if len(archives) > MOST_OBJECTS:
        raise NoGeometry(f"{MESHES}/ holds more than {MOST_OBJECTS} archives")
    return _shape(dict(sorted(archives.items())))


def _shape(archives: dict[int, MeshArchive]) -> Shape:
    chunks: list[Chunk] = []
    tables: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for number, archive in archives.items():
        with archive.open() as opened:
            for table, key, faces in zip(tables, (vertices_key, faces_key), (False, True), strict=True):
                seen: dict[tuple[int, int], int] = {}
                table[number] = []
                for frame in archive.frames:
                    member = opened.member(key(frame))
                    index = seen.setdefault((member.crc, member.size), len(chunks))
                    if index == len(chunks):
                        chunks.append(Chunk(number, frame, faces, member.size, frame, frame))
                    else:
                        old = chunks[index]
                        chunks[index] = Chunk(number, old.frame, faces, old.size, old.first, frame)
                    table[number].append(index)
    frames = max(archive.frames.stop for archive in archives.values())
    changing = sum(chunk.size for chunk in chunks if chunk.first == chunk.last)
    step = max(1, min(LONGEST_PACKET, int(PACKET * frames / max(changing, 1))))
    base = frozenset(index for index, chunk in enumerate(chunks) if chunk.first // step != chunk.last // step)
    return Shape(archives, chunks, *tables, frames, step, base)


def describe(root: Path, parts: tuple[str, ...], shape: Shape) -> dict[str, Any]:
    """The index as JSON types, with the camera if it can be read."""
    camera: dict[str, Any] | None = None
    problem = ""
    if any(item.name == CAMERA and not item.folder for item in listing(root, parts)):
        try:
            intrinsics, extrinsic = read_camera(root.joinpath(*parts, CAMERA))
            camera = {"intrinsics": intrinsics.tolist(), "extrinsic": extrinsic.tolist()}
        except ValueError as error:
            problem = str(error)
    objects = [
        {
            "id": number,
            "first": archive.frames.start,
            "positions": _runs(shape.positions[number]),
            "faces": _runs(shape.faces[number]),
        }
        for number, archive in shape.archives.items()
    ]
    return {
        "version": VERSION,
        "frames": shape.frames,
        "step": shape.step,
        "packets": shape.packets,
        "chunks": len(shape.chunks),
        "objects": objects,
        "camera": camera,
        "camera_problem": problem,
    }


def _runs(numbers: list[int]) -> list[list[int]]:
    """Run lengths: ``[chunk, frames]`` pairs."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][0] == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def pack(shape: Shape, numbers: Iterable[int]) -> bytes:
    """The packet with these chunks. Raises ``NoGeometry`` when an array is broken."""
    parts: list[bytes] = []
    count = 0
    by_object: dict[int, list[int]] = {}
    for number in numbers:
        by_object.setdefault(shape.chunks[number].object, []).append(number)
    for owner, members in by_object.items():
        archive = shape.archives[owner]
        try:
            with archive.open() as opened:
                for number in members:
                    chunk = shape.chunks[number]
                    vertices, faces = archive.read(opened, chunk.frame)
                    parts.append(_faces(number, faces) if chunk.faces else _positions(number, vertices))
                    count += 1
        except ArchiveError as error:
            raise NoGeometry(str(error)) from error
    return struct.pack("<4sII", MAGIC, VERSION, count) + b"".join(parts)


def _positions(number: int, vertices: np.ndarray[Any, Any]) -> bytes:
    low = vertices.min(axis=0) if len(vertices) else np.zeros(3, np.float32)
    span = (vertices.max(axis=0) - low) if len(vertices) else np.zeros(3, np.float32)
    step = (span.astype(np.float64) / 65_535).astype(np.float32)
    scale = np.where(step > 0, step, 1).astype(np.float64)
    steps = np.clip(np.rint((vertices.astype(np.float64) - low) / scale), 0, 65_535).astype("<u2")
    head = struct.pack("<IIII6f", number, 0, len(vertices), 2, *low.tolist(), *step.tolist())
    return head + _padded(steps.tobytes())


def _faces(number: int, faces: np.ndarray[Any, Any]) -> bytes:
    width = 2 if not faces.size or int(faces.max()) < 65_536 else 4
    head = struct.pack("<IIII", number, 1, len(faces), width)
    return head + _padded(faces.astype("<u2" if width == 2 else "<u4").tobytes())


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
