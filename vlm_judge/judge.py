"""A vision-language model as judge: ``python vlm_judge/judge.py vqa | score | pairwise | elo``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import sys
from collections.abc import Sequence
from importlib import import_module

from contract.errors import run_program
from vlm_judge.cli import arguments

_COMMANDS = {
    "vqa": "vlm_judge.vqa",
    "score": "vlm_judge.score_report",
    "pairwise": "vlm_judge.pairwise",
    "elo": "vlm_judge.elo",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; only its modules are loaded. Returns the exit status."""
    given = arguments().parse_args(argv)
    status: int = import_module(_COMMANDS[given.command]).main(given)
    return status


if __name__ == "__main__":
    run_program(lambda: main(sys.argv[1:]))
