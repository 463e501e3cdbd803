"""What of a case is there already: the rule by which a download skips, adopts, keeps or replaces."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from dataset_layout import Item
from dataset_record import CaseRecord
from dataset_sources import Source, content_fault
from hub_files import Published

from world.packed.unpack import file_digest


class Present(Enum):
    """What to do about an item."""

    LACKING = "lacking"
    """It is not there."""
    THERE = "there"
    """It is what is published."""
    KEPT = "kept"
    """Something else is there that is not ours to judge or to replace."""
    DAMAGED = "damaged"
    """It was placed by a download and has changed since, or is no whole copy of what is published."""
    OUTDATED = "outdated"
    """It was placed by a download, from another revision."""


def judge(item: Item, record: CaseRecord, source: Source) -> Present:
    """Whether an item has to be brought. What is found right is noted in the record.

    Nothing is read where size and time of every file are what they were. A file without a record is compared
    with what is published; an unpacked world without one cannot be, and is kept.
    """
    if not os.path.lexists(item.target):
        return Present.LACKING
    known = record.source(item.label)
    if known:
        if _another(known, item.published):
            return Present.OUTDATED
        changed = record.changed(item.label)
        if not changed:
            return Present.THERE
        if record.damaged(item.label, changed):
            return Present.KEPT if item.theirs and item.target.is_file() else Present.DAMAGED
        record.confirm(item.label)
        return Present.THERE
    if item.form == "world" or not item.target.is_file():
        return Present.KEPT
    if _equals(item, source):
        record.enter(item.label, origin(item, source))
        return Present.THERE
    return Present.KEPT if item.theirs else Present.DAMAGED


def origin(item: Item, source: Source) -> dict[str, Any]:
    """Where an item is from, for the record."""
    return {
        "dataset": item.repo,
        "revision": source.revision(item.repo),
        "file": item.published.path,
        "sha256": item.published.sha256,
        "size": item.published.size,
    }


def _another(known: dict[str, Any], published: Published) -> bool:
    """Whether what was placed is from another content than what is published now."""
    if known.get("sha256") and published.sha256:
        return bool(known["sha256"] != published.sha256)
    sizes = known.get("size"), published.size
    return None not in sizes and sizes[0] != sizes[1]


def _equals(item: Item, source: Source) -> bool:
    published = item.published
    if source.keeps and not published.sha256:
        if published.size != item.target.stat().st_size:
            return False
        original = source.bring(item.repo, published, item.target, lambda have, total: None)
        return file_digest(original) == file_digest(item.target)
    return not content_fault(item.target, published)
