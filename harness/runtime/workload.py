"""How long work will take, roughly and cheaply: what is long starts first, so that slots end together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO

_NESTED = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
_LONGEST_INDEX = 64 << 20


def world_cost(world: Path, video: Path) -> int:
    """Frames of the case's video times bytes of the world; 0 for a world that is not there."""
    return frame_count(video) * tree_bytes(world)


def video_cost(video: Path) -> int:
    """Frames times bytes of a video."""
    try:
        return frame_count(video) * video.stat().st_size
    except OSError:
        return 0


def tree_bytes(root: Path) -> int:
    """Bytes of all files below a directory; links are not followed, what cannot be read counts nothing."""
    return sum(_sizes(root))


def _sizes(root: Path) -> Iterator[int]:
    for directory, _, names in os.walk(root):
        for name in names:
            try:
                yield os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118
            except OSError:
                continue


@cache
def frame_count(video: Path) -> int:
    """Frames of an MP4 file by its own index, of the longest track; 1 where it has none that can be read.

    Box layout: ISO/IEC 14496-12, 8.7.3 (``stsz``: version and flags, sample size, sample count).
    """
    try:
        with video.open("rb") as stream:
            return max(1, *_counts(stream, 0, video.stat().st_size), 1)
    except OSError:
        return 1


def _counts(stream: IO[bytes], start: int, end: int) -> Iterable[int]:
    """Sample counts of all tracks between two offsets."""
    while start + 8 <= end:
        stream.seek(start)
        head = stream.read(16)
        if len(head) < 8:
            return
        length, kind, inner = int.from_bytes(head[:4]), head[4:8], start + 8
        if length == 1 and len(head) == 16:
            length, inner = int.from_bytes(head[8:]), start + 16
        elif length == 0:
            length = end - start
        if length < inner - start or start + length > end:
            return
        if kind in _NESTED and length <= _LONGEST_INDEX:
            yield from _counts(stream, inner, start + length)
        elif kind == b"stsz" and length >= inner - start + 12:
            stream.seek(inner + 8)
            yield int.from_bytes(stream.read(4))
        start += length
