"""What Apptainer is asked for: a job as words of its command lines and as variables. Pure functions.

A job is a named *instance* (``apptainer instance start``), in which the command is run (``apptainer exec
instance://NAME``): so people see it in ``apptainer instance list`` and can end it by name, and its control
group outlives the command, so that running out of memory can be told. ``command_line`` shows the one
``apptainer exec`` that does the same.

Variables travel as ``APPTAINERENV_NAME`` in the program's own environment, never as words: others can read
a command line.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.names import CONTAINER
from harness.runtime.backends.base import Job, Mount

HIDDEN = "***"
EGL_VENDOR = Path(__file__).resolve().parents[2] / "apptainer" / "10_nvidia.json"
EGL_TARGET = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
NVIDIA_SMI = Path("/usr/bin/nvidia-smi")
_ENTER = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'
"""Run by ``sh -c`` with the working directory and the command. Apptainer itself would go elsewhere, with a
warning only, when the directory is missing; and a program that is not found is status 127, as in a shell.
"""
_PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|TMPDIR|LD_LIBRARY_PATH|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS"
    r"|(APPTAINER|SINGULARITY)_(TMPDIR|CACHEDIR|LOCALCACHEDIR|CONFIGDIR|CONFIG_FILE)"
)


@dataclass(frozen=True)
class Engine:
    """program : path or name of the executable. variables : prefix of what it passes on to a container."""

    program: str = "apptainer"
    variables: str = "APPTAINERENV_"


@dataclass(frozen=True)
class Scratch:
    """Folders of this machine behind a job's ``/tmp``, ``/var/tmp`` and, where it mounts none, its home.

    The space of ``--writable-tmpfs`` is 64 MiB by default.
    """

    root: Path

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def vartmp(self) -> Path:
        return self.root / "vartmp"

    @property
    def home(self) -> Path:
        return self.root / "home"


def instance_name(name: str) -> str:
    """A container's name with the characters that Apptainer takes."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def start_words(job: Job, image: Path, scratch: Scratch, engine: Engine) -> list[str]:
    """Words that start the instance. It runs nothing of the job yet."""
    words = [engine.program, "instance", "start", *isolation(job, scratch), *limit_words(job)]
    return [*words, str(image), instance_name(job.name)]


def exec_words(job: Job, engine: Engine) -> list[str]:
    """Words that run the job's command in its started instance."""
    words = [engine.program, "--silent", "exec", "--cleanenv", "--no-eval", "--pwd", "/"]
    return [*words, f"instance://{instance_name(job.name)}", *inner_command(job)]


def probe_words(job: Job, image: Path, engine: Engine) -> list[str]:
    """Words that tell whether the engine can run the image within the job's bounds."""
    words = [engine.program, "exec", *_network(job), "--containall", "--cleanenv", "--no-home"]
    return [*words, "--writable-tmpfs", *limit_words(job), "--pwd", "/", str(image), "/bin/sh", "-c", ":"]


def command_line(job: Job, image: Path, scratch: Scratch, engine: Engine) -> list[str]:
    """Words of the equivalent ``apptainer exec``, the values of secrets hidden."""
    shown = environment(job) | dict.fromkeys(job.secrets, HIDDEN)
    variables = [f"{engine.variables}{name}={value}" for name, value in shown.items()]
    start = isolation(job, scratch)
    # An instance has a name space of processes anyhow; exec has to be told.
    start.insert(start.index("--home"), "--pid")
    words = [engine.program, "exec", *start, *limit_words(job), "--pwd", str(job.workdir)]
    return ["env", *variables, *words, str(image), *_with_home(job)]


def isolation(job: Job, scratch: Scratch) -> list[str]:
    """GPU, network, name spaces, home and mounts, in the order of the reference harness."""
    words = ["--nv"] if job.gpus != () else []
    words += [*_network(job), "--containall", "--cleanenv", "--no-eval"]
    home = home_mount(job)
    words += ["--home", f"{home.source if home else scratch.home}:{CONTAINER.home}", "--writable-tmpfs"]
    for mount in job.mounts:
        if mount is not home:
            words += ["--mount", _mount(mount.source, str(mount.target), mount.writable)]
    if job.gpus != ():
        words += ["--mount", _mount(EGL_VENDOR, EGL_TARGET, False)]
        if NVIDIA_SMI.is_file():
            words += ["--mount", _mount(NVIDIA_SMI, str(NVIDIA_SMI), False)]
    taken = {str(mount.target) for mount in job.mounts}
    for source, target in ((scratch.tmp, "/tmp"), (scratch.vartmp, "/var/tmp")):
        if target not in taken:
            words += ["--mount", _mount(source, target, True)]
    return words


