"""The connection to a Docker engine, and patience with one that is busy.

An engine under load answers late or breaks a connection off. Neither says anything about the job, so every
request is repeated until it is answered or patience ends; then ``EngineError`` says that nothing is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import docker
import requests
import urllib3
from docker.context import ContextAPI
from docker.errors import APIError, DockerException

from contract.errors import UserError, one_line
from harness.runtime.backends.docker_spec import Engine

REQUEST_TIMEOUT_S = 30
"""Longest wait for one answer before the request is repeated."""
PATIENCE_S = 300.0
"""Longest time that an engine may fail to answer before its job is given up as lost."""

_BUSY = {502, 503, 504}
TRANSPORT_ERRORS = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)

T = TypeVar("T")


class EngineError(RuntimeError):
    """The engine did not answer, or answered with an error of its own."""


def connect(host: str = "") -> docker.DockerClient:
    """A client of the engine at ``host``, else ``DOCKER_HOST``, else the command line's current context.

    Raises ``DockerException`` when it cannot be reached. One client serves one thread.
    """
    if not host and not os.environ.get("DOCKER_HOST"):
        context = ContextAPI.get_current_context()
        if context is not None and context.Name != "default" and context.Host:
            tls = context.TLSConfig or False
            return docker.DockerClient(
                base_url=context.Host, tls=tls, version="auto", timeout=REQUEST_TIMEOUT_S
            )
    environment = os.environ | {"DOCKER_HOST": host} if host else os.environ
    return docker.from_env(version="auto", timeout=REQUEST_TIMEOUT_S, environment=environment)


def connect_or_explain(host: str = "") -> docker.DockerClient:
    """``connect``, with a ``UserError`` that names the engine and the way out when it does not answer."""
    try:
        client = connect(host)
        client.ping()
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise unreachable(error, host) from error
    return client


def unreachable(error: Exception, host: str = "") -> UserError:
    """The error for an engine that cannot be reached."""
    where = host or os.environ.get("DOCKER_HOST") or "the default socket"
    if "permission denied" in str(error).lower():
        step = "add your user to the group docker and log in again, or set DOCKER_HOST to a rootless engine"
    else:
        step = 'start it ("docker info" must answer), set DOCKER_HOST, or use backend = "host"'
    return UserError(
        f"the Docker engine at {where} cannot be used: {cause(error)}",
        next_step=step,
    )


def cause(error: BaseException) -> str:
    """The engine's own words of an error, on one line of at most 300 characters."""
    text = str(getattr(error, "explanation", None) or error) or type(error).__name__
    return one_line(text)[:300]


def facts(client: docker.DockerClient) -> Engine:
    """What of the engine changes a request."""
    info: dict[str, Any] = client.info()
    options = [str(option) for option in info.get("SecurityOptions") or []]
    return Engine(
        cpus=info.get("NCPU") or None,
        rootless=any("name=rootless" in option for option in options),
        remapped=any("name=userns" in option for option in options),
    )


def is_busy(error: BaseException) -> bool:
    """True when the error says nothing about the request: the engine was too slow or not there."""
    if isinstance(error, APIError):
        return error.status_code in _BUSY
    # The SDK wraps a failed first contact in the bare base class.
    return type(error) is DockerException or isinstance(error, TRANSPORT_ERRORS)


def patiently(call: Callable[[], T], patience: float) -> T:
    """``call()``, repeated while the engine is busy, for at most ``patience`` seconds.

    Errors that the engine answers with (``NotFound``, other ``APIError``) pass through; ``EngineError``
    when patience ends. ``call`` must be safe to repeat.
    """
    deadline = time.monotonic() + patience
    pause = 0.2
    while True:
        try:
            return call()
        except (DockerException, *TRANSPORT_ERRORS) as error:
            if not is_busy(error):
                raise
            if time.monotonic() + pause > deadline:
                raise EngineError(
                    f"the Docker engine did not answer for {patience:g} s: {cause(error)}"
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 5.0)
