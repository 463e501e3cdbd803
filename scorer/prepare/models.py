"""Whether the models that are wanted can run here, found out before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from contract import checkpoint_store
from contract.errors import UserError
from scorer.estimators.base import Estimator, missing_packages
from scorer.prepare.table import Estimate


def require_models(root: Path, wanted: Iterable[Estimate], say: Callable[[str], None]) -> dict[str, str]:
    """Identity of each model's checkpoint, by directory. ``say`` hears of large files that are being hashed.

    Raises ``UserError`` that names every checkpoint and package that is missing or not the published one, and
    the commands that mend it.
    """
    models: dict[str, Estimator] = {each.model().directory: each.model() for each in wanted}
    faults = list(checkpoint_store.faults(root, models, say=say).values())
    packages = dict.fromkeys(fault for model in models.values() for fault in missing_packages(model))
    faults += packages
    if faults:
        raise UserError("; ".join(faults), next_step="mend that, or leave the groups out with --only")
    return {name: checkpoint_store.identity(root, name) for name in models}
