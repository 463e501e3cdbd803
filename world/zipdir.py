"""The directory of a ZIP file, read with care and without unpacking anything.

Archives come from agents, so nothing in them is believed: offsets, sizes and counts are checked against the
file before memory is set aside. Only what NumPy writes is accepted: members stored or deflated, not
encrypted, each name once.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

STORED, DEFLATED = 0, 8

_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sLQL")
_LOCATOR_MARK = b"PK\x06\x07"
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_MARK = b"PK\x06\x06"
_ENTRY = struct.Struct("<4s6H3L5H2L")
_ENTRY_MARK = b"PK\x01\x02"
_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_MARK = b"PK\x03\x04"

MAX_MEMBERS = 20_100
"""Two members for each of 10 000 frames, and some."""
_MAX_DIRECTORY = MAX_MEMBERS * 512


class ArchiveError(ValueError):
    """An archive that cannot be read; the message says why, in one line."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the file's name before what :class:`ArchiveError` says inside the block."""
    try:
        yield
    except ArchiveError as error:
        raise ArchiveError(f"{name}: {error}") from error


class Member(NamedTuple):
    """One file in the archive: where its record starts, and its sizes in bytes."""

    offset: int
    method: int
    packed: int
    size: int
    crc: int


@dataclass(frozen=True)
class Descriptor:
    """An open file descriptor and its size; reads are positional, so threads can share it."""

    fd: int
    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes at ``offset``; ``ArchiveError`` when the file is shorter."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise ArchiveError("ends early: it points beyond its end")
        parts = []
        while count > 0:
            part = os.pread(self.fd, count, offset)
            if not part:
                raise ArchiveError("ends early")
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return b"".join(parts) if len(parts) != 1 else parts[0]


def read_directory(file: Descriptor) -> dict[str, Member]:
    """Members by name, in archive order. Raises ``ArchiveError``."""
    count, size, start, base = _locate(file)
    if count > MAX_MEMBERS or size > _MAX_DIRECTORY:
        raise ArchiveError(f"lists {count} members; at most {MAX_MEMBERS} are read")
    data = file.read(start, size)
    members: dict[str, Member] = {}
    position = 0
    while position < len(data):
        name, member, position = _entry(data, position, base)
        if name in members:
            raise ArchiveError(f"holds two members named {name!r}")
        if len(members) >= MAX_MEMBERS:
            raise ArchiveError(f"lists more than {MAX_MEMBERS} members")
        members[name] = member
    return members


def data_offset(file: Descriptor, member: Member) -> int:
    """Where the member's bytes begin, from its own record. Raises ``ArchiveError``."""
    record = file.read(member.offset, _LOCAL.size)
    fields = _LOCAL.unpack(record)
    if fields[0] != _LOCAL_MARK:
        raise ArchiveError("is damaged: a member's record is not where the directory says")
    return member.offset + _LOCAL.size + int(fields[9]) + int(fields[10])


class Stream:
    """Sequential reading of one member with bounded memory; the checksum is verified at its end."""

    _CHUNK = 1 << 20

    def __init__(self, file: Descriptor, member: Member) -> None:
        self._file = file
        self._member = member
        self._offset = data_offset(file, member)
        self._left = member.packed
        self._inflate = zlib.decompressobj(-15) if member.method == DEFLATED else None
        self._pending = b""
        self._crc = 0
        self.position = 0

    def read(self, count: int) -> bytes:
        """Exactly ``count`` further bytes of the unpacked member."""
        if self.position + count > self._member.size:
            raise ArchiveError("ends early: a member is shorter than its header says")
        parts = []
        missing = count
        while missing > 0:
            part = self._some(missing)
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts) if len(parts) != 1 else parts[0]
        self._crc = zlib.crc32(data, self._crc)
        self.position += count
        if self.position == self._member.size and self._crc != self._member.crc:
            raise ArchiveError("is damaged: a member's checksum is wrong")
        return data

    def _some(self, most: int) -> bytes:
        if self._inflate is None:
            return self._packed(most)
        while True:
            source = self._pending or (self._packed(max(self._CHUNK, most)) if self._left else b"")
            try:
                part = self._inflate.decompress(source, most)
            except zlib.error as error:
                raise ArchiveError(f"is damaged: {error}") from error
            self._pending = self._inflate.unconsumed_tail
            if part:
                return part
            if self._inflate.eof or not (self._pending or self._left):
                raise ArchiveError("ends early: a member holds less than its header says")

    def _packed(self, most: int) -> bytes:
        count = min(most, self._left)
        if count == 0:
            raise ArchiveError("ends early: a member holds less than its header says")
        data = self._file.read(self._offset, count)
        self._offset += count
        self._left -= count
        return data


