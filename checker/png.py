"""Write a PNG without an image library."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.record import replacing


def write_png(path: Path, image: npt.NDArray[np.uint8]) -> None:
    """Write uint8 (H, W, 3) RGB to ``path``, atomically."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(f"an image must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    # Each row starts with the number of its filter: 0, none.
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = image.reshape(height, 3 * width)
    with replacing(path) as stream:
        stream.write(b"\x89PNG\r\n\x1a\n")
        stream.write(_chunk(b"IHDR", struct.pack(">2L5B", width, height, 8, 2, 0, 0, 0)))
        stream.write(_chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)))
        stream.write(_chunk(b"IEND", b""))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(data, zlib.crc32(kind)))
