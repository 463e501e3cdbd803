"""``python -m scorer``: score the worlds of a manifest."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import signal
from collections.abc import Sequence
from types import FrameType

from contract.errors import run_program
from scorer.console import Console
from scorer.manifest import read_manifest, require_cases
from scorer.models import find_models
from scorer.options import parse
from scorer.queue import score_queue
from scorer.queuedir import manifest_of
from scorer.registry import BUILT, Registry
from scorer.run import score


def main(argv: Sequence[str] | None = None, registry: Registry = BUILT) -> int:
    """Run the program and return its exit status. Raises ``UserError`` for wrong usage."""
    options = parse(argv, tuple(registry))
    manifest = options.manifest if options.queue is None else manifest_of(options.queue)
    entries = read_manifest(manifest, options.roots)
    require_cases(entries)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with Console() as console:
        models = find_models(entries, options, registry, console.line)
        work = score if options.queue is None else score_queue
        return work(entries, options, registry, models, console)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End like on Ctrl-C. Further signals wait until the workers are gone."""
    for further in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(further, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    run_program(main)
