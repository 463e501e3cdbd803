"""The command line of ``python -m scorer.prepare``, parsed into one typed record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from contract.errors import UserError
from scorer.options import Parser
from scorer.prepare.table import GROUPS


@dataclass(frozen=True)
class Options:
    """Everything the command line says.

    groups : in their fixed order. every : also what no metric needs. queue : directory of a queue from which
    cases are taken instead of the manifest; worker : this process's name there.
    """

    manifest: Path
    cases: Path
    data: Path
    checkpoints: Path
    groups: tuple[str, ...]
    device: str | None = None
    every: bool = False
    redo: bool = False
    dry_run: bool = False
    queue: Path | None = None
    worker: str = ""


def parse(argv: Sequence[str] | None) -> Options:
    """Parse the command line. Raises ``UserError`` for anything wrong."""
    known = _arguments().parse_args(argv)
    return Options(
        known.manifest,
        known.cases,
        known.data,
        known.checkpoints,
        _groups(known.only),
        known.device,
        known.all,
        known.redo,
        known.dry_run,
        known.queue,
        known.worker,
    )


def _arguments() -> Parser:
    parser = Parser(
        prog="python -m scorer.prepare",
        description="Estimate flow, tracks, points, features and depth of each case's reference video; the "
        "files lie in the case's estimates directory. What is there already and up to date is skipped.",
        epilog="Exit status: 0 every estimate is there, 1 at least one failed, 2 wrong usage or a model is "
        "missing, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--manifest", type=Path, default=Path("/manifest.json"),
        help='JSON list of {"case": …}; further members are ignored (default: %(default)s)',
    )  # fmt: skip
    add(
        "--queue", type=Path, metavar="DIR",
        help="take cases from this queue, beside other processes, instead of doing all of a manifest",
    )  # fmt: skip
    add("--worker", default="", metavar="NAME", help="name of this process in the queue (default: made up)")
    add("--cases", type=Path, default=Path("/cases"), help="root of the cases (default: %(default)s)")
    add("--data", type=Path, default=Path("/data"), help="root of the reference data (default: %(default)s)")
    add("--checkpoints", type=Path, default=Path("/checkpoints"), help="model store (default: %(default)s)")
    add(
        "--only", action="append", metavar="NAMES",
        help=f"groups to compute, comma separated, repeatable (default: all of {', '.join(GROUPS)})",
    )  # fmt: skip
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: cuda where there is one, else cpu)")
    add("--all", action="store_true", help="also compute what no metric needs on a case's kind")
    add("--redo", action="store_true", help="compute again what is up to date, or not ours")
    add("--dry-run", action="store_true", help="say what would be computed, and stop")
    return parser


def _groups(given: Sequence[str] | None) -> tuple[str, ...]:
    named = [name.strip() for text in given or () for name in text.split(",") if name.strip()]
    if given is not None and not named:
        raise UserError("--only names no group", expected=f"some of {', '.join(GROUPS)}")
    for name in named:
        if name not in GROUPS:
            near = get_close_matches(name, GROUPS, 1)
            hint = f"did you mean {near[0]}? One of " if near else "one of "
            raise UserError(f"--only {name}: no such group", expected=hint + ", ".join(GROUPS))
    return tuple(name for name in GROUPS if not named or name in named)
