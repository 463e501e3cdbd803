"""The command line of ``python -m scorer``, parsed into one typed record."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from contract.errors import UserError
from contract.metrics import TYPE_BY_NAME, TYPES
from scorer.manifest import Roots

TASK_TIMEOUT = 1800.0
"""Seconds for one metric on one world."""
PREPARE_TIMEOUT = 600.0
"""Seconds for one preparation call: worker start, gate, reference, model load."""

STEP_NAMES = ("worker", "gate", "geometry", "reference", "registration", "sampling", "paths", "model_load")
MODEL_NAMES = {
    "semantic_dinov3": "semantic",
    "semantic_tips": "semantic",
    "geophys_dinov3": "geophys",
}
DEADLINE_NAMES = (*STEP_NAMES, *TYPE_BY_NAME, *MODEL_NAMES)
"""What ``--timeout NAME=SECONDS`` may name. A type's name also covers its single models."""


@dataclass(frozen=True)
class Deadlines:
    """How long each call into a worker may take, in seconds."""

    task: float = TASK_TIMEOUT
    prepare: float = PREPARE_TIMEOUT
    overrides: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, name: str, *, preparation: bool = False) -> float:
        """Deadline of the call ``name``: its override, its type's override, else the general one."""
        for candidate in (name, MODEL_NAMES.get(name, name)):
            if candidate in self.overrides:
                return self.overrides[candidate]
        return self.prepare if preparation else self.task


@dataclass(frozen=True)
class Options:
    """Everything the command line says. ``types`` are in table order; ``jobs`` worlds are scored at once.

    allow_missing_models : leave out what needs a model that is not there. queue : directory of a queue from
    which worlds are taken instead of the manifest; worker : this process's name there.
    """

    manifest: Path
    roots: Roots
    types: tuple[str, ...]
    deadlines: Deadlines = Deadlines()
    jobs: int = 1
    redo: bool = False
    allow_missing_models: bool = False
    queue: Path | None = None
    worker: str = ""


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors are a ``UserError``: one line with the next step."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, next_step=f"{self.prog} --help")


def parse(argv: Sequence[str] | None, built: Sequence[str]) -> Options:
    """Parse the command line. ``built`` are the types on offer. Raises ``UserError`` for anything wrong."""
    parser = _arguments(built)
    known = parser.parse_args(argv)
    roots = Roots(known.cases, known.data, known.runs, known.checkpoints)
    deadlines = Deadlines(
        _positive("--task-timeout", known.task_timeout),
        _positive("--prepare-timeout", known.prepare_timeout),
        dict(_override(text) for text in known.timeout),
    )
    if known.jobs < 1:
        raise UserError(f"--jobs {known.jobs}", expected="a number of worlds, at least 1")
    return Options(
        known.manifest, roots, _types(known.type, built), deadlines, known.jobs, known.redo,
        known.allow_missing_models, known.queue, known.worker,
    )  # fmt: skip


def _arguments(built: Sequence[str]) -> Parser:
    parser = Parser(
        prog="python -m scorer",
        description="Score worlds against reference videos and reference worlds; results lie beside each "
        "world. What is already scored from the same inputs is skipped.",
        epilog="Exit status: 0 no world failed, 1 at least one did, 2 wrong usage, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--manifest",
        type=Path,
        default=Path("/manifest.json"),
        help="JSON list of {case, world, out} (default: %(default)s)",
    )
    add(
        "--queue", type=Path, metavar="DIR",
        help="take worlds from this queue, beside other scorers, instead of doing all of a manifest",
    )  # fmt: skip
    add("--worker", default="", metavar="NAME", help="name of this scorer in the queue (default: made up)")
    add("--cases", type=Path, default=Path("/cases"), help="root of the cases (default: %(default)s)")
    add("--data", type=Path, default=Path("/data"), help="root of the reference data (default: %(default)s)")
    add("--runs", type=Path, default=Path("/runs"), help="root of the runs (default: %(default)s)")
    add("--checkpoints", type=Path, default=Path("/checkpoints"), help="model store (default: %(default)s)")
    add(
        "--type", action="append", default=[], metavar="NAMES",
        help=f"types to score, comma separated, repeatable (default: all of {', '.join(built)})",
    )  # fmt: skip
    add(
        "--task-timeout",
        type=float,
        default=TASK_TIMEOUT,
        metavar="SECONDS",
        help="one metric on one world (default: 1800)",
    )
    add(
        "--prepare-timeout",
        type=float,
        default=PREPARE_TIMEOUT,
        metavar="SECONDS",
        help="one preparation call (default: 600)",
    )
    add(
        "--timeout",
        action="append",
        default=[],
        metavar="NAME=SECONDS",
        help="deadline of one task, repeatable",
    )
    add("--jobs", type=int, default=1, metavar="N", help="worlds scored at once (default: 1)")
    add("--redo", action="store_true", help="compute again what is up to date")
    add(
        "--allow-missing-models",
        action="store_true",
        help="leave out metrics whose model is not installed or has no checkpoint",
    )
    return parser


def _types(given: Sequence[str], built: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    offered = [entry.name for entry in TYPES if entry.name in built]
    for name in names:
        if name not in offered:
            what = f"--type {name}: not built yet" if name in TYPE_BY_NAME else f"--type {name}: no such type"
            raise UserError(what, expected=f"one of {', '.join(offered)}")
    return tuple(name for name in offered if not names or name in names)


def _positive(flag: str, seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f"{flag} {seconds:g}", expected="a number of seconds above 0")
    return seconds


def _override(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        seconds = float(number)
    except ValueError:
        seconds = math.nan
    if not equals or not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f"--timeout {text}", expected="NAME=SECONDS with a number of seconds above 0")
    if name not in DEADLINE_NAMES:
        near = get_close_matches(name, DEADLINE_NAMES, 1)
        hint = f"did you mean {near[0]}? One of " if near else "one of "
        raise UserError(
            f"--timeout {text}: no task is called {name!r}", expected=hint + ", ".join(DEADLINE_NAMES)
        )
    return name, seconds
