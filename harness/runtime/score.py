"""Score finished runs: ``python harness/runtime/score.py --jobs JOBS --runtime RUNTIME``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import difflib
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from contract.errors import (
    EXIT_INTERRUPTED,
    EXIT_ITEM_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    UserError,
    file_faults,
    run_program,
)
from contract.metrics import TYPE_BY_NAME
from contract.names import RUNS
from contract.record import write_json
from contract.runs import RunKey
from harness.runtime import owner
from harness.runtime.backends import check_job, get_backend
from harness.runtime.backends.base import Backend, Outcome
from harness.runtime.batch import output_console, remove_orphans, say, stopping_on_signals
from harness.runtime.config import Runtime, load_runtime
from harness.runtime.jobs import load_jobs, reference_video
from harness.runtime.logtail import streamed
from harness.runtime.mp4boxes import check_video
from harness.runtime.provenance import circumstances
from harness.runtime.runrecord import now
from harness.runtime.scoretable import print_scores, read_reward
from harness.runtime.scoring import (
    Entry,
    arguments,
    run_entry,
    sanity_entries,
    scorer_job,
    time_limit,
    why_not_run,
)
from harness.runtime.trees import check_writable

STAGES = ("prepare", "score", "viz")
BUILT_STAGES = ("score",)
MANIFESTS = "manifests"
"""Directory below the runs root with one directory per invocation."""


def command_line() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="score.py",
        description="Score the runs of a jobs file. What is already scored from the same inputs is skipped.",
        epilog="Exit status: 0 all scored, 1 a run is missing or failed, 2 wrong usage, 130 stopped.",
        allow_abbrev=False,
    )
    parser.add_argument("--jobs", metavar="FILE", required=True, help="TOML file with the runs to score")
    parser.add_argument(
        "--runtime", metavar="FILE", required=True, help="TOML file with directories and images"
    )
    parser.add_argument(
        "--stage", metavar="NAMES", default="score", help="stages, comma separated (default: score)"
    )
    parser.add_argument(
        "--type", metavar="NAMES", action="append", default=[], help="metric types, comma separated"
    )
    parser.add_argument("--only", metavar="NAMES", help="groups of the stage prepare")
    parser.add_argument("--media", metavar="NAMES", help="media of the stage viz")
    parser.add_argument(
        "--sanity", action="store_true", help="score each reference world against itself as well"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, show what would run, touch nothing"
    )
    parser.add_argument("--redo", action="store_true", help="compute again what is up to date")
    parser.add_argument(
        "--allow-missing-models",
        action="store_true",
        help="leave out metrics whose model is not installed or has no checkpoint",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check, score, report. Returns the exit status."""
    given = command_line().parse_args(argv)
    check_stages(given.stage, given.only, given.media)
    types = metric_types(given.type)
    runtime = load_runtime(given.runtime)
    with file_faults():
        jobs = load_jobs(given.jobs, runtime.cases)
        for case in jobs.cases:
            check_video(reference_video(case, runtime.cases))
        missing = {key: why for key in jobs.keys if (why := why_not_run(key, runtime.runs))}
        entries = [run_entry(key) for key in jobs.keys if key not in missing]
        if given.sanity:
            entries += sanity_entries(jobs.cases, runtime.data)
        flags = arguments(runtime, types, given.redo, worlds=len(entries))
        if given.allow_missing_models:
            flags.append("--allow-missing-models")
        backend = get_backend(runtime.backend, runtime)
        stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
        directory = runtime.runs / MANIFESTS / stamp
        check_writable(directory, "runs_root")
        if not runtime.data.exists():
            check_writable(runtime.data, "data_root")
        job = scorer_job(runtime, directory / "manifest.json", flags, f"4dcb-score-{stamp}")
        backend.check(job.image)
        check_job(backend, job, runtime.path, "scorer")
    report_missing(missing)
    if given.dry_run:
        for entry in entries:
            say(f"would score {entry.world}")
        say(shlex.join(backend.describe(job)))
        return EXIT_OK
    status = EXIT_ITEM_FAILED if missing or not entries else EXIT_OK
    if entries:
        status = max(status, score(entries, runtime, backend, directory, flags))
    return status


