"""No symbolic links in a delivery: they point somewhere else on the machine that scores it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from world.validation.violation import Violation, reason


def check_links(root: Path) -> list[Violation]:
    """Every link at or below ``root``, named ``<base name of root>/<path>``; a missing root has none.

    Directories are visited top-down in the order of their names, links are never followed.
    """
    # ``.`` has a name of its own, too.
    name = Path(os.path.abspath(root)).name  # noqa: PTH100 - resolving would follow the link that is asked about
    try:
        mode = root.lstat().st_mode
    except (OSError, ValueError):
        return []
    if stat.S_ISLNK(mode):
        return [Violation(name, "", "must be a real directory, not a symbolic link")]
    if not stat.S_ISDIR(mode):
        return []
    found: list[Violation] = []
    pending = [(str(root), name)]
    while pending:
        path, label = pending.pop()
        try:
            with os.scandir(path) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            found.append(Violation(label, "", f"cannot be listed ({reason(error)})"))
            continue
        below: list[tuple[str, str]] = []
        for entry in listed:
            inner = f"{label}/{entry.name}"
            if entry.is_symlink():
                text = "is a symbolic link; links are forbidden, write the real file in its place"
                found.append(Violation(inner, "", text))
            elif entry.is_dir(follow_symlinks=False):
                below.append((entry.path, inner))
        pending.extend(reversed(below))
    return found
