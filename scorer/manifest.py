"""The list of worlds to score, resolved to paths and checked before anything runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import names
from contract.errors import UserError
from contract.record import read_json


@dataclass(frozen=True)
class Roots:
    """Where the trees lie on this machine."""

    cases: Path
    data: Path
    runs: Path
    checkpoints: Path

    def of(self, name: str) -> Path:
        return {names.CASES: self.cases, names.DATA: self.data, names.RUNS: self.runs}[name]


@dataclass(frozen=True)
class Entry:
    """One world to score.

    case : ``<kind>/<case>``. world, out : resolved directories. sanity : the world is reference data scored
    against itself, which ships without a solution folder. The remaining paths belong to the case and may be
    absent on disk.
    """

    case: str
    world: Path
    out: Path
    video: Path
    case_data: Path
    sanity: bool = False

    @property
    def name(self) -> str:
        """How messages call this entry."""
        return str(self.world)

    @property
    def results(self) -> Path:
        return self.out / names.RESULTS

    @property
    def render(self) -> Path:
        return self.world / names.RENDER

    @property
    def build_script(self) -> Path:
        return self.world.parent / names.SOLUTION / names.BUILD_SCRIPT

    @property
    def estimates(self) -> Path:
        return self.case_data / names.ESTIMATES

    @property
    def reference(self) -> Path | None:
        """The reference world, or None when the case has none."""
        path = self.case_data / names.WORLD
        return path if path.is_dir() else None

    @property
    def annotation(self) -> Path | None:
        path = self.case_data / names.ANNOTATION / names.DYNAMIC_MASK
        return path if os.path.lexists(path) else None  # what is no file must not pass for none


def read_rows(path: Path, expected: str) -> list[Any]:
    """The JSON list in ``path``, its items as they are. Raises ``UserError``, which shows ``expected``."""
    try:
        rows = read_json(path)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=path, next_step="give --manifest PATH"
        ) from error
    except ValueError as error:
        raise UserError(f"not JSON: {error}", where=path) from error
    if not isinstance(rows, list):
        raise UserError("not a list", where=path, expected=expected)
    return rows


def read_manifest(path: Path, roots: Roots) -> list[Entry]:
    """Entries of a manifest, in its order. Raises ``UserError`` that names the entry that is wrong.

    A manifest is a JSON list of ``{"case": "<kind>/<case>", "world": "<root>/…", "out": "<root>/…"}``; root
    is one of ``cases``, ``data``, ``runs``. Unknown members are ignored.
    """
    rows = read_rows(path, '[{"case": …, "world": …, "out": …}, …]')
    entries = [_entry(row, f"{path}: entry {number}", roots) for number, row in enumerate(rows, 1)]
    _refuse_shared_outputs(entries, path)
    return entries


def require_cases(entries: list[Entry]) -> None:
    """Raise ``UserError`` for the first entry whose reference video is not on disk."""
    for number, entry in enumerate(entries, 1):
        if not entry.video.is_file():
            raise UserError(
                f"entry {number}: case {entry.case} has no {names.REFERENCE_VIDEO}",
                where=entry.video,
                next_step="check --cases, or add the case",
            )


def _entry(row: Any, where: str, roots: Roots) -> Entry:
    if not isinstance(row, dict):
        raise UserError("not an object", where=where, expected='{"case": …, "world": …, "out": …}')
    for member in ("case", "world", "out"):
        if member not in row:
            raise UserError(f"has no {member!r}", where=where)
        if not isinstance(row[member], str):
            raise UserError(f"{member!r} is not a text", where=where)
    case: str = row["case"]
    parts = case.split("/")
    if len(parts) < 2 or not _plain(parts):
        raise UserError(f"'case' is {case!r}", where=where, expected="<kind>/<case>")
    world = _resolve(row["world"], f"{where}: 'world'", roots)
    out = _resolve(row["out"], f"{where}: 'out'", roots)
    sanity = row["world"].split("/", 1)[0] == names.DATA
    return Entry(case, world, out, roots.cases / case / names.REFERENCE_VIDEO, roots.data / case, sanity)


def _resolve(text: str, where: str, roots: Roots) -> Path:
    root, _, rest = text.partition("/")
    if root not in names.MANIFEST_ROOTS:
        raise UserError(
            f"unknown root in {text!r}", where=where, expected=f"one of {', '.join(names.MANIFEST_ROOTS)}"
        )
    if not _plain(rest.removesuffix("/").split("/")):
        raise UserError(
            f"{text!r} is no path below {root}", where=where, expected="<root>/<rest> without . or .."
        )
    return roots.of(root) / rest


def _plain(parts: list[str]) -> bool:
    return all(part not in ("", ".", "..") and "\0" not in part for part in parts)


def _refuse_shared_outputs(entries: list[Entry], path: Path) -> None:
    seen: dict[Path, int] = {}
    for number, entry in enumerate(entries, 1):
        first = seen.setdefault(entry.out, number)
        if first != number:
            raise UserError(f"entries {first} and {number} have the same 'out' {entry.out}", where=path)
