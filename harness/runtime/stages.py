"""The stages of ``score.py``: which there are, in which order, and what each wants to be told."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.cases import kind
from contract.checkpoints import GROUP_METRICS, GROUP_MODELS
from contract.errors import UserError
from contract.metrics import BY_KEY, TYPE_BY_NAME
from contract.states import case_state


@dataclass(frozen=True)
class Stage:
    """One stage. package : of the repository that does it; module : its program.

    A program takes ``--queue DIR --worker NAME`` (see ``contract.workqueue``), the roots, and its own flags.
    tree : whether it sees the runs. flag : of ``score.py`` that chooses a part of the stage.
    """

    name: str
    package: str
    module: str
    tree: bool
    flag: str


PREPARE = Stage("prepare", "scorer", "scorer.prepare", False, "--only")
SCORE = Stage("score", "scorer", "scorer", True, "--type")
VIZ = Stage("viz", "visualizer", "visualizer", True, "--media")
STAGES = {stage.name: stage for stage in (PREPARE, SCORE, VIZ)}
"""In the order in which they run."""


def wanted_stages(text: str, root: Path) -> list[Stage]:
    """The stages of ``--stage``, in their order. Raises ``UserError`` for none, an unknown one, and one that
    this checkout (``root``) does not have.
    """
    names = {name.strip() for name in text.split(",") if name.strip()}
    there = [stage.name for stage in STAGES.values() if _is_built(stage, root)]
    expected = f"--stage {','.join(there)}"
    if not names:
        raise UserError("--stage names no stage", expected=expected)
    for name in sorted(names):
        if name not in STAGES:
            raise UserError(f"--stage {name}: no such stage", expected=expected)
        if name not in there:
            raise UserError(
                f"stage {name} is not built yet: there is no {STAGES[name].package}/", expected=expected
            )
    return [stage for stage in STAGES.values() if stage.name in names]


def _is_built(stage: Stage, root: Path) -> bool:
    return (root / stage.package).is_dir()


def check_belongs(flag: str, given: bool, stage: Stage, stages: Sequence[Stage]) -> None:
    """Raise ``UserError`` for a flag of a stage that was not asked for."""
    if given and stage not in stages:
        raise UserError(f"{flag} belongs to the stage {stage.name}, which was not asked for")


def names_of(given: Sequence[str], flag: str, what: str, known: Sequence[str]) -> list[str]:
    """Names of a repeatable, comma separated flag, in the order of ``known``, each once.

    Raises ``UserError`` for one that does not exist.
    """
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            like = difflib.get_close_matches(name, known, 1)
            raise UserError(
                f"{flag} {name}: no such {what}",
                expected=f"one of {', '.join(known)}",
                next_step=f"did you mean {like[0]}?" if like else "",
            )
    return [name for name in known if name in names]


def metric_types(given: Sequence[str]) -> list[str]:
    """Names out of ``--type``."""
    return names_of(given, "--type", "type", tuple(TYPE_BY_NAME))


def groups_named(given: Sequence[str]) -> list[str]:
    """Names out of ``--only``."""
    return names_of(given, "--only", "group", tuple(GROUP_MODELS))


def groups_needed(types: Sequence[str]) -> list[str]:
    """Groups of the prepare stage whose estimates the types rest on; all of them for no types."""
    wanted = set(types or TYPE_BY_NAME)
    return [group for group, keys in GROUP_METRICS.items() if any(BY_KEY[key].type in wanted for key in keys)]


def is_estimated(group: str, case: str) -> bool:
    """Whether a metric that applies to the case rests on the group; as the prepare stage decides it."""
    return any(kind(case) in BY_KEY[key].kinds for key in GROUP_METRICS[group])


def is_measured(type_name: str, case: str) -> bool:
    """Whether a metric of the type can be scored on the case."""
    return any(case_state(metric.key, case) is None for metric in TYPE_BY_NAME[type_name].metrics)
