"""The cases of a manifest: for this stage an entry needs no world and no place for results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import names
from contract.errors import UserError
from scorer.manifest import read_rows


@dataclass(frozen=True)
class Case:
    """One case. name : ``<kind>/<case>``. Paths may be absent on disk."""

    name: str
    video: Path
    data: Path

    @property
    def estimates(self) -> Path:
        return self.data / names.ESTIMATES

    @property
    def annotation(self) -> Path | None:
        path = self.data / names.ANNOTATION / names.DYNAMIC_MASK
        return path if path.is_file() else None


def read_cases(manifest: Path, cases: Path, data: Path) -> list[Case]:
    """Cases of a manifest, each once, at its first position. Raises ``UserError`` that names what is wrong.

    Of an entry only the member ``case`` is looked at.
    """
    rows = read_rows(manifest, '[{"case": "<kind>/<case>"}, …]')
    labels = dict.fromkeys(_label(row, f"{manifest}: entry {number}") for number, row in enumerate(rows, 1))
    return [Case(label, cases / label / names.REFERENCE_VIDEO, data / label) for label in labels]


def _label(row: Any, where: str) -> str:
    label = row.get("case") if isinstance(row, dict) else None
    if not isinstance(label, str):
        raise UserError("has no 'case'", where=where, expected='{"case": "<kind>/<case>"}')
    parts = label.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UserError(f"'case' is {label!r}", where=where, expected="<kind>/<case>")
    return label
