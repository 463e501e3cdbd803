"""What the engine is asked for: a job as arguments of the Docker API, and as words of a command line.

Pure functions. Both forms are built from the same job, field by field, so that what ``--dry-run`` shows is
what runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from harness.runtime.backends.base import Job
from harness.runtime.backends.base import Mount as JobMount

HIDDEN = "***"
ROOT_HOME = "/root"
SCRATCH_HOME = "/tmp"


@dataclass(frozen=True)
class Engine:
    """What of an engine changes the request.

    cpus : processors it has; None when unknown. rootless : it runs as the caller, whose files belong to
    root inside. remapped : it maps container users to other host users (``userns-remap``).
    """

    cpus: int | None = None
    rootless: bool = False
    remapped: bool = False


def user(job: Job, owner: tuple[int, int], engine: Engine) -> str:
    """``uid:gid`` inside the container.

    ``owner`` is the caller's uid and gid. A rootless engine shows the caller's files as root's.
    """
    if job.as_root or engine.rootless:
        return "0:0"
    return f"{owner[0]}:{owner[1]}"


def environment(job: Job, owner: tuple[int, int], engine: Engine) -> dict[str, str]:
    """Variables without the secrets.

    A caller's uid has no entry in the image's user table: ``HOME`` would be ``/`` and programs that look up
    their user's name would fail, so both are given. Without GPUs ``NVIDIA_VISIBLE_DEVICES=void`` keeps an
    image that asks for all of them from getting them through a default NVIDIA runtime.
    """
    added: dict[str, str] = {}
    if not user(job, owner, engine).startswith("0:"):
        homes = [m for m in job.mounts if m.writable and str(m.target) == ROOT_HOME]
        added = {"HOME": ROOT_HOME if homes else SCRATCH_HOME, "USER": "user", "LOGNAME": "user"}
    if job.gpus == ():
        added["NVIDIA_VISIBLE_DEVICES"] = "void"
    return added | dict(job.env)


def granted_cpus(job: Job, engine: Engine) -> float | None:
    """Processors to ask for: an engine refuses more than it has."""
    asked = job.limits.cpus
    return asked if asked is None or engine.cpus is None else min(asked, float(engine.cpus))


def container_arguments(
    job: Job, owner: tuple[int, int], labels: Mapping[str, str], engine: Engine
) -> dict[str, Any]:
    """Keyword arguments of ``APIClient.create_container`` without the host's part, secrets included."""
    return {
        "image": job.image,
        "name": job.name,
        # The command's first word as entry point replaces the image's own; the rest are its arguments.
        "entrypoint": [job.command[0]],
        "command": list(job.command[1:]),
        "environment": environment(job, owner, engine) | dict(job.secrets),
        "working_dir": str(job.workdir),
        "user": user(job, owner, engine),
        "labels": dict(labels),
    }


def host_arguments(job: Job, engine: Engine) -> dict[str, Any]:
    """Keyword arguments of ``APIClient.create_host_config``: mounts, GPUs, network and limits."""
    limits = job.limits
    arguments: dict[str, Any] = {
        "mounts": [_mount(mount) for mount in job.mounts],
        "init": True,
        # Another default driver may keep no log that can be read back.
        "log_config": LogConfig(type=LogConfig.types.JSON),
    }
    if not job.network:
        arguments["network_mode"] = "none"
    if engine.remapped:
        arguments["userns_mode"] = "host"
    if requests := device_requests(job):
        arguments["device_requests"] = requests
    cpus = granted_cpus(job, engine)
    if cpus is not None:
        arguments["nano_cpus"] = round(cpus * 1_000_000_000)
    if limits.memory_mb is not None:
        # Equal values: no swap beyond the memory.
        arguments["mem_limit"] = arguments["memswap_limit"] = f"{limits.memory_mb}m"
    if limits.pids is not None:
        arguments["pids_limit"] = limits.pids
    if limits.shm_mb is not None:
        arguments["shm_size"] = f"{limits.shm_mb}m"
    return arguments


def device_requests(job: Job) -> list[DeviceRequest]:
    """GPUs as the API wants them: a list of ids, or a count of -1 for all; never both."""
    if job.gpus is None:
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=list(job.gpus), capabilities=[["gpu"]])] if job.gpus else []


def command_line(job: Job, owner: tuple[int, int], engine: Engine) -> list[str]:
    """Words of the equivalent ``docker run``, the values of secrets hidden."""
    limits = job.limits
    words = ["docker", "run", "--rm", "--init", "--name", job.name]
    for key, value in sorted(job.labels.items()):
        words += ["--label", f"{key}={value}"]
    if job.gpus is None:
        words += ["--gpus", "all"]
    elif job.gpus:
        # The inner quotes are part of the value: without them a comma ends the field.
        words += ["--gpus", f'"device={",".join(job.gpus)}"']
    if not job.network:
        words += ["--network", "none"]
    if engine.remapped:
        words += ["--userns", "host"]
    cpus = granted_cpus(job, engine)
    if cpus is not None:
        words += ["--cpus", f"{cpus:g}"]
    if limits.memory_mb is not None:
        words += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    if limits.pids is not None:
        words += ["--pids-limit", str(limits.pids)]
    if limits.shm_mb is not None:
        words += ["--shm-size", f"{limits.shm_mb}m"]
    words += ["--log-driver", "json-file", "--user", user(job, owner, engine)]
    for key, value in environment(job, owner, engine).items():
        words += ["--env", f"{key}={value}"]
    for key in job.secrets:
        words += ["--env", f"{key}={HIDDEN}"]
    for mount in job.mounts:
        words += ["--mount", _mount_word(mount)]
    words += ["--workdir", str(job.workdir), "--entrypoint", job.command[0]]
    return [*words, job.image, *job.command[1:]]


def _mount(mount: JobMount) -> Mount:
    return Mount(
        target=str(mount.target), source=str(mount.source), type="bind", read_only=not mount.writable
    )


def _mount_word(mount: JobMount) -> str:
    """``type=bind,…`` as the comma-separated record that ``--mount`` reads, quoted where a path needs
    it."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if not mount.writable:
        fields.append("readonly")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
