"""A small stable sort for compiled code: numba's own sorts take seconds to compile in every kernel that uses
one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_RUN = 16
"""Runs of this length are sorted by insertion before they are merged."""


@njit(cache=True, nogil=True)
def sort(keys: np.ndarray) -> None:
    """Sort int64 (n,) ascending, in place; insertion, then bottom-up merges."""
    count = len(keys)
    for first in range(0, count, _RUN):
        for i in range(first + 1, min(first + _RUN, count)):
            key = keys[i]
            k = i - 1
            while k >= first and keys[k] > key:
                keys[k + 1] = keys[k]
                k -= 1
            keys[k + 1] = key
    if count <= _RUN:
        return
    other = np.empty(count, dtype=np.int64)
    width = _RUN
    while width < count:
        for first in range(0, count, 2 * width):
            middle = min(first + width, count)
            last = min(first + 2 * width, count)
            i = first
            j = middle
            for k in range(first, last):
                if j >= last or (i < middle and keys[i] <= keys[j]):
                    other[k] = keys[i]
                    i += 1
                else:
                    other[k] = keys[j]
                    j += 1
        keys[:] = other
        width *= 2
