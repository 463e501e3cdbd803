"""Fixtures around a real Docker engine, found or started by ``scripts/engines.sh``.

A test module asks for them with ``pytest_plugins = ("docker_engine",)``. Where no engine can be had the
tests are skipped and say why; with ``CI=true`` they fail, so that a build cannot pass without them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from harness.runtime.backends.base import Job
from harness.runtime.backends.docker import DockerBackend

ENGINES = Path(__file__).resolve().parents[2] / "scripts" / "engines.sh"
BASE_IMAGE = "4dcb/test-base:bookworm"
UNAVAILABLE = 3


def ask(*words: str) -> str:
    """Output of the script. Skips the test (fails it in CI) where no engine can be had."""
    done = subprocess.run([str(ENGINES), *words], capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE and os.environ.get("CI") != "true":
        pytest.skip(f"Docker engine missing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def docker_host() -> str:
    """Address of an engine; in the environment of this process from now on."""
    # With several test processes their common parent decides how long an engine of ours lives.
    lives_with = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    host = ask("start", "--for", str(lives_with)).strip().partition("DOCKER_HOST=")[2]
    os.environ["DOCKER_HOST"] = host
    return host


@pytest.fixture(scope="session")
def base_image(docker_host: str) -> str:
    """A minimal Debian with python3."""
    ask("base-image")
    return BASE_IMAGE


@pytest.fixture(scope="session")
def our_images(docker_host: str) -> tuple[str, str]:
    """The agent and the scorer image, built from the repository's build files."""
    ask("images")
    return "4dcb/agent:dev", "4dcb/scorer:dev"


@pytest.fixture(scope="session")
def cli_image(docker_host: str) -> str:
    """The agent image with the agents' own programs in it."""
    ask("cli-image")
    return "4dcb/agent:clis"


@pytest.fixture
def engine(docker_host: str) -> Iterator[docker.DockerClient]:
    """A client of one's own, to look from outside."""
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def backend(docker_host: str) -> DockerBackend:
    """A backend with a short grace."""
    return DockerBackend(grace=1.0)


@pytest.fixture
def make_job(base_image: str, engine: docker.DockerClient) -> Iterator[Callable[..., Job]]:
    """Makes jobs with unique names; their containers are removed and counted at the end, whatever
    happens."""
    names: list[str] = []

    def make(*command: str, **fields: object) -> Job:
        name = str(fields.pop("name", f"4dcb-test-{uuid.uuid4().hex[:12]}"))
        names.append(name)
        return Job(name, command, **({"image": base_image} | fields))  # type: ignore[arg-type]

    yield make
    for name in names:
        with suppress(docker.errors.NotFound):
            engine.containers.get(name).remove(force=True)


class Proxy:
    """A socket in front of an engine's that can be cut, like an engine that is too busy to answer."""

    def __init__(self, path: Path, host: str) -> None:
        self.address = f"unix://{path}"
        self._target = host.removeprefix("unix://")
        self._cut = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection and every new one."""
        self._cut.set()
        with self._lock:
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Pass connections on again."""
        self._cut.clear()

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._cut.is_set():
                client.close()
                continue
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(self._target)
            with self._lock:
                self._open |= {client, upstream}
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source, sink}
        source.close()


@pytest.fixture
def proxy(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A cuttable way to the engine."""
    if not docker_host.startswith("unix://"):
        pytest.skip("the engine is not on a local socket")
    between = Proxy(tmp_path_factory.mktemp("s") / "e.sock", docker_host)
    yield between
    between.close()
