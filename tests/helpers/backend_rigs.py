"""The three backends as one contract sees them: what a job's files are called inside, how it is looked at
from outside, and what a backend cannot keep.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from harness_lab import REPOSITORY, mentioning

from harness.runtime.backends import sif_engine
from harness.runtime.backends.base import LABEL, Backend, Job, Mount, Outcome
from harness.runtime.backends.docker import DockerBackend
from harness.runtime.backends.host import HostBackend
from harness.runtime.backends.sif import SifBackend

LONG = 120.0
RUN = "synthetic/case/agent/1"

LAUNCHER = """
import json, sys, threading
from pathlib import Path
from backend_rigs import Rig, job_of
given = json.loads(sys.argv[1])
rig = Rig(given["kind"], given["image"], Path(given["shared"]), grace=0.5)
rig.backend.run(job_of(rig, given["name"], given["script"]), Path(given["log"]), 1000.0, threading.Event())
"""


class Rig:
    """One backend with a folder that a job shares with the test: ``shared`` here, ``inside`` there."""

    def __init__(self, kind: str, image: str, shared: Path, grace: float = 1.0) -> None:
        self.kind, self.image, self.shared = kind, image, shared
        self.contained = kind != "host"
        self.inside = PurePosixPath("/w") if self.contained else PurePosixPath(shared)
        self.backend = backend(kind, grace)
        self.log = shared.parent / "agent.log"
        self.mark = f"4dcb-test-{uuid.uuid4().hex[:12]}"

    def job(self, script: str, *words: str, **fields: Any) -> Job:
        """A shell script with ``words`` as its arguments, in the shared folder."""
        return job_of(
            self, fields.pop("name", f"{self.mark}-{uuid.uuid4().hex[:6]}"), script, *words, **fields
        )

    def once(self, job: Job, timeout: float = LONG) -> Outcome:
        """Run it as a launcher does: refused first if it must be."""
        self.backend.check_job(job)
        return self.backend.run(job, self.log, timeout, threading.Event())

    def said(self) -> str:
        """The log, without the noise of another locale."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def exists(self, job: Job) -> bool:
        """Whether anything of the job is left on the machine."""
        if mentioning(self.mark):
            return True
        if self.kind == "docker":
            done = subprocess.run(
                ["docker", "ps", "-aq", "--filter", f"name={job.name}"], capture_output=True, check=True
            )
            return bool(done.stdout.strip())
        if self.kind == "sif":
            return job.name in sif_engine.instances(sif_backend(self).engine.program)
        return False

    def inspect(self, job: Job) -> str:
        """What the engine tells others about a running job, but for the variables themselves."""
        if self.kind == "docker":
            words = ["docker", "inspect", job.name]
            found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
            found[0]["Config"].pop("Env")
            return json.dumps(found)
        if self.kind == "sif":
            return sif_engine.ask(sif_backend(self).engine.program, "instance", "list", "--json")
        return ""

    def end_from_outside(self, job: Job) -> None:
        """As an operator would, by name."""
        if self.kind == "docker":
            subprocess.run(["docker", "kill", job.name], capture_output=True, check=True)
        else:
            sif_engine.kill(sif_backend(self).engine.program, job.name)

    def processes(self) -> list[int]:
        """Pids on this machine of the job's own processes, by a word in their command lines."""
        return [pid for pid in mentioning(self.mark) if self.mark.encode() in _words(pid)]

    def launcher(self, script: str) -> tuple[subprocess.Popen[bytes], Job]:
        """A process of its own that runs the script through the backend, and the job."""
        job = self.job(script)
        given = {
            "kind": self.kind, "image": self.image, "shared": str(self.shared), "name": job.name,
            "script": script, "log": str(self.log),
        }  # fmt: skip
        path = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, json.dumps(given)],
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
        return process, job


@cache
def backend(kind: str, grace: float) -> Backend:
    """One for all tests, as a launcher has one for all runs."""
    if kind == "docker":
        return DockerBackend(grace=grace)
    return SifBackend(grace=grace) if kind == "sif" else HostBackend(grace)


def sif_backend(rig: Rig) -> SifBackend:
    assert isinstance(rig.backend, SifBackend)
    return rig.backend


def job_of(rig: Rig, name: str, script: str, *words: str, **fields: Any) -> Job:
    """A job of a rig under a given name; launchers make the same one."""
    own: Mapping[str, Any] = {"labels": {f"{LABEL}.run": RUN}, "workdir": rig.inside, "image": ""}
    if rig.contained:
        mounts = (Mount(rig.shared, PurePosixPath("/w"), writable=True), *fields.pop("mounts", ()))
        own = {**own, "mounts": mounts, "image": rig.image}
    # The name as the script's own: so every process of the job is known by its command line.
    return dataclasses.replace(Job(name, ("sh", "-c", script, name, *words)), **{**own, **fields})


class Run(threading.Thread):
    """A job run beside the test."""

    def __init__(self, rig: Rig, job: Job, timeout: float = LONG, log: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.outcome: Outcome | None = None
        self._work = lambda: rig.backend.run(job, log or rig.log, timeout, self.stop)
        self.start()

    def run(self) -> None:
        self.outcome = self._work()

    def result(self) -> Outcome:
        self.join(LONG)
        assert self.outcome is not None
        return self.outcome


def until(true: Callable[[], object]) -> None:
    """Wait for a condition that must come."""
    deadline = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid: int, program: str) -> list[int]:
    """Children of a process whose command line names ``program``."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if program.encode() in _words(child)]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
