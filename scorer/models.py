"""Which learned models a scoring needs, and whether they are there: settled before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from contract import checkpoint_store
from contract.errors import UserError
from contract.metrics import metrics_of, units_of
from contract.states import case_state
from scorer.manifest import Entry
from scorer.options import Options
from scorer.registry import MODEL_UNITS, Registry, model_key

ALLOW = "--allow-missing-models"


@dataclass(frozen=True)
class Models:
    """What a scoring may run.

    identity : of the checkpoint behind each unit that can be measured. skipped : why a unit cannot be, and is
    left out.
    """

    identity: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def find_models(
    entries: Sequence[Entry], options: Options, registry: Registry, say: Callable[[str], None]
) -> Models:
    """The models of the wanted types that any of the entries needs.

    A package that is not installed and a checkpoint that is missing, or not the published one, are told apart
    here, once; nothing is loaded. ``say`` is told of files that have to be read for their hash. Raises
    ``UserError`` that says what is wrong with each, unless the units concerned may be left out.
    """
    units = [unit for unit in MODEL_UNITS if needed(unit, entries, options)]
    if not units:
        return Models()
    estimators = {unit: _named(registry[model_key(unit)]) for unit in units}
    root = options.roots.checkpoints
    directories = dict.fromkeys(each.directory for each in estimators.values())
    faulty = checkpoint_store.faults(root, directories, say=say)
    skipped: dict[str, str] = {}
    for unit, estimator in estimators.items():
        reasons = missing_packages(estimator)
        if estimator.directory in faulty:
            reasons.append(faulty[estimator.directory])
        if reasons:
            skipped[unit] = "; ".join(reasons)
    if skipped and not options.allow_missing_models:
        raise UserError(in_words(skipped), next_step=f"install what is missing, or leave it out with {ALLOW}")
    return Models(
        {
            unit: checkpoint_store.identity(root, estimator.directory)
            for unit, estimator in estimators.items()
            if unit not in skipped
        },
        skipped,
    )


def needed(unit: str, entries: Sequence[Entry], options: Options) -> bool:
    """Whether the unit is wanted and can be scored on any of the cases."""
    wanted = any(unit in units_of(name) for name in options.types)
    return wanted and any(
        case_state(metric.key, entry.case) is None for entry in entries for metric in metrics_of(unit)
    )


def in_words(skipped: Mapping[str, str]) -> str:
    """One sentence on why units cannot be measured; those with the same reason together."""
    together: dict[str, list[str]] = {}
    for unit, reason in skipped.items():
        together.setdefault(reason, []).append(unit)
    return "; ".join(f"{', '.join(units)}: {reason}" for reason, units in together.items())


def missing_packages(estimator: Any) -> list[str]:
    """A sentence for each package that the estimator needs and that is not installed."""
    from scorer.estimators import base  # NumPy, which most scorings do without in this process

    return base.missing_packages(estimator)


def _named(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)
