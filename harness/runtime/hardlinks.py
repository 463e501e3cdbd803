"""Hard links: whether every name of a file lies inside one tree.

On the host an agent can link any file of its user into its workspace. Such a file is not its work, and
whoever collects it would publish it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

MAX_WALK = 2_000_000
"""Files that are looked at for their names; names beyond that count as outside."""
OUTSIDE = "a hard link to a file that has a name outside"


class Names:
    """How many names each file has below ``root``; looked up only when a file with several is met.

    The tree is walked once, at the first question: what collection moves away later does not matter, since it
    moves no file that has a name outside.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._counts: dict[tuple[int, int], int] | None = None

    def all_inside(self, status: os.stat_result) -> bool:
        """Whether every name of the file lies below the root."""
        if status.st_nlink == 1:
            return True
        if self._counts is None:
            self._counts = self._count()
        return self._counts.get((status.st_dev, status.st_ino), 0) >= status.st_nlink

    def _count(self) -> dict[tuple[int, int], int]:
        counts: dict[tuple[int, int], int] = {}
        seen = 0
        for place, _, files in os.walk(self._root, followlinks=False):
            for name in files:
                seen += 1
                if seen > MAX_WALK:
                    return counts
                with suppress(OSError):
                    status = Path(place, name).lstat()
                    if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                        key = status.st_dev, status.st_ino
                        counts[key] = counts.get(key, 0) + 1
        return counts