def check_stages(text: str, only: str | None, media: str | None) -> None:
    """Raise ``UserError`` for unknown stages, those that do not exist yet, and flags of stages not asked
    for.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("--stage names no stage", expected=f"--stage {','.join(BUILT_STAGES)}")
    for name in names:
        if name not in STAGES:
            raise UserError(f"--stage {name}: no such stage", expected=f"--stage {','.join(BUILT_STAGES)}")
    for flag, value, stage in (("--only", only, "prepare"), ("--media", media, "viz")):
        if value is not None and stage not in names:
            raise UserError(f"{flag} belongs to the stage {stage}, which was not asked for")
    for name in names:
        if name not in BUILT_STAGES:
            raise UserError(f"stage {name} is not built yet", expected=f"--stage {','.join(BUILT_STAGES)}")


def metric_types(given: Sequence[str]) -> list[str]:
    """Names out of ``--type``. Raises ``UserError`` for one that the benchmark does not have."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in names:
        if name not in TYPE_BY_NAME:
            like = difflib.get_close_matches(name, TYPE_BY_NAME, 1)
            raise UserError(
                f"--type {name}: no such type",
                expected=f"one of {', '.join(TYPE_BY_NAME)}",
                next_step=f"did you mean {like[0]}?" if like else "",
            )
    return names


def report_missing(missing: dict[RunKey, str]) -> None:
    """List the runs that are not there. They are not scored, and never counted as bad ones."""
    for key, why in missing.items():
        say(f"not run: {key.path}: {why}")


def score(
    entries: list[Entry], runtime: Runtime, backend: Backend, directory: Path, flags: Sequence[str]
) -> int:
    """Run the scorer on the entries and show the results. Returns the exit status."""
    manifest, log = directory / "manifest.json", directory / "score.log"
    job = scorer_job(runtime, manifest, flags, f"4dcb-score-{directory.name}")
    record = {
        "command": shlex.join(backend.describe(job)),
        "backend": backend.name,
        "owner": owner.this_process(),
        "provenance": circumstances(),
        "started_at": now(),
        "entries": len(entries),
    }
    with file_faults("make room, or change runs_root or data_root in the runtime file"):
        directory.mkdir(parents=True)
        runtime.data.mkdir(parents=True, exist_ok=True)
        write_json(manifest, [entry.record() for entry in entries])
        write_json(directory / "invocation.json", record)
    say(f"scoring {len(entries)} world(s), log {log}")
    with stopping_on_signals() as stop:
        remove_orphans(backend)
        outcome = _run(backend, job, log, time_limit(runtime), stop)
    ending = {"ended_at": now(), "exit": outcome.exit_code, "error": outcome.error or None}
    try:
        write_json(directory / "invocation.json", record | ending)
    except OSError as error:  # the scores themselves are there, or the scorer has said why not
        say(f"warning: {directory / 'invocation.json'} was not written: {error.strerror}")
    # "runs/" in front of every name says nothing.
    rewards = [
        (entry.out.removeprefix(f"{RUNS}/"), read_reward(entry.directory(runtime))) for entry in entries
    ]
    print_scores(rewards, output_console())
    say(f"results lie in results/ of each run below {runtime.runs}; log {log}")
    return exit_status(outcome, stop)


def _run(backend: Backend, job: object, log: Path, limit: float, stop: threading.Event) -> Outcome:
    """Run the job in a thread, so that this one can take signals; its log goes to the terminal as well."""
    outcomes: list[Outcome] = []

    def work() -> None:
        try:
            outcomes.append(backend.run(job, log, limit, stop))  # type: ignore[arg-type]
        except Exception as error:
            outcomes.append(Outcome(None, 0.0, error=f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=work, name="scorer")
    with streamed(log, sys.stdout):
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
    return outcomes[0]


def exit_status(outcome: Outcome, stop: threading.Event) -> int:
    """Status of this program from how the scorer ended."""
    if outcome.interrupted or stop.is_set():
        return EXIT_INTERRUPTED
    if outcome.timed_out:
        say("the scorer ran out of time; run the same command again to continue")
    elif outcome.oom_killed:
        say("the scorer ran out of memory; raise [scorer.environment] memory_mb")
    elif outcome.error:
        say(f"the scorer could not be run: {outcome.error}")
    elif outcome.exit_code in (EXIT_OK, EXIT_USAGE):
        return outcome.exit_code
    return EXIT_ITEM_FAILED


if __name__ == "__main__":
    run_program(main)
