"""Rows shared out to threads in blocks whose size does not depend on how many threads there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scorer.geometry.raster_cpu import default_threads


def in_blocks(count: int, block: int, work: Callable[[int, int], object], threads: int | None = None) -> None:
    """Call ``work(start, stop)`` for every block of rows. ``work`` must write to its own rows only and
    release the GIL where it matters.
    """
    spans = [(start, min(start + block, count)) for start in range(0, count, block)]
    workers = min(threads or default_threads(), len(spans))
    if workers <= 1:
        for span in spans:
            work(*span)
        return
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, *span) for span in spans]:
            done.result()
