"""What a packed world consists of, and how large any of it may be. Layout: protocol 4dcb-1, data scripts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from world.zipdir import MAX_MEMBERS

# Names inside an archive's group.
FRAMES, STACK, FLAT, LENGTHS, WIDTH = "frames", "stack", "flat", "lengths", "width"
DEFAULT_WIDTH = 4
MOST_DIGITS = 9

BLOCK = 16 << 20
"""Bytes that are read, compressed or copied at a time."""
LARGEST_ROW = 256 << 20
"""Bytes of one frame of an array: as many as the readers of worlds take."""
LARGEST_CHUNK = 512 << 20
"""Bytes of one HDF5 chunk, which can only be unpacked whole."""
MOST_NODES = 100_000
MOST_ARRAYS = MAX_MEMBERS
"""Arrays of one archive."""
BOMB_SIZE, BOMB_RATIO = 4 << 30, 1000
"""A file that claims to unpack to more bytes than this, and this many times its own size, is refused."""
_LONGEST_NAME = 200
_PLAIN = re.compile(r"[^/\\\x00]+")


class PackedError(ValueError):
    """A packed world that cannot be read or written; the message says why, in one line."""


@dataclass(frozen=True)
class Stored:
    """One dataset of the file. chunk : None when it is not chunked."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...] | None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of one step along the first axis; of everything where there is none."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def band(self) -> int:
        """Bytes of the chunks that hold one row, 0 when it is not chunked."""
        return self.row * min(self.chunk[0], max(self.shape[0], 1)) if self.chunk else 0

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunk) * self.dtype.itemsize if self.chunk else 0

    @property
    def memory(self) -> int:
        """Bytes that reading and compressing it block by block holds at most: the chunks of a row, a filter's
        copies of one, a block, and its compressed forms.
        """
        block = min(self.nbytes, max(BLOCK, self.row))
        return min(self.band, LARGEST_CHUNK) + 2 * self.chunk_bytes + block + 5 * min(self.nbytes, BLOCK)


@dataclass(frozen=True)
class Plain:
    """A dataset that is one array of the archive."""

    name: str
    stored: Stored

    def members(self) -> list[str]:
        """Its one name."""
        return [self.name]

    @property
    def memory(self) -> int:
        """Bytes that writing it holds at most."""
        return self.stored.memory


@dataclass(frozen=True)
class Series:
    """A dataset that is an array for each frame, ``<name>_TTTT``.

    lengths : rows of each frame's array, or None when each is one row of ``stored``.
    """

    name: str
    frames: tuple[int, ...]
    width: int
    stored: Stored
    lengths: tuple[int, ...] | None

    def members(self) -> list[str]:
        """Names of the arrays in order."""
        return [f"{self.name}_{frame:0{self.width}d}" for frame in self.frames]

    @property
    def largest(self) -> int:
        """Bytes of the largest frame."""
        return self.stored.row * max(self.lengths or (1,))

    @property
    def memory(self) -> int:
        """Bytes that writing it holds at most; frames that are cut out of blocks are put together first."""
        return self.stored.memory + (2 * self.largest if self.lengths is not None else 0)


Part = Plain | Series


@dataclass(frozen=True)
class Unit:
    """One file of the unpacked world, which can be written by itself.

    kind : ``archive`` (``node`` is a group) or ``file`` (a dataset of bytes). target : path below the world.
    raw : bytes before compression. memory : bytes that writing it holds at most.
    """

    kind: Literal["archive", "file"]
    node: str
    target: str
    raw: int
    memory: int


def check_name(name: str, where: str) -> None:
    """Raise ``PackedError`` unless ``name`` can be one level of a path."""
    if not _PLAIN.fullmatch(name) or name in (".", "..") or not name.isprintable():
        raise PackedError(f"{where} holds {name!r}, which is no file name")
    if len(name.encode()) > _LONGEST_NAME:
        raise PackedError(f"{where} holds a name of {len(name.encode())} bytes")


def check_size(stored: Stored) -> None:
    """Raise ``PackedError`` when a dataset cannot be read in bounded memory."""
    for what, size, most in (
        ("a frame", stored.row, LARGEST_ROW),
        ("a chunk", stored.chunk_bytes, LARGEST_CHUNK),
    ):
        if size > most:
            raise PackedError(
                f"{stored.path}: {what} of {stored.dtype} {stored.shape} holds {size} bytes; "
                f"at most {most} are read"
            )