def home_mount(job: Job) -> Mount | None:
    """The mount that is the command's home, if the job has one."""
    return next((m for m in job.mounts if m.writable and m.target == CONTAINER.home), None)


def limit_words(job: Job) -> list[str]:
    """Limits of the control group."""
    limits, words = job.limits, list[str]()
    if limits.cpus is not None:
        words += ["--cpus", f"{granted_cpus(job):g}"]
    if limits.memory_mb is not None:
        # Equal values: no swap beyond the memory.
        words += ["--memory", f"{limits.memory_mb}M", "--memory-swap", f"{limits.memory_mb}M"]
    if limits.pids is not None:
        words += ["--pids-limit", str(limits.pids)]
    return words


def limit_numbers(job: Job) -> dict[str, float]:
    """What the control group must say of those limits: ``memory`` in bytes, ``cpus``, ``pids``."""
    limits = job.limits
    given = {
        "memory": None if limits.memory_mb is None else float(limits.memory_mb << 20),
        "cpus": None if limits.cpus is None else granted_cpus(job),
        "pids": limits.pids,
    }
    return {name: value for name, value in given.items() if value is not None}


def granted_cpus(job: Job) -> float:
    """Processors to ask for: at most what there is."""
    assert job.limits.cpus is not None
    return min(job.limits.cpus, float(os.cpu_count() or job.limits.cpus))


def environment(job: Job) -> dict[str, str]:
    """Variables of the command, without the secrets and ``HOME``.

    GPUs are pinned by ``CUDA_VISIBLE_DEVICES``: Apptainer shows all of them or none.
    """
    added = {"LANG": "C.UTF-8"}
    if job.gpus is not None:
        added["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpus)
    return {name: value for name, value in (added | dict(job.env)).items() if name != "HOME"}


def engine_environment(job: Job, engine: Engine, outside: Mapping[str, str]) -> dict[str, str]:
    """Variables of the program that runs the command, secrets included.

    outside : the launcher's own variables, of which only those that the program needs are passed on; an
    operator's ``APPTAINER_BIND`` must not reach a run.
    """
    inside = environment(job) | dict(job.secrets)
    return program_environment(outside) | {engine.variables + name: value for name, value in inside.items()}


def program_environment(outside: Mapping[str, str]) -> dict[str, str]:
    """What the program itself needs of the launcher's variables."""
    return {name: value for name, value in outside.items() if _PASSED_ON.fullmatch(name)}


def inner_command(job: Job) -> list[str]:
    """The command as it is run inside, in its working directory."""
    return ["/bin/sh", "-c", _ENTER, "sh", str(job.workdir), *_with_home(job)]


def _with_home(job: Job) -> list[str]:
    """The command with a ``HOME`` of its own, which Apptainer refuses to pass on as a variable."""
    return ["env", f"HOME={job.env['HOME']}", *job.command] if "HOME" in job.env else list(job.command)


def _network(job: Job) -> list[str]:
    return [] if job.network else ["--net", "--network", "none"]


def _mount(source: Path, target: str, writable: bool) -> str:
    """A comma-separated record, quoted where a path needs it: ``-B`` cannot name a path with a colon."""
    fields = ["type=bind", f"source={source}", f"destination={target}"]
    if not writable:
        fields.append("ro")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def faults(job: Job) -> str:
    """What of the job's files cannot be had, empty when all can."""
    if missing := [str(mount.source) for mount in job.mounts if not mount.source.exists()]:
        return f"to be mounted but not there: {', '.join(missing)}"
    home = home_mount(job)
    if home is not None and ":" in str(home.source):
        return f"{home.source} cannot be a home: Apptainer takes the colon for the end of the path"
    return ""
