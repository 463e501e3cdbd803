"""From the world format to a packed world, array by array, checked by reading it back."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from contract.names import ARCHIVE_SUFFIX, CAMERA, DYNAMICS, MESHES
from contract.record import sync_directory
from world.npz import Archive, ArchiveError, Header, naming
from world.packed.filters import creation, load_plugins
from world.packed.layout import (
    BLOCK,
    FLAT,
    FRAMES,
    LENGTHS,
    MOST_DIGITS,
    STACK,
    WIDTH,
    PackedError,
    check_name,
)

CHUNK = 1 << 20
"""Bytes of a chunk, about: a frame, or several of a small object."""
LARGEST_CHUNK = 32 << 20
_MEMBER = re.compile(rf"(.+)_([0-9]{{4,{MOST_DIGITS}}})", re.DOTALL)
_KINDS = "biuf"
_STORED_AS_THEY_ARE = (".mp4", ".gz", ".vdb", ".png", ".jpg")


def pack_world(world: Path, packed: Path, *, choice: str = "zstd", level: int | None = None) -> None:
    """Write the world in the directory ``world`` as the file ``packed``, whole or not at all.

    choice : one of ``world.packed.filters.CHOICES``. level : the filter's own, None for a sensible one.
    Raises ``PackedError``, ``world.npz.ArchiveError``, ``OSError``.
    """
    try:
        import h5py
    except ImportError as error:
        raise PackedError("h5py is not installed: pip install 'fourdcodebench[data]'") from error
    load_plugins()
    options = creation(choice, level)
    files = files_of(world)
    with _new(packed) as new, h5py.File(new, "w", libver=("earliest", "v110")) as file:
        for path in files:
            name = path.relative_to(world).as_posix()
            if _is_archive(name):
                with naming(name):
                    _pack_archive(path, file.create_group(name.removesuffix(ARCHIVE_SUFFIX)), options)
            else:
                _pack_file(path, file, name, options)


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that replaces it when the block ends well, and vanishes when it does not."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        os.fchmod(handle, 0o644)
        yield temporary
        os.fsync(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    sync_directory(path.parent)


def files_of(world: Path) -> list[Path]:
    """Every file below a world, sorted. Raises ``PackedError`` at what cannot be packed."""
    if not (world / CAMERA).is_file():
        raise PackedError(f"{world} holds no {CAMERA}: it is no world")
    found = []
    for parent, directories, names in os.walk(world):
        directories.sort()
        for name in sorted((*directories, *names)):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            check_name(name, str(parent))
            if stat.S_ISREG(mode):
                found.append(path)
            elif not stat.S_ISDIR(mode):
                raise PackedError(f"{path} is neither a file nor a directory; nothing else can be packed")
    return sorted(found)


def _is_archive(name: str) -> bool:
    levels = name.split("/")
    return len(levels) == 2 and levels[0] in (MESHES, DYNAMICS) and name.endswith(ARCHIVE_SUFFIX)


def _pack_file(path: Path, file: Any, name: str, options: Any) -> None:
    size = path.stat().st_size
    plain = not size or path.suffix in _STORED_AS_THEY_ARE
    extra = {} if plain else {"chunks": (min(size, CHUNK),), **options}
    dataset = file.create_dataset(name, (size,), np.uint8, **extra)
    with path.open("rb") as stream:
        for start in range(0, size, BLOCK):
            part = np.frombuffer(stream.read(BLOCK), np.uint8)
            dataset[start : start + len(part)] = part


def _pack_archive(path: Path, group: Any, options: Any) -> None:
    with Archive.open(path) as archive:
        for name, members in _grouped(archive).items():
            headers = [archive.header(member) for member in members]
            if len(members) == 1 and members[0] == name:
                _pack_array(archive, name, headers[0], group, options)
            else:
                _pack_series(archive, name, members, headers, group, options)


def _grouped(archive: Archive) -> dict[str, list[str]]:
    """Members by the name that they are packed under: series where they fit together, else single arrays."""
    series: dict[str, list[str]] = {}
    for member in archive.names:
        header = archive.header(member)
        if header.dtype.kind not in _KINDS:
            raise ArchiveError(f"member {member!r} holds {header.dtype}, which HDF5 has no type for")
        match = _MEMBER.fullmatch(member)
        series.setdefault(match[1] if match else member, []).append(member)
    grouped: dict[str, list[str]] = {}
    for name, members in series.items():
        if name in archive or not _alike([archive.header(member) for member in members], members):
            grouped |= {member: [member] for member in members}
        else:
            grouped[name] = sorted(members)
    for name in grouped:
        check_name(name, "the archive")
    return grouped


def _alike(headers: Sequence[Header], members: Sequence[str]) -> bool:
    """Whether these arrays can lie behind one another: one type, one row, numbers of one width."""
    return (
        len({(header.dtype.str, header.shape[1:]) for header in headers}) == 1
        and all(header.shape for header in headers)
        and len({len(member) for member in members}) == 1
        and all(_MEMBER.fullmatch(member) for member in members)
    )


def _pack_array(archive: Archive, name: str, header: Header, group: Any, options: Any) -> None:
    dataset = _create(group, name, header.shape, header.dtype, options)
    if not header.shape:
        dataset[()] = archive.read(name)
        return
    start = 0
    for block in archive.blocks(name, size=BLOCK):
        dataset[start : start + len(block)] = block
        start += len(block)


def _pack_series(
    archive: Archive, name: str, members: Sequence[str], headers: Sequence[Header], group: Any, options: Any
) -> None:
    inner = group.create_group(name)
    digits = [_digits(member) for member in members]
    inner.attrs[WIDTH] = len(digits[0])
    inner.create_dataset(FRAMES, data=np.array([int(text) for text in digits], np.int64))
    lengths = [header.shape[0] for header in headers]
    rest, dtype = headers[0].shape[1:], headers[0].dtype
    if len(set(lengths)) == 1:
        dataset = _create(inner, STACK, (len(members), lengths[0], *rest), dtype, options)
        for index, member in enumerate(members):
            dataset[index] = archive.read(member)
        return
    inner.create_dataset(LENGTHS, data=np.array(lengths, np.int64))
    dataset = _create(inner, FLAT, (sum(lengths), *rest), dtype, options)
    start = 0
    for member, length in zip(members, lengths, strict=True):
        dataset[start : start + length] = archive.read(member)
        start += length


def _digits(member: str) -> str:
    match = _MEMBER.fullmatch(member)
    if match is None:
        raise ValueError(f"{member!r} ends in no number")
    return match[2]


def _create(group: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], options: Any) -> Any:
    """A dataset in chunks of whole rows, or, where a row is very large, of equal pieces of one."""
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if not shape or not size:
        return group.create_dataset(name, shape, dtype)
    row = size // shape[0]
    chunk = [min(shape[0], max(1, CHUNK // row)), *shape[1:]]
    if row > LARGEST_CHUNK and len(shape) > 1:
        chunk[1] = max(1, -(-shape[1] // -(-row // LARGEST_CHUNK)))
    if not options:
        return group.create_dataset(name, shape, dtype)
    return group.create_dataset(name, shape, dtype, chunks=tuple(chunk), **options)
