"""Where a command runs: ``host`` or ``docker`` (later ``sif``), behind the interface in :mod:`.base`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import UserError
from harness.runtime.backends.base import Backend, Job
from harness.runtime.backends.host import HostBackend
from harness.runtime.config import BACKENDS, Runtime


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
        expected=" or ".join(f'"{known}"' for known in BACKENDS),
        next_step="choose one of them",
    )


def check_job(backend: Backend, job: Job, path: Path, table: str) -> None:
    """Let a backend refuse what it cannot keep before anything is touched. Raises ``UserError``.

    path, table : runtime file, and its table that the job's command belongs to; errors name them.
    """
    if isinstance(backend, HostBackend):
        with _located(path):
            backend.check_job(job)
        with _located(f"{path}: [{table}]"):
            backend.check_program(job)


@contextmanager
def _located(where: object) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(
            error.what, where=where, expected=error.expected, next_step=error.next_step
        ) from error
