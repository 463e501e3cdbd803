"""Archives of arrays (``.npz``), read defensively: headers and sizes first, never a pickle.

``numpy.load`` believes what an archive says of itself. Here the directory is read first, each array's header
is checked against the size of its member, and only then are bytes unpacked, as many as are asked for.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.record import replacing
from world.zipdir import ArchiveError, Descriptor, Member, Stream, naming, read_directory

__all__ = ["Archive", "ArchiveError", "Header", "naming", "write_archive"]

Array = npt.NDArray[Any]

READ_LIMIT = 256 << 20
"""Bytes of one array that are unpacked at once unless the caller allows more: 22 million vertices or faces.
"""
BLOCK = 4 << 20
"""Bytes that are unpacked at a time where an array is only looked through."""
BOMB_SIZE, BOMB_RATIO = 1 << 30, 200
"""A member that claims more than this many bytes, packed tighter than this, is refused as a decompression
bomb.
"""
_MAX_HEADER = 10_000
_KINDS = "biufU"
_SIDE = rb"(?:0|[1-9][0-9]{0,17})"
_USUAL = re.compile(
    rb"\{'descr': '([<>|=]?[A-Za-z][0-9]{0,9})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:%(n)b,(?: ?%(n)b(?:, ?%(n)b)*,?)?)?)\), ?\} *\n?" % {b"n": _SIDE}
)
"""Headers as NumPy writes them."""
_PARSING = threading.Lock()


@dataclass(frozen=True)
class Header:
    """What an array's header declares. ``offset``: bytes before its data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """An open ``.npz`` file; use as a context manager.

    Reading is positional, so threads may share one archive, save for ``rows``, which keeps a position per
    member.
    """

    def __init__(self, file: Descriptor, members: Mapping[str, Member], path: Path) -> None:
        self.path = path
        self._file = file
        self._members = members
        self._headers: dict[str, Header] = {}
        self._streams: dict[str, Stream] = {}

    @classmethod
    def open(cls, path: Path | str) -> Archive:
        """Open a regular file and read its directory. Raises ``ArchiveError`` with the reason, whatever it
        is.
        """
        path = Path(path)
        # O_NONBLOCK: a pipe by that name must not block us for ever.
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise ArchiveError(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ArchiveError("is not a regular file")
            file = Descriptor(fd, status.st_size)
            members = {_array_name(name): member for name, member in read_directory(file).items()}
            _refuse_bombs(members.values(), status.st_size)
        except OSError as error:
            os.close(fd)
            raise ArchiveError(f"cannot be read: {error.strerror or error}") from error
        except BaseException:
            os.close(fd)
            raise
        return cls(file, members, path)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._streams.clear()
        os.close(self._file.fd)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays, without ``.npy``, in archive order."""
        return tuple(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def member(self, name: str) -> Member:
        """The directory entry of an array. Raises ``ArchiveError`` when there is none."""
        try:
            return self._members[name]
        except KeyError:
            raise ArchiveError(f"has no member {name!r}") from None

    def header(self, name: str) -> Header:
        """Shape and type of an array, checked against its member's size. Raises ``ArchiveError``."""
        found = self._headers.get(name)
        if found is None:
            member = self.member(name)
            found = self._headers[name] = _header(Stream(self._file, member), member, name)
        return found

    def read(self, name: str, *, limit: int = READ_LIMIT) -> Array:
        """A whole array, read-only. Raises ``ArchiveError`` when it is damaged or larger than ``limit``
        bytes.
        """
        member = self.member(name)
        stream = Stream(self._file, member)
        header = _header(stream, member, name)
        if header.nbytes > limit:
            raise ArchiveError(
                f"member {name!r} holds {_size(header.nbytes)}; at most {_size(limit)} are read"
            )
        data = np.frombuffer(stream.read(header.nbytes), dtype=header.dtype)
        return data.reshape(header.shape, order="F" if header.fortran else "C")

    def rows(self, name: str, start: int, stop: int, *, limit: int = READ_LIMIT) -> Array:
        """Rows ``start`` … ``stop − 1`` along the first axis, read-only, without holding the others.

        Cheapest when rows are asked for in order. Column-major arrays have no rows in one piece and are
        refused.
        """
        header = self.header(name)
        if header.fortran and len(header.shape) > 1:
            raise ArchiveError(f"member {name!r} is stored column-major and cannot be read row by row")
        if not header.shape or not 0 <= start <= stop <= header.shape[0]:
            raise ArchiveError(f"member {name!r} has no rows {start} to {stop}: its shape is {header.shape}")
        row = math.prod(header.shape[1:]) * header.dtype.itemsize
        count = (stop - start) * row
        if count > limit:
            raise ArchiveError(
                f"{stop - start} rows of {name!r} are {_size(count)}; at most {_size(limit)} fit"
            )
        target = header.offset + start * row
        stream = self._streams.get(name)
        if stream is None or stream.position > target:
            stream = self._streams[name] = Stream(self._file, self.member(name))
        while stream.position < target:
            stream.read(min(target - stream.position, 1 << 22))
        data = np.frombuffer(stream.read(count), dtype=header.dtype)
        return data.reshape(stop - start, *header.shape[1:])

    def blocks(self, name: str, *, size: int = BLOCK, limit: int = READ_LIMIT) -> Iterator[Array]:
        """The whole array as consecutive read-only blocks of rows, about ``size`` bytes each, unpacked once.

        Nothing is kept between blocks, and the checksum is verified with the last. An array without rows
        gives one empty block; so does a column-major one give one block with everything, which, like a single
        row, must not exceed ``limit`` bytes. Raises ``ArchiveError``.
        """
        header = self.header(name)
        stream = Stream(self._file, self.member(name))
        stream.read(header.offset)
        if not header.shape or header.fortran or header.nbytes <= size:
            if header.nbytes > limit:
                held = f"{_size(header.nbytes)} in one piece"
                raise ArchiveError(f"member {name!r} holds {held}; at most {_size(limit)} are read")
            data = np.frombuffer(stream.read(header.nbytes), dtype=header.dtype)
            yield data.reshape(header.shape, order="F" if header.fortran else "C")
            return
        row = math.prod(header.shape[1:]) * header.dtype.itemsize
        if row > limit:
            raise ArchiveError(f"a row of {name!r} holds {_size(row)}; at most {_size(limit)} are read")
        step = max(1, size // row)
        for start in range(0, header.shape[0], step):
            count = min(step, header.shape[0] - start)
            yield np.frombuffer(stream.read(count * row), dtype=header.dtype).reshape(
                count, *header.shape[1:]
            )


def write_archive(path: Path, arrays: Mapping[str, Array], *, compress: bool = True) -> None:
    """Write arrays as ``.npz`` (deflate level 6 or stored), atomically. No timestamps: same arrays, same
    bytes.
    """
    import zipfile

    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", method, allowZip64=True) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            archive.writestr(entry, buffer.getbuffer())


def _bomb(size: int, packed: int) -> bool:
    return size > BOMB_SIZE and size > BOMB_RATIO * max(packed, 1)


def _refuse_bombs(members: Iterable[Member], packed: int) -> None:
    """Refuse archives that cost far more time than they take space, by many members or by shared bytes."""
    ordered = sorted(members, key=lambda member: member.offset)
    for member, following in pairwise(ordered):
        # A member's own record is 30 bytes and its name; its data lie behind.
        if following.offset < member.offset + 30 + member.packed:
            raise ArchiveError("holds members that overlap: refused")
    # Members that are bombs on their own are refused when they are asked for, and cost nothing before.
    total = sum(member.size for member in ordered if not _bomb(member.size, member.packed))
    if _bomb(total, packed):
        raise ArchiveError(f"would unpack {_size(packed)} to {_size(total)}: refused")


def _array_name(name: str) -> str:
    return name.removesuffix(".npy")


def _header(stream: Stream, member: Member, name: str) -> Header:
    """Parse the ``.npy`` header at the start of ``stream`` and leave the stream behind it."""
    if _bomb(member.size, member.packed):
        raise ArchiveError(
            f"member {name!r} would unpack {_size(member.packed)} to {_size(member.size)}: refused"
        )
    if member.size < 12:
        raise ArchiveError(f"member {name!r} is not an array")
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise ArchiveError(f"member {name!r} is not an array")
    width = 2 if start[6] == 1 else 4
    length_bytes = stream.read(width)
    length = int.from_bytes(length_bytes, "little")
    if length > min(_MAX_HEADER, member.size - 8 - width):
        raise ArchiveError(f"member {name!r} has a header of {length} bytes")
    text = start + length_bytes + stream.read(length)
    try:
        shape, fortran, dtype = _parse(text, 8 + width)
    except Exception as error:
        # Whatever the parsers trip over (SyntaxError, RecursionError, MemoryError …) is a bad header.
        raise ArchiveError(f"member {name!r} has an unreadable header ({type(error).__name__})") from error
    if dtype.hasobject:
        raise ArchiveError(f"member {name!r} holds pickled Python objects, which are never read")
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise ArchiveError(f"member {name!r} holds {dtype}, which is no plain number type")
    if any(isinstance(side, bool) or not isinstance(side, int) or side < 0 for side in shape):
        raise ArchiveError(f"member {name!r} declares the shape {shape}")
    header = Header(tuple(shape), dtype, bool(fortran), len(text))
    if header.offset + header.nbytes != member.size:
        held = member.size - header.offset
        declared = f"shape {_shape(shape)} of {dtype} ({_size(header.nbytes)})"
        raise ArchiveError(f"member {name!r} declares {declared} but holds {_size(held)}")
    return header


def _parse(text: bytes, start: int) -> tuple[tuple[Any, ...], bool, np.dtype[Any]]:
    """Shape, order and type from a whole header, its dictionary beginning at ``start``."""
    usual = _USUAL.fullmatch(text, start)
    if usual is not None:
        shape = tuple(int(side) for side in usual[3].split(b",") if side.strip())
        return shape, usual[2] == b"True", np.dtype(usual[1].decode("ascii"))
    # NumPy's parser rests on Python's, which now and then fails in several threads at once (CPython 3.11):
    # a sound archive must not be called broken for that.
    with _PARSING:
        reader = io.BytesIO(text)
        version = np.lib.format.read_magic(reader)
        parse: Any = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        found: tuple[tuple[Any, ...], bool, np.dtype[Any]] = parse(reader)
        return found


def _shape(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            # Integer division first: a declared size can be too large for a float.
            return f"{min(count // (factor // 1024 or 1), 1 << 50) / 1024:.4g} {unit}"
    return f"{count} bytes"
