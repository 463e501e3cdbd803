"""Score finished runs: ``python harness/runtime/score.py --jobs JOBS --runtime RUNTIME``."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import shlex
import threading
from collections.abc import Mapping, Sequence

from contract.errors import (
    EXIT_INTERRUPTED,
    EXIT_ITEM_FAILED,
    EXIT_OK,
    UserError,
    file_faults,
    one_line,
    run_program,
)
from contract.runs import RunKey
from contract.workqueue import OK, Queue
from harness.runtime.backends import check_job, get_backend
from harness.runtime.backends.base import Backend
from harness.runtime.batch import output_console, remove_orphans, say, stopping_on_signals
from harness.runtime.config import REPOSITORY, load_runtime
from harness.runtime.engines.settings import SLURM
from harness.runtime.invocation import Invocation, new_directory
from harness.runtime.jobs import load_jobs, reference_video
from harness.runtime.mp4boxes import check_video
from harness.runtime.runrecord import now
from harness.runtime.scoretable import print_not_done, print_scores, read_reward
from harness.runtime.scorework import Work, failed_cases, row_name, wanted_groups
from harness.runtime.scoring import run_entry, sanity_entries, why_not_run
from harness.runtime.slots import scorer_slots
from harness.runtime.stagejob import Order, stage_job
from harness.runtime.stages import (
    PREPARE,
    SCORE,
    VIZ,
    Stage,
    check_belongs,
    groups_named,
    metric_types,
    wanted_stages,
)
from harness.runtime.stagework import StageEnd, run_local
from harness.runtime.trees import check_writable


def command_line() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="score.py",
        description="Score the runs of a jobs file. What is already scored from the same inputs is skipped.",
        epilog="Exit status: 0 all scored, 1 a run is missing or failed, 2 wrong usage, 130 stopped.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--jobs", metavar="FILE", help="TOML file with the runs to score")
    add("--runtime", metavar="FILE", required=True, help="TOML file with directories and images")
    add("--stage", metavar="NAMES", default="score", help="of prepare, score, viz (default: score)")
    add("--type", metavar="NAMES", action="append", default=[], help="metric types, comma separated")
    add("--only", metavar="NAMES", help="groups of the stage prepare (default: those that the types need)")
    add("--media", metavar="NAMES", help="media of the stage viz")
    add("--sanity", action="store_true", help="score each reference world against itself as well")
    add("--dry-run", action="store_true", help="check everything, show what would run, touch nothing")
    add("--redo", action="store_true", help="compute again what is up to date")
    add("--allow-missing-models", action="store_true",
        help="leave out metrics whose model is not installed or has no checkpoint")  # fmt: skip
    add("--status", action="store_true", help="show how far the last launch is, then leave")
    add("--cancel", action="store_true", help="end what launches have running, then leave")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check, prepare, score, report. Returns the exit status."""
    given = command_line().parse_args(argv)
    stages = wanted_stages(given.stage, REPOSITORY)
    check_belongs("--only", given.only is not None, PREPARE, stages)
    check_belongs("--media", given.media is not None, VIZ, stages)
    types, only = metric_types(given.type), groups_named([given.only or ""])
    if given.only is not None and not only:
        raise UserError("--only names no group", next_step="leave it out for all that the types need")
    runtime = load_runtime(given.runtime)
    if given.status or given.cancel:
        from harness.runtime.status import cancel, show_launches

        return (cancel if given.cancel else show_launches)(runtime, "score", say)
    if given.jobs is None:
        raise UserError("--jobs is missing", next_step="score.py --jobs FILE --runtime FILE")
    with file_faults():
        jobs = load_jobs(given.jobs, runtime.cases)
        for case in jobs.cases:
            check_video(reference_video(case, runtime.cases))
        missing = {key: why for key in jobs.keys if (why := why_not_run(key, runtime.runs))}
        entries = [run_entry(key) for key in jobs.keys if key not in missing]
        if given.sanity:
            entries += sanity_entries(jobs.cases, runtime.data)
        work = Work(
            runtime, stages, jobs.cases, entries, missing, types, wanted_groups(only, types),
            [name for name in (given.media or "").split(",") if name], given.redo, given.allow_missing_models,
        )  # fmt: skip
        launch = Launch(work, get_backend(runtime.backend, runtime))
        launch.check()
    report_missing(missing)
    if given.dry_run:
        return launch.show()
    return launch.run()


def report_missing(missing: Mapping[RunKey, str]) -> None:
    """List the runs that are not there. They are not scored, and never counted as bad ones."""
    for key, why in missing.items():
        say(f"not run: {key.path}: {why}")


