"""From a packed world to the world format: one file at a time, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.names import DYNAMICS, MESHES
from world.packed.layout import BLOCK, Plain, Series, Unit
from world.packed.reading import PackedWorld, open_packed
from world.packed.zipwriter import ArchiveWriter, Packed, array_header, array_size, pack

Advance = Callable[[int], None]
"""Told how many further bytes, before compression, have been dealt with."""

DIRECTORIES = (MESHES, DYNAMICS)
"""A world has both, also where they are empty."""


def unpack_world(packed: Path, target: Path, advance: Advance = lambda count: None) -> list[Unit]:
    """Unpack a whole world into the new directory ``target``; the files that were written.

    Raises ``PackedError``, ``OSError``. What was written until then stays.
    """
    with open_packed(packed) as world:
        units = world.units()
        prepare(target, units)
        for unit in units:
            write_unit(world, unit, target / unit.target, advance)
    return units


def prepare(target: Path, units: list[Unit]) -> None:
    """Make the new directory and every directory inside it."""
    target.mkdir()
    for directory in {*DIRECTORIES, *(str(PurePosixPath(unit.target).parent) for unit in units)}:
        (target / directory).mkdir(parents=True, exist_ok=True)


def write_unit(world: PackedWorld, unit: Unit, path: Path, advance: Advance = lambda count: None) -> None:
    """Write one file of a world and flush it to the disk. Raises ``PackedError``, ``OSError``."""
    if unit.kind == "archive":
        with ArchiveWriter(path) as archive:
            for part in world.parts(unit.node):
                if isinstance(part, Plain):
                    _write_plain(world, archive, part, advance)
                else:
                    _write_series(world, archive, part, advance)
    else:
        with path.open("xb") as stream:
            for block in world.content(unit.node):
                stream.write(block)
                advance(len(block))
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_plain(world: PackedWorld, archive: ArchiveWriter, part: Plain, advance: Advance) -> None:
    stored = part.stored
    blocks = _told(world.rows(stored), advance)
    size = array_size(stored.shape, stored.dtype)
    archive.stream(part.name, array_header(stored.shape, stored.dtype), blocks, size)


def _write_series(world: PackedWorld, archive: ArchiveWriter, part: Series, advance: Advance) -> None:
    """An array for each frame; a small one that is equal to the frame before is compressed once."""
    stored, before, packed = part.stored, None, Packed(b"", 0, 0)
    for name, shape, view in zip(part.members(), _shapes(part), frames_of(world, part), strict=True):
        if len(view) > BLOCK:
            before = None
            size = array_size(shape, stored.dtype)
            blocks = (view[start : start + BLOCK] for start in range(0, len(view), BLOCK))
            archive.stream(name, array_header(shape, stored.dtype), blocks, size)
            advance(len(view))
            continue
        data = bytes(view)
        if data != before:
            packed, before = pack(array_header(shape, stored.dtype), data), data
        archive.add(name, packed)
        advance(len(data))


def _shapes(part: Series) -> Iterator[tuple[int, ...]]:
    rest = part.stored.shape[1:]
    if part.lengths is None:
        yield from [rest] * len(part.frames)
    else:
        yield from ((length, *rest) for length in part.lengths)


def frames_of(world: PackedWorld, part: Series) -> Iterator[memoryview]:
    """The bytes of each frame's array, cut out of consecutive blocks."""
    stored = part.stored
    lengths = part.lengths if part.lengths is not None else (1,) * len(part.frames)
    sizes = iter([length * stored.row for length in lengths])
    size, pending = next(sizes, None), bytearray()
    for block in world.rows(stored):
        rest = _bytes(block)
        while size is not None and len(pending) + len(rest) >= size:
            missing = size - len(pending)
            if pending:
                pending += rest[:missing]
                yield memoryview(bytes(pending))
                pending.clear()
            else:
                yield rest[:missing]
            rest, size = rest[missing:], next(sizes, None)
        pending += rest


def _told(blocks: Iterator[npt.NDArray[Any]], advance: Advance) -> Iterator[memoryview]:
    for block in blocks:
        for start in range(0, max(block.nbytes, 1), BLOCK):
            part = _bytes(block)[start : start + BLOCK]
            yield part
            advance(len(part))


def _bytes(block: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
