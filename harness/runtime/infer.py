"""Run agents on cases: ``python harness/runtime/infer.py --jobs JOBS --runtime RUNTIME``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import shlex
import sys
import threading
from collections.abc import Sequence

from rich.console import Console

from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError, file_faults, run_program
from contract.record import dumps
from harness.runtime import prices
from harness.runtime.backends import get_backend
from harness.runtime.backends.base import Backend
from harness.runtime.batch import (
    exit_status,
    output_console,
    reduced,
    remove_orphans,
    say,
    stopping_on_signals,
    summary,
)
from harness.runtime.config import Runtime, load_runtime
from harness.runtime.engines.settings import SLURM
from harness.runtime.engines.slurm_infer import SlurmTerms, infer_on_slurm
from harness.runtime.gpus import slots
from harness.runtime.jobs import load_jobs
from harness.runtime.livetable import shown
from harness.runtime.planning import Plan, plan_all
from harness.runtime.running import Result
from harness.runtime.scheduler import Batch, Options
from harness.runtime.space import shortage
from harness.runtime.status import cancel, show_launches, show_runs

HOST_WARNING = (
    "backend host: agents run as you, on this machine, with your files and your network. "
    "Nothing isolates them; use it for agents you trust"
)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="infer.py",
        description="Run agents on cases and keep what they deliver. Finished runs are skipped.",
        epilog="Exit status: 0 all runs are done, 1 some are not, 2 a fault in what was given, 130 stopped.",
        allow_abbrev=False,
    )
    parser.add_argument("--jobs", metavar="FILE", help="TOML file with the runs to do")
    parser.add_argument(
        "--runtime", metavar="FILE", required=True, help="TOML file with directories, images, limits"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, show what would run, touch nothing"
    )
    parser.add_argument(
        "--redo", action="store_true", help="run finished runs again; each is replaced once the new one ended"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave finished runs of another configuration as they are"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="launchers on other machines that had a run are gone"
    )
    parser.add_argument(
        "--json", action="store_true", help="end with the results as a JSON array instead of a table"
    )
    parser.add_argument(
        "--status", action="store_true", help="show the state of each run and of launches, then leave"
    )
    parser.add_argument(
        "--cancel", action="store_true", help="end what launches on SLURM have running, then leave"
    )
    parser.add_argument(
        "--list-orphans", action="store_true", help="list containers or processes of launchers, then leave"
    )
    parser.add_argument(
        "--clean-orphans", action="store_true", help="remove those whose launcher is gone, then leave"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check, run, report. Returns the exit status."""
    given = arguments().parse_args(argv)
    say.to_stderr = given.json
    runtime = load_runtime(given.runtime)
    if given.list_orphans or given.clean_orphans:
        return orphans(get_backend(runtime.backend, runtime), clean=given.clean_orphans)
    if given.cancel:
        return cancel(runtime, "infer", say)
    if given.jobs is None:
        raise UserError("--jobs is missing", next_step="infer.py --jobs FILE --runtime FILE")
    if given.redo and given.keep:
        raise UserError("--redo and --keep contradict each other", next_step="give one of them")
    prices.use(runtime.price_file)
    if given.status:
        with file_faults():
            show_runs(load_jobs(given.jobs, runtime.cases).keys, runtime.runs, output_console())
        return show_launches(runtime, "infer", say)
    on_slurm = runtime.file.launcher.engine == SLURM
    with file_faults():
        jobs = load_jobs(given.jobs, runtime.cases)
        backend = get_backend(runtime.backend, runtime)
        plans = plan_all(jobs, runtime, backend, redo=given.redo, keep=given.keep)
        if not on_slurm:
            terms = options(runtime, plans, backend, redo=given.redo, take_over=given.take_over)
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        say(f"warning: {warning}")
    if backend.name == "host":
        say(HOST_WARNING)
    if given.dry_run:
        return show(plans, backend)
    with stopping_on_signals() as stop:
        if on_slurm:
            how = SlurmTerms(given.redo, given.keep, given.take_over)
            return report(infer_on_slurm(plans, jobs.path, runtime, how, stop, say), stop, given.json)
        remove_orphans(backend)
        batch = Batch(plans, backend, terms, stop, say)
        with shown(batch, Console(stderr=given.json), say):
            results = batch.run()
    return report(results, stop, given.json)


def report(results: Sequence[Result], stop: threading.Event, as_json: bool) -> int:
    """Show the results; returns the exit status."""
    if as_json:
        sys.stdout.write(dumps(reduced(results)))
    else:
        summary(results, output_console())
    return exit_status(results, stop)


def options(
    runtime: Runtime, plans: Sequence[Plan], backend: Backend, *, redo: bool, take_over: bool
) -> Options:
    """How the batch is to be carried out. Raises ``UserError`` where GPUs or disk space do not allow it."""
    section = runtime.file.agent
    places = (runtime.runs, *getattr(backend, "storage", tuple)())
    wanted = [plan for plan in plans if not plan.skip]
    short = shortage(places, section.min_free_gb) if wanted else ""
    if short:
        raise UserError(
            f"not enough disk space: {short}",
            where=runtime.path,
            next_step="make room, or lower [agent] min_free_gb",
        )
    on = slots(section.parallel, wanted[0].setting.gpus if wanted else ())
    if len(on) < section.parallel:
        say(f"[agent] parallel = {section.parallel}, but each run takes a whole GPU: {len(on)} at a time")
    return Options(
        slots=on,
        retries=section.retries,
        retry_wait=section.retry_wait_sec,
        floor_gb=section.min_free_gb,
        places=places,
        per_agent={name: table.parallel for name, table in section.agents.items() if table.parallel},
        budget=runtime.file.budget,
        redo=redo,
        take_over=take_over,
    )


def show(plans: Sequence[Plan], backend: Backend) -> int:
    """What would run, without touching anything."""
    for plan in plans:
        if plan.skip:
            say(f"would skip {plan.key.label}: {plan.skip} already, see {plan.place.final}")
            continue
        job = plan.setting.job(plan.place.staging("<id>"), "<id>", shown=True)
        say(f"would run {plan.key.label} into {plan.place.final}, at most {plan.setting.timeout} s")
        say(f"  {shlex.join(backend.describe(job))}")
    return EXIT_OK


def orphans(backend: Backend, *, clean: bool) -> int:
    """List what launchers of ours have running, or remove what dead ones left."""
    if clean:
        return EXIT_OK if remove_orphans(backend) else EXIT_ITEM_FAILED
    found = backend.orphans()
    for orphan in found:
        launcher = "gone" if orphan.dead_owner else "alive"
        say(f"{orphan.name} ({orphan.run or 'no run'}): its launcher is {launcher}")
    say(f"{len(found)} found, {sum(orphan.dead_owner for orphan in found)} without a launcher")
    return EXIT_OK


if __name__ == "__main__":
    run_program(main)
