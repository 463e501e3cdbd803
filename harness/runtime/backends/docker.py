"""Jobs in Docker containers, through the Docker SDK: named, labelled, limited, and gone when they end.

A job runs as the caller's uid and gid, so that what it writes is the caller's. A job that is to be root
inside (``Job.as_root``: agents install packages) leaves root's files; they are given back by a second, tiny
container of the same image (``chown`` and ``chmod u+rwX`` on the writable mounts) after the first one is
confirmed to be gone and before ``run`` returns, so that a caller collects, moves and deletes as itself. On
a rootless engine root inside *is* the caller, so every job runs as root there.

Secrets travel in the API request only. Nobody needs to poll ``docker ps`` after a crash: see
``docker_warden``, and ``orphans`` for what even that missed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import APIError, DockerException, ImageNotFound

from contract.errors import UserError
from harness.runtime.backends import docker_cleanup as cleanup
from harness.runtime.backends.base import Job, Orphan, Outcome
from harness.runtime.backends.docker_engine import (
    PATIENCE_S,
    TRANSPORT_ERRORS,
    EngineError,
    cause,
    connect,
    connect_or_explain,
    facts,
    patiently,
    unreachable,
)
from harness.runtime.backends.docker_spec import Engine, command_line
from harness.runtime.backends.docker_supervision import (
    Supervision,
    hand_back,
    inside_owner,
    writable_paths,
)
from harness.runtime.backends.docker_warden import Warden
from harness.runtime.backends.docker_watch import Settings

if TYPE_CHECKING:
    from harness.runtime.config import Runtime

_BUILD_FILES = {
    "4dcb/sim-base": "harness/base/Dockerfile",
    "4dcb/agent": "harness/agent/Dockerfile",
    "4dcb/scorer": "harness/scorer/Dockerfile",
}
_WARDEN = Warden()


class DockerBackend:
    """The Docker engine that ``DOCKER_HOST``, else the current context of the command line, names.

    Parameters
    ----------
    owner : uid and gid to which written files shall belong; the caller's by default.
    grace : seconds between SIGTERM and SIGKILL.
    patience : seconds for which an engine may fail to answer before a job is given up as lost.
    host : address of the engine instead of the usual one.
    program : name of the command line's program in descriptions.
    """

    name = "docker"

    def __init__(
        self,
        owner: tuple[int, int] | None = None,
        *,
        grace: float = cleanup.GRACE_S,
        patience: float = PATIENCE_S,
        host: str = "",
        program: str = "docker",
    ) -> None:
        self._settings = Settings(owner or (os.getuid(), os.getgid()), grace, patience, host)
        self._engine = Engine()
        self._program = program

    @classmethod
    def from_runtime(cls, runtime: Runtime) -> DockerBackend:
        """The backend as a runtime file sets it up (``[docker] host``, ``executable``, ``[agent]
        grace_sec``).
        """
        section = runtime.file.docker
        return cls(
            grace=runtime.file.agent.grace_sec,
            host=section.host or "",
            program=section.executable or "docker",
        )

    def check(self, image: str) -> str:
        """The image's id (``sha256:…``). ``UserError`` when the engine does not answer or the image is
        missing.
        """
        client = connect_or_explain(self._settings.host)
        try:
            self._engine = facts(client)
            return str(client.api.inspect_image(image)["Id"])
        except ImageNotFound as error:
            raise UserError(
                f"the Docker image {image} does not exist", next_step=build_hint(image)
            ) from error
        except (DockerException, *TRANSPORT_ERRORS) as error:
            raise unreachable(error, self._settings.host) from error
        finally:
            client.close()

    def check_job(self, job: Job) -> None:
        """An engine keeps all that a job can ask for, or says so itself when the container is created."""

    def storage(self) -> tuple[Path, ...]:
        """Where the engine keeps containers, if that is on this machine; its free space matters to runs."""
        client = connect_or_explain(self._settings.host)
        try:
            place = Path(str(client.info().get("DockerRootDir") or "/nowhere"))
        except (DockerException, *TRANSPORT_ERRORS):
            return ()
        finally:
            client.close()
        return (place,) if place.is_dir() else ()

    def describe(self, job: Job) -> list[str]:
        """Words of the equivalent ``docker run``, secrets as ``***``."""
        return [self._program, *command_line(job, self._settings.owner, self._engine)[1:]]

    def run(self, job: Job, log: Path, timeout: float, stop: threading.Event) -> Outcome:
        """Run ``job``; see ``Backend.run``. What the engine does wrong becomes ``Outcome.error``."""
        missing = [str(mount.source) for mount in job.mounts if not mount.source.exists()]
        if missing:
            return Outcome(None, 0.0, error=f"to be mounted but not there: {', '.join(missing)}")
        try:
            client = patiently(lambda: connect(self._settings.host), self._settings.patience)
        except (DockerException, EngineError) as error:
            return Outcome(None, 0.0, error=f"the Docker engine cannot be reached: {cause(error)}")
        try:
            engine = self._engine = patiently(lambda: facts(client), self._settings.patience)
            supervision = Supervision(client, engine, self._settings)
            paths = writable_paths(job, engine, self._settings)
            owner = inside_owner(self._settings, engine)
            _WARDEN.watch(job.name, supervision.token, job.image, paths, owner, self._settings.host)
        except (DockerException, EngineError) as error:
            client.close()
            return Outcome(None, 0.0, error=f"the Docker engine failed: {cause(error)}")
        except OSError as error:
            client.close()
            return Outcome(None, 0.0, error=f"the process that guards containers cannot be started: {error}")
        try:
            outcome = supervision.run(job, log, timeout, stop)
            if outcome.gone:
                if left := cleanup.foreign(paths, self._settings.owner[0]):
                    warning = hand_back(client, job.name, job.image, left, owner)
                    outcome = replace(outcome, warnings=(*outcome.warnings, *filter(None, [warning])))
                _WARDEN.release(supervision.token)
            # Otherwise it stays watched: the warden tries again when this launcher ends.
            return outcome
        finally:
            client.close()

    def orphans(self) -> list[Orphan]:
        """Every container with our labels on the engine. ``UserError`` when it does not answer."""
        client = connect_or_explain(self._settings.host)
        try:
            return cleanup.orphans(client, self._settings.patience)
        finally:
            client.close()

    def remove(self, orphan: Orphan) -> None:
        """Kill and remove it and hand its files back. ``RuntimeError`` when it will not go or may be in
        use.
        """
        client = connect_or_explain(self._settings.host)
        try:
            image, paths = cleanup.remove_orphan(client, orphan.name, self._settings.patience)
            if left := cleanup.foreign(paths, self._settings.owner[0]):
                owner = inside_owner(self._settings, facts(client))
                if warning := hand_back(client, orphan.name, image, left, owner):
                    raise EngineError(warning)
        except (APIError, *TRANSPORT_ERRORS) as error:
            raise EngineError(f"container {orphan.name}: {cause(error)}") from error
        finally:
            client.close()


def build_hint(image: str) -> str:
    """The command that makes ``image``."""
    build_file = _BUILD_FILES.get(image.rsplit(":", 1)[0])
    if build_file is None:
        return f"docker pull {image}, or name another image in the runtime file"
    return f"scripts/build_images.sh, or docker build -t {image} -f {build_file} ."
