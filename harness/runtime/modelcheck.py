"""Whether the checkpoints that stages will load are the published ones, before any container starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from contract import checkpoint_store
from contract.checkpoints import GROUP_MODELS, TYPE_MODELS, models_of
from contract.errors import UserError
from contract.metrics import TYPE_BY_NAME
from harness.runtime.stages import is_estimated, is_measured

ALLOW = "--allow-missing-models"


def models_for_types(types: Sequence[str], cases: Iterable[str]) -> tuple[str, ...]:
    """Checkpoints that scoring the types (all for none) on the cases loads."""
    cases = tuple(cases)
    used = [name for name in types or TYPE_BY_NAME if any(is_measured(name, case) for case in cases)]
    return models_of(TYPE_MODELS, used)


def models_for_groups(groups: Sequence[str], cases: Iterable[str]) -> tuple[str, ...]:
    """Checkpoints that preparing the groups loads for the cases."""
    cases = tuple(cases)
    return models_of(GROUP_MODELS, [name for name in groups if any(is_estimated(name, c) for c in cases)])


def faulty(store: Path | None, names: Sequence[str], say: Callable[[str], None]) -> Mapping[str, str]:
    """What is wrong with checkpoints: name → one line. ``say`` hears of files that are read for a hash."""
    if not names:
        return {}
    if store is None:
        return dict.fromkeys(names, "[scorer] checkpoints names no store")
    return checkpoint_store.faults(store, names, say=say)


def require(faults: Mapping[str, str], where: Path, way_out: str) -> None:
    """Raise ``UserError`` that names every fault; ``way_out`` : what else could be done."""
    if faults:
        lines = "; ".join(dict.fromkeys(faults.values()))
        raise UserError(f"models are missing: {lines}", where=where, next_step=f"get them, or {way_out}")
