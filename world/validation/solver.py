"""solver/: the manifest and cache of a liquid whose solver does not track particles."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from contract.names import CONTAINER, SOLVER, SOLVER_MANIFEST
from world.validation.files import Unreadable, is_directory, is_file, mode_of, read_json
from world.validation.violation import Violation, shown

NAME = f"{SOLVER}/{SOLVER_MANIFEST}"
KEYS = ("cache", "fps", "time_scale", "metres_per_unit", "domain_min", "frames", "liquid_ids")
_POSITIVE = ("fps", "time_scale", "metres_per_unit")
_RECORD = re.compile(r"config_([0-9]{4,12})\.uni")


@dataclass
class SolverReport:
    """Result of the solver checks. ``liquid_ids`` is empty when the manifest does not yield a usable list."""

    violations: list[Violation] = field(default_factory=list)
    advice: list[Violation] = field(default_factory=list)
    liquid_ids: frozenset[int] = frozenset()

    def add(self, key: str, text: str) -> None:
        self.violations.append(Violation(NAME, key, text))

    def advise(self, key: str, text: str) -> None:
        self.advice.append(Violation(NAME, key, text))


def resolve_cache(world: Path, cache: str) -> Path:
    """Where ``cache`` lies: container paths are mapped to this world, all others start at ``solver/``."""
    name = PurePosixPath(cache)
    if name.is_relative_to(CONTAINER.world):
        return world / name.relative_to(CONTAINER.world)
    if name.is_relative_to(CONTAINER.workspace):
        return world.parent / name.relative_to(CONTAINER.workspace)
    return world / SOLVER / cache


def inside(world: Path, path: Path) -> bool:
    """Whether ``path``, all links and dots resolved, lies in ``world``."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(world))
    except (OSError, ValueError):
        return False


def check_solver(
    world: Path,
    moving: Collection[int],
    readable: Collection[int],
    *,
    frames: int | None = None,
    scorer: bool = False,
) -> SolverReport:
    """Check ``solver/manifest.json`` (S1–S10, and S5b for the scorer); without ``solver`` all is well.

    moving : ids that dynamics archives list.
    readable : ids whose mesh archive is sound.
    frames : frame count of the render, None when unknown.
    """
    report = SolverReport()
    if mode_of(world / SOLVER) is None:
        return report
    if not is_file(world / SOLVER / SOLVER_MANIFEST):
        report.add("path", "is required when there is a solver directory")
        return report
    try:
        manifest = read_json(world / SOLVER / SOLVER_MANIFEST)
    except Unreadable as error:
        report.add("json", str(error))
        return report
    if not isinstance(manifest, dict):
        report.add("json", f"must be an object, not {type(manifest).__name__}")
        return report
    for key in KEYS:
        if key not in manifest:
            report.add(key, "is required")
    ids = _liquid_ids(manifest.get("liquid_ids"))
    span = _span(manifest.get("frames"))
    if "cache" in manifest:
        untracked = ids is not None and any(i not in moving for i in ids)
        _check_cache(report, world, manifest["cache"], span if untracked else None, scorer)
    _check_numbers(report, manifest, span, frames)
    _check_ids(report, manifest.get("liquid_ids"), ids, moving, readable)
    return report


def _check_cache(
    report: SolverReport, world: Path, cache: Any, span: tuple[int, int] | None, scorer: bool
) -> None:
    """S5, S5b. What only the scorer refuses is advice for the agent's checker."""
    refuse = report.add if scorer else report.advise
    if not isinstance(cache, str):
        report.advise("cache", f"should be text, a directory below {SOLVER}/, not {shown(cache)}")
        return
    path = resolve_cache(world, cache)
    if not is_directory(path):
        report.add("cache", f"names no directory: {shown(cache)}")
        return
    if not inside(world, path):
        refuse("cache", f"lies outside the world and is not delivered with it: {shown(cache)}")
        return
    if span is not None:
        first, missing = missing_records(path, span)
        if missing:
            more = f" and {missing - 1} more" if missing > 1 else ""
            refuse("cache", f"holds no config record of frame {first:04d}{more}; bake the full timeline")


def missing_records(cache: Path, span: tuple[int, int]) -> tuple[int, int]:
    """First cache frame of ``span`` (inclusive) without ``config/config_NNNN.uni``, and how many there are.

    When the timeline starts at 0 and the cache does not, cache frame 1 is video frame 0. The cost depends on
    the files that exist, never on the numbers in the manifest.
    """
    try:
        with os.scandir(cache / "config") as entries:
            found = [entry.name for entry in entries]
    except OSError:
        found = []
    matches = [match for match in map(_RECORD.fullmatch, found) if match]
    # A record's name is its number in at least four digits: config_00012.uni is none.
    present = {int(match[1]) for match in matches if match[1] == f"{int(match[1]):04d}"}
    start, end = span
    if start == 0 and 0 not in present:
        start, end = 1, end + 1
    covered = sum(start <= frame <= end for frame in present)
    first = start
    while first in present:
        first += 1
    return first, end - start + 1 - covered


def _check_numbers(
    report: SolverReport, manifest: dict[str, Any], span: tuple[int, int] | None, frames: int | None
) -> None:
    """S6–S8."""
    for key in _POSITIVE:
        if key in manifest and not (_is_finite(manifest[key]) and manifest[key] > 0):
            report.add(key, f"must be a finite number above 0, is {shown(manifest[key])}")
    if "domain_min" in manifest:
        corner = manifest["domain_min"]
        if not (isinstance(corner, list) and len(corner) == 3 and all(map(_is_finite, corner))):
            report.add("domain_min", f"must be a list of 3 finite numbers, is {shown(corner)}")
    if "frames" in manifest and span is None:
        text = "must be a list of two whole numbers, 0 <= first <= last"
        report.add("frames", f"{text}, is {shown(manifest['frames'])}")
    elif span is not None and frames is not None and span[1] - span[0] >= frames:
        report.advise("frames", f"cover more than the {frames} frames of the render: {shown(list(span))}")


def _check_ids(
    report: SolverReport,
    value: Any,
    ids: list[int] | None,
    moving: Collection[int],
    readable: Collection[int],
) -> None:
    """S9, S10."""
    if ids is None:
        report.add("liquid_ids", "must be a non-empty list of the mesh ids that show the liquid")
        return
    report.liquid_ids = frozenset(ids)
    strangers = sorted(report.liquid_ids.difference(readable))
    if strangers:
        report.add("liquid_ids", f"have no sound mesh archive: {shown(strangers)}")
    if any(isinstance(item, bool) for item in value):
        report.advise("liquid_ids", "hold true or false, which count as 1 and 0; write numbers")
    tracked = sorted(report.liquid_ids.intersection(moving))
    if tracked:
        text = f"are also listed in dynamics, so no tracers are extracted for them: {shown(tracked)}"
        report.advise("liquid_ids", text)


def _liquid_ids(value: Any) -> list[int] | None:
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return [int(item) for item in value]
    return None


def _span(value: Any) -> tuple[int, int] | None:
    if not (isinstance(value, list) and len(value) == 2):
        return None
    if any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        return None
    first, last = value
    return (first, last) if 0 <= first <= last else None


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # A whole number beyond the range of floats.
        return False
