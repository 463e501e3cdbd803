"""Whether a packed world holds what the world does, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from world.npz import Archive
from world.packed.layout import Plain, Series, Unit
from world.packed.pack import files_of
from world.packed.reading import PackedWorld, open_packed
from world.packed.unpack import frames_of


def differences(world: Path, packed: Path) -> Iterator[str]:
    """What is not the same in both, one line each; reads both whole, in bounded memory.

    Arrays are compared as numbers of a type in a shape; whether an archive kept them row-major is not packed.
    Raises ``PackedError``, ``world.npz.ArchiveError``, ``OSError``.
    """
    with open_packed(packed) as file:
        units = {unit.target: unit for unit in file.units()}
        present = {path.relative_to(world).as_posix() for path in files_of(world)}
        for name in sorted(present ^ set(units)):
            yield f"{name}: only in the {'world' if name in present else 'packed file'}"
        for name in sorted(present & set(units)):
            unit = units[name]
            if unit.kind == "archive":
                yield from _archive(file, unit, world / name)
            elif not _same_file(file, unit, world / name):
                yield f"{name}: other bytes"


def _same_file(file: PackedWorld, unit: Unit, path: Path) -> bool:
    with path.open("rb") as stream:
        same = all(stream.read(len(block)) == bytes(block) for block in file.content(unit.node))
        return same and not stream.read(1)


def _archive(file: PackedWorld, unit: Unit, path: Path) -> Iterator[str]:
    parts = file.parts(unit.node)
    packed = {name for part in parts for name in part.members()}
    with Archive.open(path) as archive:
        apart = sorted(packed ^ set(archive.names))
        yield from (f"{unit.target}: array {name} is only in one of them" for name in apart)
        for part in parts if not apart else []:
            found = _array(file, archive, part) if isinstance(part, Plain) else _series(file, archive, part)
            yield from (f"{unit.target}: array {name} differs" for name in found)


def _array(file: PackedWorld, archive: Archive, part: Plain) -> Iterator[str]:
    header = archive.header(part.name)
    pieces = (block.tobytes() for block in archive.blocks(part.name))
    blocks = (block.tobytes() for block in file.rows(part.stored))
    same = (header.shape, header.dtype) == (part.stored.shape, part.stored.dtype)
    if not same or not _same_pieces(pieces, blocks):
        yield part.name


def _series(file: PackedWorld, archive: Archive, part: Series) -> Iterator[str]:
    rest = part.stored.shape[1:]
    for at, (name, data) in enumerate(zip(part.members(), frames_of(file, part), strict=True)):
        header, shape = archive.header(name), (part.lengths[at], *rest) if part.lengths is not None else rest
        same = (header.shape, header.dtype) == (shape, part.stored.dtype)
        if not same or archive.read(name).tobytes() != bytes(data):
            yield name


def _same_pieces(first: Iterator[bytes], second: Iterator[bytes]) -> bool:
    """Whether two sequences of bytes are equal, however they are cut."""
    left = right = b""
    while True:
        left = left or next((piece for piece in first if piece), b"")
        right = right or next((piece for piece in second if piece), b"")
        count = min(len(left), len(right))
        if left[:count] != right[:count] or not count:
            return not left and not right
        left, right = left[count:], right[count:]
