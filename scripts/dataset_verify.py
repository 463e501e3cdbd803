"""Whether what was downloaded is still what it was: every byte is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from case_tree import CasePlace
from dataset_layout import chosen
from dataset_record import NAME, CaseRecord

from contract.cases import valid_segment
from contract.errors import UserError
from contract.names import ESTIMATES, REFERENCE_VIDEO


def verify(
    cases: Path, data: Path, kinds: tuple[str, ...], wanted: list[str] | None, *, videos_only: bool
) -> dict[str, list[str]]:
    """Case → what is wrong with it, for every case with a record; prints those that are right.

    What is wrong is noted, so that the next download brings it again. Raises ``UserError`` when there is
    nothing to check.
    """
    known = {kind: sorted(_recorded(data / kind)) for kind in kinds}
    if not any(known.values()):
        raise UserError(
            f"holds no {NAME}: nothing was downloaded here", where=data, next_step="run without --verify"
        )
    names = chosen(wanted, kinds, known)
    places = [CasePlace(cases, data, kind, name) for kind in kinds for name in names.get(kind, [])]
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        checked = pool.map(lambda place: _faults(place, videos_only), places)
        for place, faults in zip(places, checked, strict=True):
            found[place.label] = faults
            if not faults:
                print(f"{place.label}: ok", flush=True)
    return {label: faults for label, faults in found.items() if faults}


def _recorded(directory: Path) -> Iterator[str]:
    if directory.is_dir():
        for path in directory.iterdir():
            if valid_segment(path.name) and (path / NAME).is_file():
                yield path.name


def _faults(place: CasePlace, videos_only: bool) -> list[str]:
    record = CaseRecord(place)
    labels = [label for label in record.labels() if not videos_only or label == REFERENCE_VIDEO]
    if not labels:
        return [f"{NAME} cannot be read; download the case again"]
    faults = []
    for label in labels:
        damaged = record.damaged(label)
        if damaged:
            record.doubt(label, damaged)
        for path, fault in damaged.items():
            name = f"{label}/{path}" if path else label
            remedy = "; if that is not your doing, remove it" if label.startswith(f"{ESTIMATES}/") else ""
            faults.append(f"{name} {fault}{remedy}")
    return faults
