"""Arrays that may be larger than memory should hold: large ones live in a mapped scratch file."""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

SPILL_BYTES = 64 << 20
"""Arrays larger than this are mapped from an unnamed scratch file (below ``TMPDIR``), not held in memory."""


def frame_store(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """A writable array of zeros. The file of a mapped one goes with the last reference to it.

    Raises ``OSError`` (no space left) when the disk cannot hold a mapped one: the space is taken at once, as
    running out of it in the middle of a write to the mapping would kill the process.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= SPILL_BYTES:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="4dcb-frames-") as scratch:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(scratch.fileno(), 0, size)
        else:
            os.ftruncate(scratch.fileno(), size)
        return np.memmap(scratch, np.dtype(dtype), "r+", shape=shape)