def _locate(file: Descriptor) -> tuple[int, int, int, int]:
    """Count, size and start of the directory, and the offset that all its offsets are relative to."""
    tail_start = max(0, file.size - _END.size - 0xFFFF)
    tail = file.read(tail_start, file.size - tail_start)
    at = tail.rfind(_END_MARK)
    if at < 0 or at + _END.size > len(tail):
        raise ArchiveError("is not a ZIP archive" if file.size else "is empty")
    _, disk, first_disk, _, count, size, start, _ = _END.unpack_from(tail, at)
    end = tail_start + at
    if disk != first_disk:
        raise ArchiveError("is part of a split archive")
    if 0xFFFF in (count, disk) or 0xFFFFFFFF in (size, start):
        locator = end - _LOCATOR.size
        if locator >= 0:
            mark, _, where, _ = _LOCATOR.unpack(file.read(locator, _LOCATOR.size))
            if mark == _LOCATOR_MARK:
                record = _END64.unpack(file.read(where, _END64.size))
                if record[0] != _END64_MARK:
                    raise ArchiveError("is damaged: its 64-bit end record is missing")
                count, size, start = record[7], record[8], record[9]
                end = where
    base = end - size - start
    if base < 0 or start + base < 0:
        raise ArchiveError("is damaged: its directory lies outside the file")
    return int(count), int(size), int(start + base), int(base)


def _entry(data: bytes, position: int, base: int) -> tuple[str, Member, int]:
    if position + _ENTRY.size > len(data):
        raise ArchiveError("is damaged: its directory ends early")
    fields = _ENTRY.unpack_from(data, position)
    if fields[0] != _ENTRY_MARK:
        raise ArchiveError("is damaged: its directory holds something else than entries")
    flags, method, crc, packed, size = fields[3], fields[4], fields[7], fields[8], fields[9]
    name_length, extra_length, comment_length, offset = fields[10], fields[11], fields[12], fields[16]
    name_start = position + _ENTRY.size
    extra_start = name_start + name_length
    following = extra_start + extra_length + comment_length
    if following > len(data):
        raise ArchiveError("is damaged: its directory ends early")
    raw = data[name_start:extra_start]
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        name = raw.decode("cp437")
    if flags & 0x1:
        raise ArchiveError(f"holds the encrypted member {name!r}")
    if method not in (STORED, DEFLATED):
        raise ArchiveError(f"packs {name!r} with method {method}; only stored and deflated members are read")
    size, packed, offset = _wide(data[extra_start : extra_start + extra_length], size, packed, offset)
    if method == STORED and packed != size:
        raise ArchiveError(f"is damaged: the sizes of {name!r} disagree")
    return name, Member(offset + base, method, packed, size, crc), following


def _wide(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Replace fields that did not fit 32 bits by those of the ZIP64 extra field."""
    values = [size, packed, offset]
    position = 0
    while position + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, position)
        body = extra[position + 4 : position + 4 + length]
        if tag == 1:
            at = 0
            for index, value in enumerate(values):
                if value == 0xFFFFFFFF:
                    if at + 8 > len(body):
                        raise ArchiveError("is damaged: a 64-bit size is missing")
                    (values[index],) = struct.unpack_from("<Q", body, at)
                    at += 8
        position += 4 + length
    return values[0], values[1], values[2]
