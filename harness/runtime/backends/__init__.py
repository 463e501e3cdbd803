"""Where a command runs: ``host`` or ``docker`` (later ``sif``), behind the interface in :mod:`.base`."""

from __future__ import annotations

from contract.errors import UserError
from harness.runtime.backends.base import Backend, Job
from harness.runtime.backends.host import HostBackend
from harness.runtime.config import Runtime


def get_backend(name: str, runtime: Runtime) -> Backend:
    """The backend called ``name``, set up as ``runtime`` says. The docker package is imported only when
    needed.
    """
    if name == "host":
        return HostBackend(grace=runtime.file.agent.grace_sec)
    if name == "docker":
        from harness.runtime.backends.docker import DockerBackend

        return DockerBackend.from_runtime(runtime)
    raise UserError(
        f"backend = {name!r} is not built yet",
        where=runtime.path,
        expected='"host" or "docker"',
        next_step="choose one of them",
    )


def check_job(backend: Backend, job: Job) -> None:
    """Let a backend refuse what it cannot keep before anything is touched. Raises ``UserError``."""
    if isinstance(backend, HostBackend):
        backend.check_job(job)
