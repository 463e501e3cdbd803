"""Ending containers: stop, kill, confirm that they are gone; and giving files back to the caller."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import docker
from docker.errors import APIError, NotFound

from harness.runtime.backends.base import Job, Mount, Orphan
from harness.runtime.backends.docker_engine import EngineError, cause, patiently
from harness.runtime.backends.docker_owner import OWNER, RUN, owner_is_dead

GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL."""
KILL_S = 15.0
"""Longest wait for a killed container to end, and for a removed one to be gone."""
CONFLICT = 409

_HAND_BACK = 'chown -Rh -- "$0" "$@" && chmod -R u+rwX -- "$@"'
"""Run by ``sh -c`` with ``uid:gid`` and the paths. Links are changed themselves, never followed."""


def state(client: docker.DockerClient, name: str, patience: float) -> dict[str, Any] | None:
    """The engine's ``State`` of a container; None when there is none. ``EngineError`` when it does not
    answer.
    """
    try:
        found: dict[str, Any] = patiently(lambda: client.api.inspect_container(name), patience)["State"]
    except NotFound:
        return None
    return found


def terminate(client: docker.DockerClient, name: str, grace: float, patience: float) -> None:
    """End a running container: SIGTERM, ``grace`` seconds, SIGKILL; returns when it runs no more.

    Raises ``EngineError`` when it still runs or the engine does not answer.
    """
    if grace > 0:
        _signal(client, name, "SIGTERM", patience)
        if _ended_within(client, name, grace, patience):
            return
    _signal(client, name, "SIGKILL", patience)
    if not _ended_within(client, name, KILL_S, patience):
        raise EngineError(f"container {name} still runs {KILL_S:g} s after SIGKILL")


def remove(client: docker.DockerClient, name: str, patience: float) -> None:
    """Kill what still runs, remove the container and its anonymous volumes, and confirm that it is gone.

    Raises ``EngineError`` when it is still there after ``KILL_S`` seconds.
    """
    deadline = time.monotonic() + KILL_S
    while True:
        refusal = ""
        try:
            patiently(lambda: client.api.remove_container(name, force=True, v=True), patience)
        except NotFound:
            return
        except APIError as error:
            # 409: a removal is under way already. Others may pass as well (a device still busy).
            refusal = cause(error)
        if state(client, name, patience) is None:
            return
        if time.monotonic() > deadline:
            raise EngineError(f"container {name} cannot be removed: {refusal or 'it is still listed'}")
        time.sleep(0.2)


def orphans(client: docker.DockerClient, patience: float) -> list[Orphan]:
    """Every container with our owner label, running or not, by name."""
    listed = patiently(
        lambda: client.api.containers(all=True, filters={"label": OWNER}),
        patience,
    )
    found = []
    for entry in listed:
        labels: dict[str, str] = entry.get("Labels") or {}
        name = next(iter(entry.get("Names") or []), entry["Id"]).lstrip("/")
        found.append(Orphan(name=name, run=labels.get(RUN, ""), dead_owner=owner_is_dead(labels)))
    return sorted(found, key=lambda orphan: orphan.name)


def remove_orphan(client: docker.DockerClient, name: str, patience: float) -> tuple[str, list[Path]]:
    """Kill and remove a container of ours whose owner is dead; its image's id and its writable host paths.

    Judged again here, on what the engine says now. Raises ``EngineError`` when the container is another's
    or will not go; one that is gone already is fine.
    """
    try:
        found: dict[str, Any] = patiently(lambda: client.api.inspect_container(name), patience)
    except NotFound:
        return "", []
    if not owner_is_dead(found["Config"].get("Labels") or {}):
        raise EngineError(f"container {name} belongs to a launcher that may still run; it was left alone")
    remove(client, found["Id"], patience)
    binds = [m for m in found.get("Mounts") or [] if m.get("Type") == "bind" and m.get("RW")]
    return str(found["Image"]), [Path(mount["Source"]) for mount in binds]


def foreign(paths: Iterable[Path], uid: int) -> list[Path]:
    """Those of ``paths`` that hold something not owned by ``uid``, or that cannot be looked through."""
    return [path for path in paths if _holds_foreign(path, uid)]


def hand_back_job(name: str, image: str, paths: Iterable[Path], owner: str) -> Job:
    """A tiny job that makes ``paths`` and everything below belong to ``owner`` (``uid:gid`` as seen
    inside).
    """
    mounts = tuple(
        Mount(path, PurePosixPath("/handback") / str(number), writable=True)
        for number, path in enumerate(paths)
    )
    command = ("sh", "-c", _HAND_BACK, owner, *(str(mount.target) for mount in mounts))
    root = PurePosixPath("/")
    return Job(name, command, image=image, mounts=mounts, workdir=root, network=False, as_root=True)


def _signal(client: docker.DockerClient, name: str, signal: str, patience: float) -> None:
    try:
        patiently(lambda: client.api.kill(name, signal), patience)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != CONFLICT:  # 409: it runs no more
            raise EngineError(f"{signal} to container {name}: {cause(error)}") from error


def _ended_within(client: docker.DockerClient, name: str, seconds: float, patience: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        now = state(client, name, patience)
        if now is None or not now["Running"]:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)


def _holds_foreign(path: Path, uid: int) -> bool:
    unreadable: list[OSError] = []
    try:
        if path.lstat().st_uid != uid:
            return True
        for folder, folders, files in os.walk(path, onerror=unreadable.append):
            for entry in folders + files:
                if (Path(folder) / entry).lstat().st_uid != uid:
                    return True
    except OSError:
        return True
    return bool(unreadable)
