"""A started container until it has ended, and what its end means."""

from __future__ import annotations

import calendar
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from harness.runtime.backends import docker_cleanup as cleanup
from harness.runtime.backends.base import Outcome
from harness.runtime.backends.docker_engine import PATIENCE_S, EngineError, cause, patiently
from harness.runtime.backends.docker_logs import Follower

_TICK_S = 0.1
_LOOK_S = 5.0
"""Time between looks at a container whose output has not ended."""
_LOOK_SOON_S = 1.0
"""The same when there is reason to look: the output is at its end, or cannot be read."""
_LOG_S = 30.0
"""Longest wait for the rest of the output of a container that has ended."""
_LATE_OOM_S = 0.5
"""The engine may learn of an out-of-memory kill just after the container's end."""
_LATE_KILL_S = 0.5
"""A signal from outside is noted just after its effect."""
_KILLED = 137


@dataclass(frozen=True)
class Settings:
    """What a backend is set to.

    owner : uid and gid of the caller on this machine. host : address of the engine; empty for the usual
    one.
    """

    owner: tuple[int, int]
    grace: float = cleanup.GRACE_S
    patience: float = PATIENCE_S
    host: str = ""


class Watch:
    """The time between a container's start and its end."""

    def __init__(self, client: docker.DockerClient, container: str, log: Path, settings: Settings) -> None:
        self._client = client
        self._container = container
        self._settings = settings
        self._follower = Follower(container, log, settings.host)

    def run(self, timeout: float, stop: threading.Event) -> Outcome:
        """Start, wait, end; the outcome without the container's removal."""
        began = time.monotonic()
        if stop.is_set():
            return Outcome(None, 0.0, interrupted=True)
        try:
            patiently(lambda: self._client.api.start(self._container), self._settings.patience)
        except APIError as error:
            return Outcome(None, time.monotonic() - began, error=refusal("start", error))
        except EngineError as error:
            return Outcome(None, time.monotonic() - began, error=str(error))
        began = time.monotonic()
        self._follower.start()
        try:
            reason = self._wait(began + timeout, stop)
            seconds = time.monotonic() - began
            if reason and self._ended_by_itself():
                reason = ""
            if reason:
                cleanup.terminate(
                    self._client, self._container, self._settings.grace, self._settings.patience
                )
            complete = self._follower.finish(_LOG_S)
            state = self._final_state()
            meddled = (
                not reason and state is not None and _ended_from_outside(self._client, self._container, state)
            )
        except (APIError, EngineError) as error:
            self._follower.finish(0.0)
            return Outcome(None, time.monotonic() - began, error=f"the job was lost: {cause(error)}")
        outcome = _outcome(state, seconds, reason, self._follower.ended_unseen, meddled)
        return (
            outcome if complete else replace(outcome, warnings=(f"log incomplete: {self._follower.fault}",))
        )

    def _wait(self, deadline: float, stop: threading.Event) -> str:
        """Until the container ends (empty), the deadline passes (``timeout``) or ``stop`` is set
        (``stop``).

        The end of the output is the signal to look; a look every few seconds finds an end that it does not
        show.
        """
        seen_end = False
        looked = answered = time.monotonic()
        while True:
            # An ended log of a running container (a full disk) must not make this a busy loop.
            (stop if seen_end else self._follower.ended).wait(_TICK_S)
            now = time.monotonic()
            if stop.is_set():
                return "stop"
            if now >= deadline:
                return "timeout"
            pause = _LOOK_SOON_S if seen_end or self._follower.fault else _LOOK_S
            if now - looked < pause and (seen_end or not self._follower.ended.is_set()):
                continue
            seen_end = self._follower.ended.is_set()
            looked = now
            try:
                # One short attempt: neither the deadline nor a stop may wait for a busy engine's patience.
                found = cleanup.state(self._client, self._container, 0.0)
            except EngineError:
                if now - answered > self._settings.patience:
                    raise
                continue
            answered = now
            if found is None or not found["Running"]:
                return ""

    def _ended_by_itself(self) -> bool:
        """Whether the container was faster than the reason to end it; what is finished stays finished."""
        try:
            found = cleanup.state(self._client, self._container, 0.0)
        except EngineError:
            return False
        return found is not None and not found["Running"]

    def _final_state(self) -> dict[str, Any] | None:
        patience = self._settings.patience
        found = cleanup.state(self._client, self._container, patience)
        if found and found["ExitCode"] == _KILLED and not found["OOMKilled"]:
            time.sleep(_LATE_OOM_S)
            found = cleanup.state(self._client, self._container, patience) or found
        return found


def _outcome(
    state: dict[str, Any] | None, seconds: float, reason: str, unseen: bool, meddled: bool
) -> Outcome:
    """The outcome that the engine's last word on a container means. ``reason``: why we ended it, or
    empty."""
    ended_by_us: dict[str, Any] = {
        "timed_out": reason == "timeout",
        "interrupted": reason == "stop",
        "killed_after_sec": round(seconds, 1) if reason else None,
    }
    if state is None:
        return Outcome(None, seconds, error="the container vanished while it ran", **ended_by_us)
    if not reason and _has_times(state):
        seconds = max(0.0, _engine_time(state["FinishedAt"]) - _engine_time(state["StartedAt"]))
    error = str(state.get("Error") or "")
    if meddled:
        error = error or "somebody ended the container from outside"
    if unseen and not reason and state["ExitCode"] != 0:
        # An engine that restarts ends its containers; the status is then not the command's own.
        error = error or "the engine could not be reached when the container ended; perhaps it ended it"
    return Outcome(
        int(state["ExitCode"]), seconds, oom_killed=bool(state["OOMKilled"]), error=error, **ended_by_us
    )


def _ended_from_outside(client: docker.DockerClient, container: str, state: dict[str, Any]) -> bool:
    """Whether the engine was asked by somebody else to signal the container, which then ended with an
    error.

    The engine remembers its last events; times are its own.
    """
    if state["ExitCode"] == 0 or not _has_times(state):
        return False
    since, until = (_engine_time(state[key]) for key in ("StartedAt", "FinishedAt"))
    filters = {"container": container, "event": "kill"}

    def ask() -> bool:
        events = client.api.events(
            since=f"{since:.3f}", until=f"{until + _LATE_KILL_S:.3f}", filters=filters, decode=True
        )
        return any(True for _ in events)

    return patiently(ask, cleanup.KILL_S)


def _has_times(state: dict[str, Any]) -> bool:
    """Whether start and end are known; the engine writes the year 1 for times that it does not know."""
    return not any(state[key].startswith("0001-") for key in ("StartedAt", "FinishedAt"))


def _engine_time(text: str) -> float:
    """Seconds since the epoch of an engine's time such as ``2026-01-02T03:04:05.123456789Z`` (always
    UTC)."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")


def refusal(step: str, error: APIError) -> str:
    """Why the engine would not do ``step`` (create, start), with the usual reason where there is one."""
    text = f"the engine could not {step} the container: {cause(error)}"
    if "could not select device driver" in text:
        text += " (is the NVIDIA Container Toolkit installed?)"
    return text
