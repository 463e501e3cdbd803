"""One dynamics archive: the paths of material points through the whole take."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.names import FACES_KEY, IDS_KEY, POS_KEY, TETS_KEY
from world.npz import READ_LIMIT, Archive, ArchiveError, naming

SPILL_BYTES = 1 << 30
"""Positions larger than this are unpacked to a scratch file and mapped, not held in memory."""


class Material:
    """A dynamics archive, checked on opening except for the positions, which are checked when they are read.

    name : file stem. ids : mesh ids that display it, as listed. frames, columns : F and N of ``pos``.
    faces : int32 (T, 3) or None. tets : int32 (K, 4) or None.
    """

    def __init__(self, path: Path, label: str = "") -> None:
        """label : how messages call the file. Raises ``ArchiveError`` when it breaks the world format."""
        self.path = path
        self.name = path.stem
        self._label = label or path.name
        with naming(self._label), Archive.open(path) as archive:
            unknown = sorted(set(archive.names) - {POS_KEY, IDS_KEY, FACES_KEY, TETS_KEY})
            if unknown:
                raise ArchiveError(f"{unknown[0]!r} is not a known member")
            for key in (POS_KEY, IDS_KEY):
                if key not in archive:
                    raise ArchiveError(f"{key} is missing")
            if FACES_KEY in archive and TETS_KEY in archive:
                raise ArchiveError("faces and tets exclude each other")
            header = archive.header(POS_KEY)
            if header.dtype != np.float32 or len(header.shape) != 3 or header.shape[2] != 3:
                raise ArchiveError(f"pos is {header.dtype} {header.shape}, expected float32 (F, N, 3)")
            self.frames, self.columns = header.shape[:2]
            ids = archive.read(IDS_KEY)
            if ids.dtype != np.uint16 or ids.ndim != 1 or ids.size == 0:
                raise ArchiveError(f"ids are {ids.dtype} {ids.shape}, expected uint16 (M,), M ≥ 1")
            self.ids: tuple[int, ...] = tuple(int(value) for value in ids)
            self.faces = self._cells(archive, FACES_KEY, 3)
            self.tets = self._cells(archive, TETS_KEY, 4)

    def _cells(self, archive: Archive, key: str, width: int) -> npt.NDArray[np.int32] | None:
        if key not in archive:
            return None
        cells = archive.read(key)
        if cells.dtype != np.int32 or cells.ndim != 2 or cells.shape[1] != width:
            raise ArchiveError(f"{key} are {cells.dtype} {cells.shape}, expected int32 (·, {width})")
        if cells.size and (int(cells.min()) < 0 or int(cells.max()) >= self.columns):
            raise ArchiveError(f"an index of {key} lies outside the {self.columns} columns")
        return cells

    @cached_property
    def pos(self) -> npt.NDArray[np.float32]:
        """Positions (F, N, 3) float32, world metres, NaN while a column is not alive; read-only.

        Raises ``ArchiveError`` when damaged. Large ones are mapped from an unnamed scratch file.
        """
        with naming(self._label), Archive.open(self.path) as archive:
            header = archive.header(POS_KEY)
            if header.fortran or header.nbytes <= SPILL_BYTES:
                values = archive.read(POS_KEY, limit=max(SPILL_BYTES, header.nbytes))
                return np.ascontiguousarray(values)
            return self._spilled(archive)

    def _spilled(self, archive: Archive) -> npt.NDArray[np.float32]:
        shape = (self.frames, self.columns, 3)
        with tempfile.TemporaryFile(prefix="4dcb-pos-") as scratch:
            mapped: np.memmap[Any, np.dtype[np.float32]] = np.memmap(scratch, np.float32, "w+", shape=shape)
        block = max(1, READ_LIMIT // max(1, self.columns * 12))
        for start in range(0, self.frames, block):
            stop = min(start + block, self.frames)
            mapped[start:stop] = archive.rows(POS_KEY, start, stop)
        mapped.flags.writeable = False
        return mapped

    def at(self, frame: int) -> npt.NDArray[np.float32]:
        """Positions (N, 3) at a frame."""
        found: npt.NDArray[np.float32] = self.pos[frame]
        return found
