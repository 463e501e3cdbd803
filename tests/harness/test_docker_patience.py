"""An engine that is slow, dead or not permitted; no engine needed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import requests
from docker.errors import APIError, DockerException, NotFound

from contract.errors import UserError
from harness.runtime.backends.base import Job, Mount
from harness.runtime.backends.docker import DockerBackend, build_hint
from harness.runtime.backends.docker_engine import EngineError, patiently, unreachable


def failing(times: int, error: Exception) -> list[Exception]:
    return [error] * times


def api_error(status: int) -> APIError:
    response = requests.Response()
    response.status_code = status
    return APIError("m", response=response, explanation="e")


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)"),
        requests.exceptions.ConnectionError("reset"),
        ConnectionResetError("reset"),
        DockerException("Error while fetching server API version"),
        api_error(503),
    ],
)
def test_what_says_nothing_is_asked_again(error: Exception) -> None:
    errors = failing(2, error)

    def call() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    assert patiently(call, 30.0) == "answer"
    assert not errors


@pytest.mark.parametrize("error", [api_error(500), api_error(409), NotFound("x"), ValueError("x")])
def test_an_answer_is_not_asked_again(error: Exception) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        patiently(call, 30.0)
    assert len(calls) == 1


def test_patience_ends() -> None:
    def call() -> None:
        raise requests.exceptions.ReadTimeout("Read timed out.")

    with pytest.raises(EngineError, match=r"did not answer for 0.3 s: Read timed out"):
        patiently(call, 0.3)


def test_a_dead_engine_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    backend = DockerBackend(patience=0.1)
    for ask in (lambda: backend.check("i:1"), backend.orphans):
        with pytest.raises(UserError) as caught:
            ask()
        assert f"unix://{tmp_path}/none.sock" in caught.value.line()
        assert "DOCKER_HOST" in caught.value.next_step
    outcome = backend.run(Job("n", ("true",), image="i:1"), tmp_path / "log", 5.0, threading.Event())
    assert (outcome.exit_code, outcome.gone) == (None, True)
    assert "cannot be reached" in outcome.error


def test_permission_has_its_own_way_out() -> None:
    assert "group docker" in unreachable(PermissionError(13, "Permission denied")).next_step


def test_a_missing_mount_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    backend = DockerBackend(host=f"unix://{tmp_path}/none.sock", patience=0.1)
    job = Job("n", ("true",), image="i:1", mounts=(Mount(tmp_path / "absent", tmp_path),))  # type: ignore[arg-type]
    outcome = backend.run(job, tmp_path / "log", 5.0, threading.Event())
    assert outcome.exit_code is None
    assert str(tmp_path / "absent") in outcome.error
    assert not (tmp_path / "absent").exists()
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("image", "part"),
    [
        ("4dcb/agent:dev", "-f harness/agent/Dockerfile ."),
        ("4dcb/scorer:mine", "docker build -t 4dcb/scorer:mine -f harness/scorer/Dockerfile"),
        ("4dcb/sim-base:dev", "harness/base/Dockerfile"),
        ("someone/else:1", "docker pull someone/else:1"),
    ],
)
def test_a_missing_image_comes_with_its_command(image: str, part: str, repository: Path) -> None:
    assert part in build_hint(image)
    for word in build_hint(image).split():
        assert not word.startswith("harness/") or (repository / word).is_file()
