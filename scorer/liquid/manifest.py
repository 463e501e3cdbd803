"""``solver/manifest.json``: where a liquid's bake lies and how its grid lies in the world."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.names import LIQUID_IDS_KEY, SOLVER, SOLVER_MANIFEST
from contract.record import read_json
from world.reader import World, WorldError
from world.validation.solver import check_solver, resolve_cache


@dataclass(frozen=True)
class Manifest:
    """The members that the extraction uses; solver time comes from the bake, not from here.

    cache : the bake's directory. first, last : cache frames that are covered, as listed.
    metres_per_unit : world metres per solver unit. domain_min : corner of the domain's box, world metres.
    liquid_ids : sorted mesh ids that show the liquid.
    """

    cache: Path
    first: int
    last: int
    metres_per_unit: float
    domain_min: tuple[float, float, float]
    liquid_ids: tuple[int, ...]


def read_manifest(world: World) -> Manifest:
    """The manifest of a world that has a ``solver`` directory. Raises ``WorldError`` on any violation."""
    moving = {number for material in world.materials for number in material.ids}
    report = check_solver(world.path, moving, world.ids, frames=world.frames, scorer=True)
    if report.violations:
        raise WorldError("; ".join(str(violation) for violation in report.violations))
    value: dict[str, Any] = read_json(world.path / SOLVER / SOLVER_MANIFEST)
    if not isinstance(value["cache"], str):
        raise WorldError(f"{SOLVER}/{SOLVER_MANIFEST}: cache must be text")
    first, last = value["frames"]
    x, y, z = (float(corner) for corner in value["domain_min"])
    return Manifest(
        cache=resolve_cache(world.path, value["cache"]),
        first=first,
        last=last,
        metres_per_unit=float(value["metres_per_unit"]),
        domain_min=(x, y, z),
        liquid_ids=tuple(sorted({int(number) for number in value[LIQUID_IDS_KEY]})),
    )
