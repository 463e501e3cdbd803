"""Where a command runs: ``host``, ``docker`` or ``sif`` (Apptainer), behind the interface in :mod:`.base`."""

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
    if name == "sif":
        from harness.runtime.backends.sif import SifBackend

        return SifBackend.from_runtime(runtime)
    raise UserError(
        f"there is no backend {name!r}",
        where=runtime.path,
        expected=" or ".join(f'"{known}"' for known in BACKENDS),
        next_step="choose one of them",
    )


def check_job(backend: Backend, job: Job, path: Path, table: str) -> None:
    """Let a backend refuse what it cannot keep before anything is touched. Raises ``UserError``.

    path, table : runtime file, and its table that the job's command belongs to; errors name them.
    """
    with _located(path):
        backend.check_job(job)
    if isinstance(backend, HostBackend):
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
