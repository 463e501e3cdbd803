"""One container from its creation to its confirmed end."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

from harness.runtime.backends import docker_cleanup as cleanup
from harness.runtime.backends.base import Job, Outcome
from harness.runtime.backends.docker_engine import (
    PATIENCE_S,
    TRANSPORT_ERRORS,
    EngineError,
    cause,
    connect,
    facts,
    patiently,
)
from harness.runtime.backends.docker_owner import TOKEN, own_labels, owner_is_dead
from harness.runtime.backends.docker_spec import (
    Engine,
    container_arguments,
    granted_cpus,
    host_arguments,
    user,
)
from harness.runtime.backends.docker_watch import Settings, Watch, refusal

_HAND_BACK_S = 600.0


class _CouldNotStart(Exception):
    """The engine refused to create or start the container; the message is for people."""


class Supervision:
    """Runs one job on one engine; for one call of ``run``."""

    def __init__(self, client: docker.DockerClient, engine: Engine, settings: Settings) -> None:
        self._client = client
        self._engine = engine
        self._settings = settings
        self.token = secrets.token_hex(16)

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        """Create, start, follow and end the container. Never raises for what the engine does."""
        warnings: list[str] = _lowered(job, self._engine)
        try:
            container, said = self.create(job)
        except (_CouldNotStart, EngineError, DockerException) as error:
            return Outcome(None, 0.0, gone=self._is_gone(job.name), error=cause(error))
        warnings += said
        watch = Watch(self._client, container, log, self._settings)
        try:
            outcome = watch.run(timeout, stop)
        finally:
            # Also on an exception of ours, a KeyboardInterrupt among them: nothing is left running.
            gone = self._removed(container, warnings)
        return replace(outcome, gone=gone, warnings=(*warnings, *outcome.warnings))

    def create(self, job: Job) -> tuple[str, list[str]]:
        """A created container's id and the engine's warnings.

        A container of the same name whose launcher is dead is removed first; one that may be in use is an
        error. A request that was repeated because its answer was lost finds its own container by the token.
        """
        labels = {**job.labels, **own_labels(), TOKEN: self.token}
        arguments = container_arguments(job, self._settings.owner, labels, self._engine)
        host = self._client.api.create_host_config(**host_arguments(job, self._engine))
        for last in (False, True):
            try:
                made = patiently(
                    lambda: self._client.api.create_container(**arguments, host_config=host),
                    self._settings.patience,
                )
                return made["Id"], [str(text) for text in made.get("Warnings") or []]
            except APIError as error:
                if error.status_code != cleanup.CONFLICT or last:
                    raise _CouldNotStart(refusal("create", error)) from error
                if own := self._resolve_name(job.name):
                    return own, []
        raise AssertionError("unreachable")

    def _resolve_name(self, name: str) -> str:
        """The id of the container called ``name`` if it is this run's; empty after removing a dead
        launcher's.
        """
        patience = self._settings.patience
        try:
            found = patiently(lambda: self._client.api.inspect_container(name), patience)
        except NotFound:
            return ""
        labels = found["Config"].get("Labels") or {}
        if labels.get(TOKEN) == self.token:
            return str(found["Id"])
        if not owner_is_dead(labels):
            raise _CouldNotStart(
                f"a container called {name} exists already and its launcher may still run; "
                f'if it does not, remove it with "docker rm -f {name}"'
            )
        cleanup.remove(self._client, found["Id"], patience)
        return ""

    def _removed(self, container: str, warnings: list[str]) -> bool:
        try:
            cleanup.remove(self._client, container, self._settings.patience)
        except (APIError, EngineError) as error:
            warnings.append(f"container {container[:12]} may still exist: {cause(error)}")
            return False
        return True

    def _is_gone(self, name: str) -> bool:
        """After a failed creation: no container of this run is left under the name."""
        try:
            found = patiently(lambda: self._client.api.inspect_container(name), self._settings.patience)
        except NotFound:
            return True
        except (APIError, EngineError):
            return False
        if (found["Config"].get("Labels") or {}).get(TOKEN) != self.token:
            return True
        return self._removed(found["Id"], [])


def clean_up_after(record: dict[str, Any], wait: float) -> None:
    """Remove the container of a launcher that died and hand its files back; the warden's work.

    record : see ``Warden.watch``. wait : seconds during which the container may still appear. Raises
    ``EngineError`` when the engine does not answer or the container will not go.
    """
    try:
        client = connect(record["host"])
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise EngineError(cause(error)) from error
    try:
        deadline = time.monotonic() + wait
        while not _remove_by_token(client, record["name"], record["token"]) and time.monotonic() < deadline:
            time.sleep(0.5)
        if record["paths"]:
            paths = [Path(path) for path in record["paths"]]
            hand_back(client, record["name"], record["image"], paths, record["owner"])
    except (APIError, *TRANSPORT_ERRORS) as error:
        raise EngineError(cause(error)) from error
    finally:
        client.close()


def hand_back(client: docker.DockerClient, name: str, image: str, paths: list[Path], owner: str) -> str:
    """Make ``paths`` belong to ``owner`` (``uid:gid`` as seen inside); what went wrong, empty when nothing
    did.
    """
    there = [path for path in paths if path.exists()]
    if not there:
        return ""
    job = cleanup.hand_back_job(f"{name}-handback", image, there, owner)
    uid, gid = (int(part) for part in owner.split(":"))
    with tempfile.TemporaryDirectory(prefix="4dcb-handback-") as folder:
        log = Path(folder) / "log"
        try:
            engine = patiently(lambda: facts(client), PATIENCE_S)
            outcome = Supervision(client, engine, Settings((uid, gid))).run(
                job, log, _HAND_BACK_S, threading.Event()
            )
        except (DockerException, EngineError) as error:
            outcome = Outcome(None, 0.0, error=cause(error))
        said = log.read_text(encoding="utf-8", errors="replace")[-200:] if log.exists() else ""
    if outcome.exit_code == 0 and not outcome.error:
        return ""
    why = outcome.error or f"chown ended with status {outcome.exit_code}: {said}"
    return (
        f"files in {', '.join(map(str, there))} could not be given back to the user: {' '.join(why.split())}"
    )


def inside_owner(settings: Settings, engine: Engine) -> str:
    """``uid:gid`` inside a container of the files that are the caller's outside."""
    return "0:0" if engine.rootless else f"{settings.owner[0]}:{settings.owner[1]}"


def writable_paths(job: Job, engine: Engine, settings: Settings) -> list[Path]:
    """Host paths in which the job may leave files that are not the caller's."""
    may_leave = job.as_root or user(job, settings.owner, engine) != inside_owner(settings, engine)
    return [mount.source for mount in job.mounts if mount.writable] if may_leave else []


def _remove_by_token(client: docker.DockerClient, name: str, token: str) -> bool:
    try:
        found = client.api.inspect_container(name)
    except NotFound:
        return False
    if (found["Config"].get("Labels") or {}).get(TOKEN) == token:
        cleanup.remove(client, found["Id"], PATIENCE_S)
    return True


def _lowered(job: Job, engine: Engine) -> list[str]:
    granted = granted_cpus(job, engine)
    if granted == job.limits.cpus:
        return []
    return [f"{job.limits.cpus:g} processors were asked for; the engine has {granted:g}"]
