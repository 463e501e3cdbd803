"""Jobs in Apptainer (or SingularityCE) containers: named instances, under a warden that outlives nothing.

The container runs as the caller, so what it writes is the caller's; ``Job.as_root`` asks for nothing more. A
caller who is root is root inside, without capabilities where the engine's configuration says so. Limits are
those of control groups, which an ordinary user has on version 2 with systemd only: a job whose limits cannot
be kept is refused, before it is started by a probe and once more by a look at the group itself.

Everything that can end a container is in :mod:`.sif_warden`; what that one left, because it was killed too,
is found by the file that names the instance's owner (:mod:`.sif_registry`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.errors import UserError
from harness.runtime.backends import sif_cgroup, sif_engine
from harness.runtime.backends import sif_spec as spec
from harness.runtime.backends.base import LABEL, Job, Orphan, Outcome
from harness.runtime.backends.sif_engine import EngineError
from harness.runtime.backends.sif_image import check_image
from harness.runtime.backends.sif_registry import Registry
from harness.runtime.backends.warden_pipe import converse, start_warden

if TYPE_CHECKING:
    from harness.runtime.config import Runtime

WARDEN = Path(__file__).with_name("sif_warden.py")
OURS = "4dcb-"
"""Beginning of the names of our containers."""
START_S = 600.0
"""Longest time for an instance to start; a large image on a cold shared file system takes minutes."""
_GONE_S = 15.0


class SifBackend:
    """Apptainer on this machine.

    Parameters
    ----------
    executable : name or path of the program; the first of apptainer and singularity that is installed.
    grace : seconds between SIGTERM and SIGKILL.
    resolve : makes an image's path absolute.
    registry : where owners of instances are written down.
    """

    name = "sif"

    def __init__(
        self,
        executable: str = "",
        *,
        grace: float = 5.0,
        resolve: Callable[[str], Path] = Path,
        registry: Registry | None = None,
    ) -> None:
        self._executable = executable
        self._grace = grace
        self._resolve = resolve
        self._registry = registry or Registry()
        self._engine: spec.Engine | None = None
        self._probed: dict[tuple[str, ...], str] = {}

    @classmethod
    def from_runtime(cls, runtime: Runtime) -> SifBackend:
        """The backend as a runtime file sets it up (``[sif] executable``, ``[agent] grace_sec``)."""
        section = runtime.file.sif
        return cls(section.executable or "", grace=runtime.file.agent.grace_sec, resolve=runtime.resolve)

    @property
    def engine(self) -> spec.Engine:
        """The program; looked for once. Raises ``UserError``."""
        if self._engine is None:
            self._engine = sif_engine.find(self._executable)
        return self._engine

    def check(self, image: str) -> str:
        """The image's digest (``sha256:…``). ``UserError`` when the program or the image cannot be used."""
        return check_image(self._resolve(image), self.engine.program)

    def check_job(self, job: Job) -> None:
        """Raise ``UserError`` for what Apptainer cannot keep here: found out by running the image within the
        job's limits.
        """
        if job.limits.shm_mb is not None:
            raise UserError(
                "the sif backend cannot keep a limit (shm_mb): Apptainer gives /dev/shm no size of its own",
                next_step='remove the key, or use backend = "docker"',
            )
        if "HOME" in job.secrets:
            raise UserError("HOME cannot be a secret variable in an Apptainer container")
        words = tuple(spec.probe_words(job, self._resolve(job.image), self.engine))
        if words not in self._probed:
            try:
                sif_engine.ask(*words)
                self._probed[words] = ""
            except EngineError as error:
                self._probed[words] = str(error)
        if self._probed[words]:
            raise UserError(
                f"Apptainer cannot run the image as asked: {self._probed[words]}",
                expected="limits that this machine can keep; without root they need cgroups v2 and systemd",
                next_step="remove the limits or the network mode that it names, or try the command by hand: "
                + " ".join(words),
            )

    def describe(self, job: Job) -> list[str]:
        """Words of the equivalent ``apptainer exec``, secrets as ``***``."""
        engine = self._engine or spec.Engine(self._executable or spec.Engine().program)
        scratch = spec.Scratch(job.scratch or Path("<scratch>"))
        return spec.command_line(job, self._resolve(job.image), scratch, engine)

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        """Run ``job``; see ``Backend.run``. What the engine does wrong becomes ``Outcome.error``."""
        if fault := spec.faults(job):
            return Outcome(None, 0.0, error=fault)
        if stop.is_set():
            return Outcome(None, 0.0, interrupted=True)
        began = time.monotonic()
        private = Path(tempfile.mkdtemp(prefix="4dcb-sif-"))
        try:
            return self._run(job, log, timeout, stop, private)
        except (OSError, EngineError, UserError) as error:
            return Outcome(None, time.monotonic() - began, error=f"Apptainer cannot be used: {error}")
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def _run(self, job: Job, log: Path, timeout: float, stop: threading.Event, private: Path) -> Outcome:
        scratch = spec.Scratch(job.scratch or private / "scratch")
        for folder in (scratch.tmp, scratch.vartmp, scratch.home):
            folder.mkdir(parents=True, exist_ok=True)
        name = spec.instance_name(job.name)
        record = self._claim(name, job.labels.get(f"{LABEL}.run", ""), private)
        began = time.monotonic()
        with log.open("ab") as stream:
            orders = self._orders(job, scratch, timeout, private) | {
                "log": stream.fileno(),
                "record": str(record),
            }
            try:
                warden = start_warden(WARDEN, job.name, stream.fileno(), {})
            except OSError:
                self._registry.forget(name)
                raise
            with warden:
                report = converse(warden, orders, stop)
        if report is None:
            gone = self._end(name)
            text = f"the warden of {job.name} was killed (status {warden.returncode})"
            return Outcome(None, time.monotonic() - began, gone=gone, error=text)
        return _outcome(report, job)

    def _orders(self, job: Job, scratch: spec.Scratch, timeout: float, private: Path) -> dict[str, Any]:
        program = self.engine.program
        return {
            "name": spec.instance_name(job.name),
            "start": spec.start_words(job, self._resolve(job.image), scratch, self.engine),
            "list": [program, "instance", "list", "--json"],
            "exec": spec.exec_words(job, self.engine),
            "env": spec.program_environment(os.environ),
            "exec_env": spec.engine_environment(job, self.engine, os.environ),
            "limits": spec.limit_numbers(job),
            "timeout": timeout,
            "start_timeout": START_S,
            "grace": self._grace,
            "private": str(private),
            "remove": [str(private)],
        }

    def _claim(self, name: str, run: str, private: Path) -> Path:
        """Write down the owner of a container to be; a dead launcher's is removed first."""
        found = self._registry.read(name)
        if found is not None and found.dead_owner:
            self.remove(Orphan(name, found.run, True))
        elif name in sif_engine.instances(self.engine.program):
            raise EngineError(f"a container called {name} exists already and its launcher may still run")
        try:
            return self._registry.claim(name, run, str(private))
        except FileExistsError as error:
            raise EngineError(
                f"a container called {name} exists already and its launcher may still run"
            ) from error

    def orphans(self) -> list[Orphan]:
        """Every container of ours on this machine. ``UserError`` when Apptainer does not answer.

        One with a name of ours and no record of its owner counts as living: nobody can tell.
        """
        try:
            running = sif_engine.instances(self.engine.program)
        except EngineError as error:
            raise UserError(f"the containers cannot be listed: {error}") from error
        records = {record.name: record for record in self._registry.all()}
        found = [Orphan(name, record.run, record.dead_owner) for name, record in records.items()]
        found += [
            Orphan(name, "", False) for name in running if name.startswith(OURS) and name not in records
        ]
        return sorted(found, key=lambda orphan: orphan.name)

    def remove(self, orphan: Orphan) -> None:
        """End it and remove what it left. ``RuntimeError`` when it will not go or may be in use."""
        record = self._registry.read(orphan.name)
        if record is None and orphan.name not in sif_engine.instances(self.engine.program):
            return
        if record is None or not record.dead_owner:
            raise EngineError(
                f"container {orphan.name} belongs to a launcher that may still run; it was left alone"
            )
        if not self._end(orphan.name):
            raise EngineError(f"container {orphan.name} will not end")

    def _end(self, name: str) -> bool:
        """Kill an instance, confirm that it is gone, and remove what it left; False when it is not."""
        program = self.engine.program
        until = time.monotonic() + _GONE_S
        folders: dict[str, Path] = {}
        logs: tuple[Path, ...] = ()
        while instance := sif_engine.instances(program).get(name):
            if time.monotonic() > until:
                return False
            folders, logs = folders or sif_cgroup.groups(instance.pid), instance.logs
            try:
                sif_engine.kill(program, name)
            except EngineError:
                time.sleep(0.2)  # it may have gone meanwhile: look again
        sif_cgroup.remove(folders)
        for log in logs:
            log.unlink(missing_ok=True)
        record = self._registry.read(name)
        if record is not None and record.scratch:
            shutil.rmtree(record.scratch, ignore_errors=True)
        self._registry.forget(name)
        return True


def _outcome(report: dict[str, Any], job: Job) -> Outcome:
    """What the warden reports. An engine that failed speaks for itself."""
    error = sif_engine.complaint(report["error"]) if report["error"] else ""
    warnings = []
    if job.limits.cpus is not None and spec.granted_cpus(job) != job.limits.cpus:
        warnings.append(
            f"{job.limits.cpus:g} processors were asked for; there are {spec.granted_cpus(job):g}"
        )
    return Outcome(
        exit_code=report["exit_code"],
        seconds=report["seconds"],
        timed_out=report.get("timed_out", False),
        interrupted=report.get("interrupted", False),
        oom_killed=report.get("oom_killed", False),
        killed_after_sec=report.get("killed_after_sec"),
        gone=report["gone"],
        error=error or report["error"][:300],
        warnings=tuple(warnings),
    )
