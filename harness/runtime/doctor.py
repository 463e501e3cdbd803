"""Is everything ready for a batch? ``python harness/runtime/doctor.py --runtime FILE [--jobs FILE]``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, run_program
from contract.record import dumps
from harness.runtime import doctor_agents, doctor_engine, doctor_inputs, doctor_machine
from harness.runtime.backends import get_backend
from harness.runtime.batch import output_console
from harness.runtime.config import load_runtime
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, examine, failed
from harness.runtime.jobs import load_jobs

_STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="doctor.py",
        description="Look at everything that runs and scores need, and say how to mend what is wrong. "
        "What it makes while it looks (files beside the runs, a container) it removes again.",
        epilog="Exit status: 0 nothing failed, 1 something did, 130 stopped.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--runtime", metavar="FILE", required=True, help="TOML file with directories, images, limits"
    )
    parser.add_argument("--jobs", metavar="FILE", help="TOML file with runs: look at what these need")
    parser.add_argument(
        "--hashes", action="store_true", help="read model weights whole, and compare with the published ones"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Look at everything and report. Returns the exit status."""
    given = arguments().parse_args(argv)
    with _ended_like_ctrl_c(), Console(stderr=True).status("reading the runtime file") as status:
        found = list(findings(given.runtime, given.jobs, given.hashes, status.update))
    good = all(finding.status != FAIL for finding in found)
    if given.json:
        sys.stdout.write(dumps({"ok": good, "findings": [finding.record() for finding in found]}))
    else:
        show(found)
    return EXIT_OK if good else EXIT_ITEM_FAILED


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP end what a check has started in order, as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    try:
        for number in ours:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def findings(runtime: str, jobs: str | None, hashes: bool, say: Callable[[str], None]) -> Iterator[Finding]:
    """What every check found, in order. Without a runtime file that can be read there is only that one."""
    try:
        loaded = load_runtime(runtime)
        backend = get_backend(loaded.backend, loaded)
    except UserError as error:
        yield failed("runtime file", error)
        return
    yield Finding("runtime file", OK, f"{loaded.path}, backend {loaded.backend}")
    patient = Patient(loaded, backend, hashes=hashes)
    if jobs is not None:
        try:
            listed = load_jobs(jobs, loaded.cases)
            patient = Patient(loaded, backend, listed.keys, listed.path, hashes)
            yield Finding("jobs file", OK, f"{listed.path}, {len(listed.keys)} runs")
        except UserError as error:
            yield failed("jobs file", error)
    for check in all_checks(patient):
        say(f"looking at {check.name}")
        yield examine(check)


def all_checks(patient: Patient) -> list[Check]:
    """Every check, in order."""
    return [
        *doctor_engine.checks(patient),
        *doctor_agents.checks(patient),
        *doctor_inputs.checks(patient),
        *doctor_machine.checks(patient),
    ]


def show(found: Sequence[Finding]) -> None:
    """The table."""
    table = Table(title_justify="left")
    for heading in ("check", "", "found", "next step"):
        table.add_column(heading, overflow="fold")
    for finding in found:
        status = Text(finding.status, style=_STYLES[finding.status])
        table.add_row(Text(finding.name), status, Text(finding.what), Text(finding.fix))
    console = output_console()
    console.print(table)
    counts = {status: sum(finding.status == status for finding in found) for status in (FAIL, WARN, OK)}
    text = f"{counts[FAIL]} failed, {counts[WARN]} to think about, {counts[OK]} in order"
    console.print(text, markup=False, highlight=False)


if __name__ == "__main__":
    run_program(main)
