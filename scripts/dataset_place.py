"""Putting what was brought into its place: whole or not at all, whatever was there before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from case_tree import swap, workshop
from dataset_layout import Item
from unpack_slots import UnpackFault
from world_unpacking import Written, inspect, unpack

from contract.errors import one_line
from contract.names import DYNAMIC_MASK, DYNAMIC_MASK_KEY, REFERENCE_VIDEO
from contract.record import replacing, sync_directory
from world.npz import Archive, ArchiveError
from world.video import VideoError, probe

if TYPE_CHECKING:
    from unpack_slots import Slots

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SPARE = 64 << 20
"""Bytes that stay free on the disk."""
UNPACKED_SHARE = 0.8
"""Of the bytes of its arrays, what an unpacked world is taken to need; meshes take about two thirds."""
_BLOCK = 1 << 20


class PlaceFault(Exception):
    """Why one item could not be placed, in one line."""


def place_file(item: Item, found: Path, *, move: bool) -> None:
    """Put a file into its place; ``found`` stays unless ``move``. Raises ``PlaceFault``, ``OSError``."""
    if not item.published.sha256:
        _check_content(item, found)
    item.target.parent.mkdir(parents=True, exist_ok=True)
    if move:
        try:
            found.replace(item.target)
            sync_directory(item.target.parent)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    with replacing(item.target) as stream, found.open("rb") as source:
        shutil.copyfileobj(source, stream, _BLOCK)
    if move:
        found.unlink()


def place_world(
    item: Item,
    packed: Path,
    slots: Slots,
    advance: Callable[[float], None],
    note: Callable[[list[Written], Path], None],
) -> None:
    """Unpack a world beside its place and swap it in.

    advance : told of shares of the whole. note : told, before the swap, what was written and where it lies
    until then; a program that is killed in between must not leave a world that nobody knows.

    Raises ``PlaceFault``, ``OSError``; then nothing has changed.
    """
    try:
        units = inspect(slots, packed)
        raw = sum(unit.raw for unit in units) or 1
        item.target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(item.target.parent).free
        if raw * UNPACKED_SHARE + SPARE > free:
            text = f"unpacking needs about {raw * UNPACKED_SHARE / 1e9:.2f} GB, {free / 1e9:.2f} GB are free"
            raise OSError(errno.ENOSPC, text)
        with workshop(item.target.parent) as directory:
            draft = directory / item.target.name
            written = unpack(slots, packed, draft, lambda count: advance(count / raw), units)
            for path in [draft, *(path for path in draft.rglob("*") if path.is_dir())]:
                sync_directory(path)
            note(written, draft)
            swap(draft, item.target, directory / "old")
    except UnpackFault as error:
        if error.errno in FULL:
            raise OSError(error.errno, os.strerror(error.errno)) from error
        raise PlaceFault(str(error)) from error


def _check_content(item: Item, path: Path) -> None:
    """Look through a file whose hash nobody knows: a copy that ends early must not take its place."""
    if item.label == REFERENCE_VIDEO:
        try:
            probe(path)
        except VideoError as error:
            raise PlaceFault(f"{path}: {one_line(str(error))}") from error
    elif path.suffix == ".npz":
        try:
            with Archive.open(path) as archive:
                if item.label.endswith(DYNAMIC_MASK) and DYNAMIC_MASK_KEY not in archive:
                    raise ArchiveError(f"holds no array {DYNAMIC_MASK_KEY!r}")
                for name in archive.names:
                    for _ in archive.blocks(name):
                        pass
        except ArchiveError as error:
            raise PlaceFault(f"{path}: {one_line(str(error))}") from error
    elif not path.stat().st_size:
        raise PlaceFault(f"{path}: is empty")
