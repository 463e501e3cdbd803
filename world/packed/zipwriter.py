"""Writing ``.npz`` archives: arrays in blocks, each array's size known before its first byte.

``zipfile`` cannot take what is compressed already. Here a frame that is equal to the one before is compressed
once, and nothing is held but a block.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import numpy as np

from world.packed.deflate import Packer, crc32, packer

_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_DATE = 0x21
"""1 January 1980: no timestamps, so that the same arrays give the same bytes."""
_UTF8 = 0x800
_MODE = 0o100644 << 16
_WIDE = 0xFFFFFFFF
_WIDE_FROM = 0xFF000000
"""Sizes from here on are written in 64 bits; below it, deflate's overhead still fits 32."""


class Packed(NamedTuple):
    """A compressed member. data : deflate. crc : of the ``size`` bytes before."""

    data: bytes
    crc: int
    size: int


class ArchiveWriter:
    """Writes one archive to a new file; use as a context manager. A failed block leaves a torso."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: list[bytes] = []

    def __enter__(self) -> ArchiveWriter:
        self._stream: IO[bytes] = self._path.open("xb", buffering=0)
        self._at = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                self._finish()

    def add(self, name: str, packed: Packed) -> None:
        """A whole member, compressed by :func:`pack`."""
        wide = packed.size >= _WIDE_FROM
        self._put(_local(name, packed.crc, len(packed.data), packed.size, wide), packed.data)
        self._enter(name, packed.crc, len(packed.data), packed.size, self._at, wide)
        self._at = self._stream.tell()

    def stream(self, name: str, header: bytes, blocks: Iterable[Any], size: int) -> None:
        """A member of ``size`` bytes, header included, compressed block by block."""
        wide, start = size >= _WIDE_FROM, self._at
        head = _local(name, 0, 0, 0, wide)
        self._put(head)
        engine, crc, packed, seen = packer(), 0, 0, 0
        for block in _headed(header, blocks):
            crc = crc32(block, crc)
            seen += len(block)
            packed += self._put(engine.compress(block))
        packed += self._put(engine.flush())
        if seen != size:
            raise ValueError(f"member {name!r} got {seen} bytes, not {size}")
        end = self._stream.tell()
        self._stream.seek(start)
        self._put(_local(name, crc, packed, size, wide))
        self._stream.seek(end)
        self._enter(name, crc, packed, size, start, wide)
        self._at = end

    def _put(self, *parts: bytes) -> int:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[self._stream.write(rest) :]
        return sum(map(len, parts))

    def _enter(self, name: str, crc: int, packed: int, size: int, offset: int, wide: bool) -> None:
        """Note a member for the directory."""
        values = [(size, wide), (packed, wide), (offset, offset >= _WIDE_FROM)]
        extra = _extra([value for value, is_wide in values if is_wide])
        size, packed, offset = (_WIDE if is_wide else value for value, is_wide in values)
        text, flags = _name(name)
        version = 45 if extra else 20
        fields = (version | 3 << 8, version, flags, 8, 0, _DATE, crc, packed, size, len(text), len(extra))
        self._entries.append(_ENTRY.pack(b"PK\x01\x02", *fields, 0, 0, 0, _MODE, offset) + text + extra)

    def _finish(self) -> None:
        start, count = self._at, len(self._entries)
        size = sum(map(len, self._entries))
        self._put(b"".join(self._entries))
        if count >= 0xFFFF or start + size >= _WIDE_FROM:
            end = self._stream.tell()
            record = (_END64.size - 12, 45 | 3 << 8, 45, 0, 0, count, count, size, start)
            self._put(_END64.pack(b"PK\x06\x06", *record), _LOCATOR.pack(b"PK\x06\x07", 0, end, 1))
            count, size, start = 0xFFFF, _WIDE, _WIDE  # all of them stand in the wide record
        self._put(_END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0))


def pack(header: bytes, data: Any) -> Packed:
    """Compress a whole member: an array's header and its bytes."""
    engine: Packer = packer()
    whole = b"".join((header, data))  # in one piece: ISA-L draws up its code from the first piece
    packed = engine.compress(whole) + engine.flush()
    return Packed(packed, crc32(whole, 0), len(whole))


def _headed(header: bytes, blocks: Iterable[Any]) -> Iterator[Any]:
    """The blocks, the header joined to the first."""
    rest = iter(blocks)
    yield b"".join((header, next(rest, b"")))
    yield from rest


@lru_cache(maxsize=256)
def array_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The ``.npy`` header that NumPy writes for a row-major array."""
    stream = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def array_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of a member that holds such an array."""
    return len(array_header(shape, dtype)) + math.prod(shape) * dtype.itemsize


def _local(name: str, crc: int, packed: int, size: int, wide: bool) -> bytes:
    text, flags = _name(name)
    extra = _extra([size, packed]) if wide else b""
    if wide:
        size = packed = _WIDE
    version = 45 if wide else 20
    fields = (version, flags, 8, 0, _DATE, crc, packed, size, len(text), len(extra))
    return _LOCAL.pack(b"PK\x03\x04", *fields) + text + extra


def _extra(values: list[int]) -> bytes:
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def _name(name: str) -> tuple[bytes, int]:
    text = f"{name}.npy"
    return text.encode("utf-8"), 0 if text.isascii() else _UTF8
