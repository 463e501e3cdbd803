"""The host backend: a plain process with real paths. It isolates nothing; it is for demos and trusted agents.

What it does keep: a clean environment, a closed standard input, the time limit, and that nothing the command
started outlives it (see :mod:`.warden`). What it cannot keep (no network, limits of memory and processors) it
refuses.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from contract.errors import UserError
from harness.runtime import owner
from harness.runtime.backends.base import LABEL, Job, Limits, Orphan, Outcome
from harness.runtime.backends.warden_pipe import converse, start_warden

MARKER = "FDCB_JOB"
"""Variable in the environment of every process of a job: by it they are found again, whoever their parent is.
"""
WARDEN = Path(__file__).with_name("warden.py")
REPOSITORY = Path(__file__).resolve().parents[3]
_PATIENCE = 20.0


class HostBackend:
    """Runs jobs as plain processes. ``grace``: seconds between SIGTERM and SIGKILL."""

    name = "host"

    def __init__(self, grace: float = 5.0) -> None:
        self.grace = grace

    def check(self, image: str) -> str:
        """What will run: this interpreter on this system. Raises ``UserError`` where it cannot keep its
        promises.
        """
        if image:
            raise UserError(f"the host backend runs no images, and {image!r} was asked for")
        if sys.platform != "linux" or not Path("/proc/self/environ").exists():
            raise UserError("the host backend needs Linux with /proc", next_step='use backend = "docker"')
        return f"host {platform.release()} {platform.machine()}, Python {platform.python_version()}"

    def check_job(self, job: Job) -> None:
        """Raise ``UserError`` for anything in ``job`` that a plain process cannot keep."""
        if not job.network:
            raise _cannot("cut a process off the network")
        for name in Limits.__dataclass_fields__:
            if getattr(job.limits, name) is not None:
                raise _cannot(f"keep a limit ({name})")
        if job.mounts or job.as_root:
            raise _cannot("mount anything or become root")

    def check_program(self, job: Job) -> None:
        """Raise ``UserError`` when the job's program is not on this machine."""
        if shutil.which(job.command[0], path=self.environment(job).get("PATH")) is None:
            raise UserError(
                f'program {job.command[0]!r} was not found on this machine, where backend = "host" runs it',
                next_step='install it, put it on PATH, or use backend = "docker"',
            )

    def environment(self, job: Job) -> dict[str, str]:
        """Variables of the command, secrets included: what it needs to find programs, and what the job
        says.
        """
        bin_directory = str(Path(sys.executable).parent)
        env = {
            "PATH": os.pathsep.join([bin_directory, os.environ.get("PATH", os.defpath)]),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
        }
        if not _installed() and _on_python_path():
            env["PYTHONPATH"] = str(REPOSITORY)
        devices = _visible_devices(job.gpus)
        if devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = devices
        return env | dict(job.env) | dict(job.secrets) | {MARKER: _mark(job)}

    def describe(self, job: Job) -> list[str]:
        """Words of an equivalent command line, secrets replaced by ``***``."""
        shown = dict(job.env) | dict.fromkeys(job.secrets, "***")
        return ["env", "-C", str(job.workdir), *(f"{k}={v}" for k, v in sorted(shown.items())), *job.command]

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        """Run the job under a warden and wait for its end."""
        started = time.monotonic()
        with log.open("ab") as stream:
            orders = {
                "command": list(job.command),
                "cwd": str(job.workdir),
                "env": self.environment(job),
                "timeout": timeout,
                "grace": self.grace,
                "log": stream.fileno(),
            }
            try:
                warden = start_warden(WARDEN, job.name, stream.fileno(), {MARKER: _mark(job)})
            except OSError as error:
                return Outcome(
                    None, time.monotonic() - started, error=f"the warden could not be started: {error}"
                )
            with warden:
                report = converse(warden, orders, stop)
        if report is None:
            gone = _sweep(_mark(job))
            text = f"the warden of {job.name} was killed (status {warden.returncode})"
            return Outcome(None, time.monotonic() - started, gone=gone, error=text)
        return Outcome(
            exit_code=report["exit_code"],
            seconds=report["seconds"],
            timed_out=report.get("timed_out", False),
            interrupted=report.get("interrupted", False),
            killed_after_sec=report.get("killed_after_sec"),
            gone=report.get("gone", True),
            error=report["error"],
        )

    def orphans(self) -> list[Orphan]:
        """Jobs of this user that have a process on this machine."""
        found = []
        for mark in sorted({mark for _, mark in _marked()}):
            data = _read_mark(mark)
            if data is not None:
                found.append(Orphan(str(data["name"]), str(data["run"]), not owner.alive(data)))
        return found

    def remove(self, orphan: Orphan) -> None:
        """End every process of the job. Raises ``RuntimeError`` when one will not go or may be in use."""
        marks = {mark for _, mark in _marked() if (_read_mark(mark) or {}).get("name") == orphan.name}
        if any(owner.alive(_read_mark(mark) or {}) for mark in marks):
            raise RuntimeError(f"{orphan.name} belongs to a launcher that may still run; it was left alone")
        if not all(_sweep(mark) for mark in marks):
            raise RuntimeError(f"processes of {orphan.name} will not end")


def _cannot(what: str) -> UserError:
    return UserError(
        f"the host backend cannot {what}",
        expected="such a key left out of the runtime file",
        next_step='remove the key, or use backend = "docker"',
    )


def _visible_devices(gpus: tuple[str, ...] | None) -> str | None:
    """Value of CUDA_VISIBLE_DEVICES; None leaves every device visible."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") if gpus is None else ",".join(gpus)


def _installed() -> bool:
    """Whether the project is installed for the interpreter, so that ``-m harness.baseline`` is found without
    help.
    """
    try:
        metadata.distribution("fourdcodebench")
    except metadata.PackageNotFoundError:
        return False
    return True


def _on_python_path() -> bool:
    return any(
        Path(p).resolve() == REPOSITORY for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
    )


def _mark(job: Job) -> str:
    data = owner.this_process() | {"name": job.name, "run": job.labels.get(f"{LABEL}.run", "")}
    return json.dumps(data, sort_keys=True)


def _read_mark(mark: str) -> dict[str, Any] | None:
    try:
        data = json.loads(mark)
    except ValueError:
        return None
    return data if isinstance(data, dict) and {"name", "run", "pid", "boot_id"} <= set(data) else None


def _marked() -> Iterator[tuple[int, str]]:
    """``(pid, mark)`` of every living process that carries a mark and belongs to this user."""
    prefix = f"{MARKER}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(prefix) and owner.start_ticks(int(entry.name)) is not None:
                yield int(entry.name), variable[len(prefix) :].decode(errors="replace")
                break


def _sweep(mark: str) -> bool:
    """SIGKILL every process that carries ``mark`` until none is left; False when patience runs out."""
    until = time.monotonic() + _PATIENCE
    while pids := [pid for pid, found in _marked() if found == mark]:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
