"""dynamics/<name>.npz: the paths of one piece of moving material, looked through in blocks of frames."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.names import ARCHIVE_SUFFIX, DYNAMICS, FACES_KEY, IDS_KEY, POS_KEY, TETS_KEY
from world.npz import READ_LIMIT, Archive, ArchiveError, Header
from world.validation.files import describe, is_directory, is_file, mode_of, names_in
from world.validation.meshes import index_fault
from world.validation.violation import Faults, Violation, reason

_MEMBERS = (POS_KEY, IDS_KEY, FACES_KEY, TETS_KEY)
_WIDTHS = {FACES_KEY: 3, TETS_KEY: 4}
_COLUMN_MAJOR_LIMIT = 512 << 20


@dataclass
class DynamicsReport:
    """What one dynamics archive holds. ``ids`` is None when it does not yield a usable list."""

    file: str
    violations: list[Violation] = field(default_factory=list)
    ids: frozenset[int] | None = None
    columns: int | None = None

    @property
    def name(self) -> str:
        return f"{DYNAMICS}/{self.file}"

    def add(self, key: str, text: str) -> None:
        self.violations.append(Violation(self.name, key, text))


@dataclass
class DynamicsListing:
    """The archives of ``dynamics/`` in the order of their names, and entries that nothing reads."""

    files: list[str] | None
    fault: Violation | None = None
    ignored: list[str] = field(default_factory=list)


def list_dynamics(world: Path) -> DynamicsListing:
    """List ``dynamics/`` (D1). ``files`` is None when it is no directory."""
    directory = world / DYNAMICS
    if not is_directory(directory):
        text = (
            f"is required: a directory with one <name>{ARCHIVE_SUFFIX} per moving material, or none; "
            "solver and static rule are checked once it is there"
        )
        return DynamicsListing(None, Violation(DYNAMICS, "path", text))
    try:
        names = names_in(directory)
    except OSError as error:
        fault = Violation(DYNAMICS, "path", f"cannot be listed ({reason(error)})")
        return DynamicsListing(None, fault)
    files = [name for name in names if name.endswith(ARCHIVE_SUFFIX)]
    return DynamicsListing(files, ignored=[name for name in names if not name.endswith(ARCHIVE_SUFFIX)])


def check_dynamics(world: Path, file: str, frames: int | None, declared: Collection[int]) -> DynamicsReport:
    """Look through one archive (D2–D15) in blocks of a few megabytes.

    frames : of the render, None when unknown. declared : ids that the names in ``meshes/`` declare.
    """
    report = DynamicsReport(file)
    path = world / DYNAMICS / file
    mode = mode_of(path)
    if mode is not None and not is_file(path):
        report.add("npz", f"is {describe(mode)}, not a regular file")
        return report
    try:
        with Archive.open(path) as archive:
            fault = _check_members(archive, report.name)
            if fault is not None:
                report.violations.append(fault)
                return report
            _check_pos(archive, frames, report)
            _check_ids(archive, declared, report)
            _check_connectivity(archive, report)
    except (ArchiveError, OSError, MemoryError) as error:
        # An archive that cannot be read has no other faults, and no ids.
        return DynamicsReport(file, [Violation(report.name, "npz", reason(error))])
    return report


def _check_members(archive: Archive, name: str) -> Violation | None:
    """D3–D5, one violation that names them all."""
    faults = Faults(name)
    for member in sorted(set(archive.names) - set(_MEMBERS)):
        faults.add(member, f"is no member of a dynamics archive; only {', '.join(_MEMBERS)} are")
    for member in (POS_KEY, IDS_KEY):
        if member not in archive:
            faults.add(member, "is required")
    if FACES_KEY in archive and TETS_KEY in archive:
        text = "is given twice: write tets for a solid simulated by volume, faces for a surface, not both"
        faults.add("connectivity", text)
    return faults.violation() if faults else None


def _check_pos(archive: Archive, frames: int | None, report: DynamicsReport) -> None:
    """D6–D9: the first that applies."""
    header = archive.header(POS_KEY)
    if len(header.shape) == 3:
        report.columns = header.shape[1]
    if header.dtype != np.float32:
        report.add(POS_KEY, f"is {header.dtype}, expected float32")
    elif len(header.shape) != 3 or header.shape[2] != 3:
        report.add(POS_KEY, f"has shape {header.shape}, expected (F, N, 3)")
    elif frames is not None and header.shape[0] != frames:
        report.add(POS_KEY, f"has {header.shape[0]} frames, render.mp4 has {frames}; they must be equal")
    else:
        _check_lifetimes(archive, header, report)


def _check_lifetimes(archive: Archive, header: Header, report: DynamicsReport) -> None:
    """D9: each point is finite or NaN as a whole, over one interval that is not empty."""
    lives = Lifetimes(header.shape[1])
    limit = _COLUMN_MAJOR_LIMIT if header.fortran else READ_LIMIT
    for block in archive.blocks(POS_KEY, limit=limit):
        lives.add(block)
    fault = lives.fault()
    if fault:
        report.add(*fault)


class Lifetimes:
    """State of N columns while frames pass by: whether each is alive, and how many lives it has had."""

    def __init__(self, columns: int) -> None:
        self._frame = 0
        self._mixed: tuple[int, int] | None = None
        self._alive = np.zeros(columns, dtype=bool)
        self._lives = np.zeros(columns, dtype=np.int64)

    def add(self, block: npt.NDArray[np.float32]) -> None:
        """Take the next frames, float32 (f, N, 3)."""
        if len(block) == 0:
            return
        finite = np.isfinite(block)
        alive = finite[:, :, 0] & finite[:, :, 1] & finite[:, :, 2]
        if alive.all():
            # The common case needs no second look at the values.
            self._lives += ~self._alive
        else:
            mixed = ~alive
            mixed[mixed] = ~np.isnan(block[mixed]).all(axis=1)
            if self._mixed is None and mixed.any():
                frame, column = np.unravel_index(int(np.argmax(mixed)), mixed.shape)
                self._mixed = (self._frame + int(frame), int(column))
            self._lives += alive[0] & ~self._alive
            self._lives += (alive[1:] & ~alive[:-1]).sum(axis=0)
        self._alive = alive[-1]
        self._frame += len(block)

    def fault(self) -> tuple[str, str] | None:
        """Field and text of the first rule that is broken, or None."""
        if self._mixed is not None:
            frame, column = self._mixed
            text = "must be all finite or all NaN: a point is there as a whole or not at all"
            return f"{POS_KEY}[{frame},{column}]", text
        never, several = self._lives == 0, self._lives > 1
        if never.any():
            count = int(never.sum())
            text = f"is never finite: its lifetime is empty ({count} such columns in all)"
            return f"{POS_KEY}[:,{int(np.argmax(never))}]", text
        if several.any():
            count = int(several.sum())
            text = f"comes back after NaN: a lifetime must be one interval ({count} such columns in all)"
            return f"{POS_KEY}[:,{int(np.argmax(several))}]", text
        return None


def _check_ids(archive: Archive, declared: Collection[int], report: DynamicsReport) -> None:
    """D10–D12."""
    header = archive.header(IDS_KEY)
    if header.dtype != np.uint16:
        report.add(IDS_KEY, f"is {header.dtype}, expected uint16")
        return
    if len(header.shape) != 1 or header.shape[0] == 0:
        report.add(
            IDS_KEY,
            f"has shape {header.shape}, expected (M,) with M >= 1: the meshes that show this material",
        )
        return
    present = np.zeros(1 << 16, dtype=bool)
    for block in archive.blocks(IDS_KEY):
        present[block] = True
    report.ids = frozenset(np.flatnonzero(present).tolist())
    strangers = sorted(report.ids.difference(declared))
    if strangers:
        more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        report.add(IDS_KEY, f"lists {strangers[0]}{more}, for which there is no meshes/{strangers[0]}.npz")


def _check_connectivity(archive: Archive, report: DynamicsReport) -> None:
    """D13–D15 for the member that is there."""
    for key, width in _WIDTHS.items():
        if key not in archive:
            continue
        header = archive.header(key)
        if header.dtype != np.int32:
            report.add(key, f"is {header.dtype}, expected int32")
        elif len(header.shape) != 2 or header.shape[1] != width:
            report.add(key, f"has shape {header.shape}, expected ({'T' if width == 3 else 'K'}, {width})")
        else:
            # Looked through even when N is unknown: a damaged member must not pass.
            fault = ""
            # Looked through even when N is unknown: a damaged member must not pass.
            for block in archive.blocks(key):
                if not fault and report.columns is not None:
                    fault = index_fault(block, report.columns, f"columns of {POS_KEY}")
            if fault:
                report.add(key, fault)
