"""Free disk space, checked against a floor before each start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

GB = 1_000_000_000


def shortage(places: Iterable[Path], floor_gb: float) -> str:
    """What is short of space, one clause; empty when every place has ``floor_gb`` gigabytes free.

    A place that does not exist yet counts as the nearest directory above it that does.
    """
    for place in places:
        there = place
        while not os.path.lexists(there) and there != there.parent:
            there = there.parent
        try:
            free = shutil.disk_usage(there).free
        except OSError:
            continue
        if free < floor_gb * GB:
            return f"{free / GB:.2f} GB free for {place}, less than [agent] min_free_gb = {floor_gb:g}"
    return ""
