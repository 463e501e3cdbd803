"""``python -m scorer.prepare``: estimate what learned models see in the reference videos of a manifest."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import signal
import threading
from collections.abc import Sequence
from types import FrameType

from contract.errors import run_program
from scorer.prepare.cases import read_cases
from scorer.prepare.models import require_models
from scorer.prepare.options import parse
from scorer.prepare.plan import Subject, wanted
from scorer.prepare.progress import Progress
from scorer.prepare.queue import prepare_queue
from scorer.prepare.run import prepare
from scorer.prepare.table import TABLE, Table, grouped
from scorer.queuedir import manifest_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None, table: Table = TABLE) -> int:
    """Run the program and return its exit status. Raises ``UserError`` for wrong usage and missing models."""
    options = parse(argv)
    manifest = options.manifest if options.queue is None else manifest_of(options.queue)
    cases = read_cases(manifest, options.cases, options.data)
    stop = _end_cleanly()
    with Progress() as console:
        estimates = [each for group in grouped(table, options.groups).values() for each in group]
        pairs = wanted(estimates, [Subject(case) for case in cases], options.every)
        used = dict.fromkeys(each.file for each, _ in pairs)
        identities = require_models(
            options.checkpoints, [each for each in estimates if each.file in used], console.line
        )
        work = prepare if options.queue is None else prepare_queue
        return work(cases, options, table, identities, console, stop)


def _end_cleanly() -> threading.Event:
    """Make the first signal a ``KeyboardInterrupt``, and set the event; later ones wait for the clean end."""
    stop = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        for further in _SIGNALS:
            signal.signal(further, signal.SIG_IGN)
        stop.set()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, interrupt)
    return stop


if __name__ == "__main__":
    run_program(main)
