"""Which records belong together: one judge's only, and whether they were made in one way."""

from __future__ import annotations

import json
from collections.abc import Sequence

from contract.errors import UserError
from vlm_judge.records import Row, text_of

UNNAMED = "(not named)"
"""Judge of records that name none, as the published comparisons."""


def by_judge(rows: Sequence[Row], wanted: str, notes: list[str]) -> dict[str, list[Row]]:
    """Rows by judge, sorted by name. Rows that name none are taken with the only judge that is named, and a
    note says so; where several are named they stand apart.

    wanted : keep this judge only; empty for all. Raises ``UserError`` when there is no such judge.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(text_of(row, "judge") or UNNAMED, []).append(row)
    if wanted:
        if wanted not in found:
            raise UserError(f"no record is by {wanted!r}", where="--judge", expected=", ".join(sorted(found)))
        return {wanted: found[wanted]}
    if len(found) == 2 and UNNAMED in found:
        (name,) = (name for name in found if name != UNNAMED)
        notes.append(f"{len(found[UNNAMED])} records name no judge; they are taken as {name}'s")
        found[name] += found.pop(UNNAMED)
    return dict(sorted(found.items()))


def mixed_settings(judge: str, rows: Sequence[Row]) -> list[str]:
    """A warning for each setting in which the records of one judge differ."""
    notes = []
    for key in ("prompt", "fps", "settings"):
        values = {json.dumps(row[key], sort_keys=True) for row in rows if row.get(key) is not None}
        if len(values) > 1:
            notes.append(f"{judge}: records made with {len(values)} values of {key!r} are put together")
    return notes