class Launch:
    """One invocation: its stages one after the other, and what is said about them."""

    def __init__(self, work: Work, backend: Backend) -> None:
        self.work, self.backend, self.runtime = work, backend, work.runtime
        self.slots = scorer_slots(work.runtime)
        self.directory = new_directory(work.runtime.runs)
        self.on_slurm = work.runtime.file.launcher.engine == SLURM
        self.status = EXIT_ITEM_FAILED if self._scores() and (work.missing or not work.entries) else EXIT_OK

    def _scores(self) -> bool:
        """Whether a stage works on runs."""
        return any(stage is not PREPARE for stage in self.work.stages)

    def order(self, stage: Stage, rows: Sequence[object]) -> Order:
        work = self.work
        return Order(stage.name, self.directory, len(rows), work.names(stage), work.redo, work.allow_missing)

    def check(self) -> None:
        """Whether everything that the stages need is there; touches nothing. Raises ``UserError``."""
        check_writable(self.directory, "runs_root")
        if not self.runtime.data.exists():
            check_writable(self.runtime.data, "data_root")
        for stage in self.work.stages:
            job = stage_job(self.runtime, self.order(stage, ()), "check", self.slots[0])
            self.backend.check(job.image)
            check_job(self.backend, job, self.runtime.path, "scorer")
        self.work.check_models(say)
        if self.on_slurm:
            from harness.runtime.engines.cluster import check_programs
            from harness.runtime.status import refuse_second

            check_programs(self.runtime.path)
            refuse_second(self.runtime, "score")

    def show(self) -> int:
        """What would run, without touching anything."""
        for stage in self.work.stages:
            rows = self.work.rows(stage)
            for row in rows:
                say(f"would {stage.name} {row_name(stage, row) if stage is PREPARE else row['world']}")
            for words in self.commands(stage, rows):
                say(shlex.join(words))
        return EXIT_OK

    def commands(self, stage: Stage, rows: Sequence[object]) -> list[list[str]]:
        """What is started for a stage, as command lines for people."""
        order = self.order(stage, rows)
        if not rows:
            return []
        if self.on_slurm:
            from harness.runtime.engines.cluster import submission

            return [submission(self.runtime, order.stage, order.items).words()]
        used = self.slots[: len(rows)]
        jobs = [stage_job(self.runtime, order, f"slot{slot.number}.1", slot, len(used)) for slot in used]
        return [self.backend.describe(job) for job in jobs]

    def run(self) -> int:
        """Carry out the stages, report, and return the exit status."""
        work = self.work
        if not any(work.rows(stage) for stage in work.stages):
            say("there is nothing to do")
            return self.status
        record = Invocation(
            self.directory, "score", say, backend=self.backend.name, entries=len(work.entries),
            engine=self.runtime.file.launcher.engine,
        )  # fmt: skip
        with file_faults("make room, or change runs_root or data_root in the runtime file"):
            record.begin()
            self.runtime.data.mkdir(parents=True, exist_ok=True)
            (self.directory / "queue").mkdir()
        with stopping_on_signals() as stop:
            remove_orphans(self.backend)
            for stage in work.stages:
                if stop.is_set():
                    break
                self.stage(stage, record, stop)
        if stop.is_set():
            self.status = EXIT_INTERRUPTED
        if SCORE in work.stages:
            self.report()
        record.end(self.status)
        say(f"record, queues and logs of this launch lie in {self.directory}")
        return self.status

    def stage(self, stage: Stage, record: Invocation, stop: threading.Event) -> None:
        """Carry out a stage; what could not be prepared is left out of the later ones."""
        rows = self.work.rows(stage)
        if not rows:
            say(f"{stage.name}: nothing to do")
            return
        order, names = self.order(stage, rows), [row_name(stage, row) for row in rows]
        with file_faults("make room on the disk of runs_root"):
            Queue.create(order.queue, rows)
        facts = record.stage(
            stage=stage.name, items=len(rows),
            commands=[shlex.join(words) for words in self.commands(stage, rows)],
        )  # fmt: skip
        say(f"{stage.name}: {len(rows)} item(s), logs {self.directory}/{stage.name}*.log")
        if self.on_slurm:
            from harness.runtime.engines.slurm import run_slurm

            payload = {"what": stage.name, "runtime": str(self.runtime.path), "order": order.record()}
            end = run_slurm(payload, order.queue, names, self.runtime, record, stop, say)
        else:
            end = run_local(order, names, self.runtime, self.backend, self.slots, stop, say)
        fine = sum(outcome.get("state") == OK for outcome in end.outcomes.values())
        facts |= {"ended_at": now(), "ended": len(end.outcomes), "fine": fine, "fault": end.fault or None}
        record.save()
        self.conclude(stage, rows, end, fine)

    def conclude(self, stage: Stage, rows: Sequence[Mapping[str, str]], end: StageEnd, fine: int) -> None:
        if fine < len(rows):
            short = end.fault and len(end.outcomes) < len(rows)
            self.status = max(self.status, end.status if short else EXIT_ITEM_FAILED)
        say(f"{stage.name}: {fine}/{len(rows)} ok" + (f"; {one_line(end.fault)}" if end.fault else ""))
        if stage is PREPARE:
            self.work.leave_out(failed_cases(rows, lambda number: _unprepared(end, number)))
        elif stage is SCORE:
            left = {row_name(stage, row): why for n, row in enumerate(rows) if (why := end.why_not(n))}
            self.work.left_out |= left

    def report(self) -> None:
        """The table of scores, and what has none."""
        scored = [entry for entry in self.work.entries if entry.name not in self.work.left_out]
        rewards = [(entry.name, read_reward(entry.directory(self.runtime))) for entry in scored]
        console = output_console()
        if rewards:
            print_scores(rewards, console)
            say(f"results lie in results/ of each run below {self.runtime.runs}")
        not_done = {str(key.path): f"not run: {why}" for key, why in self.work.missing.items()}
        print_not_done(not_done | self.work.left_out, console)


def _unprepared(end: StageEnd, number: int) -> str:
    """Why an item of the prepare stage is not there; empty when it is."""
    outcome = end.outcomes.get(number, {})
    return "" if outcome.get("state") == OK else str(outcome.get("note") or end.why_not(number))


if __name__ == "__main__":
    run_program(main)
