"""The transcript directory of a run: it stays where the agent wrote it, so it is tidied in place."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from harness.runtime.delivery import MAX_NOTES, Bounds, printable
from harness.runtime.hardlinks import Names


def tidy_session(directory: Path, bounds: Bounds) -> tuple[list[str], str]:
    """Keep plain files of the session within the bounds of a delivery, remove everything else: links, special
    files, files with a name outside, and what is too much.

    Returns the names removed (the first of them), and a clause about what was too much, empty for nothing.
    """
    dropped: list[str] = []
    inside = Names(directory)
    files = size = 0
    excess = 0
    for place, directories, names in os.walk(directory, followlinks=False):
        for name in directories:
            path = Path(place, name)
            with suppress(OSError):
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                    path.chmod(0o700)
        for name in [*sorted(directories), *sorted(names)]:
            path = Path(place, name)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            plain = stat.S_ISREG(status.st_mode) and inside.all_inside(status)
            fits = (
                files < bounds.max_files
                and status.st_size <= bounds.max_file_bytes
                and size + status.st_size <= bounds.max_total_bytes
            )
            if plain and fits:
                files, size = files + 1, size + status.st_size
                continue
            excess += plain
            path.unlink(missing_ok=True)
            if len(dropped) < MAX_NOTES:
                dropped.append(printable(str(path.relative_to(directory))))
    cut = f"{excess} file(s) of the session were too many or too large" if excess else ""
    return dropped, cut
