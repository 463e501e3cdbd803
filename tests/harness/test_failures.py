"""The table of failures, and how records and logs are told into it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.runtime import failures
from harness.runtime.failures import TABLE, diagnose, final_state, message, provider_error, tail

GOOD: dict[str, Any] = {
    "agent_exit": 0, "agent_seconds": 60.0, "delivered": True, "gone": True, "error": None,
    "oom_killed": False, "timed_out": False, "interrupted": False, "timeout_sec": 60,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind", "state", "retry"),
    [
        ({}, "", "done", False),
        ({"delivered": False}, "no_delivery", "failed", False),
        ({"agent_exit": 3}, "agent_exit", "failed", False),
        ({"agent_exit": 3, "delivered": False}, "agent_exit", "failed", False),
        ({"agent_exit": 124, "timed_out": True}, "timeout", "failed", False),
        ({"agent_exit": None, "error": "no such image", "agent_seconds": 0.1}, "launch_error",
         "environment_error", True),
        ({"agent_exit": None, "error": "gone", "agent_seconds": 500.0}, "engine_lost",
         "environment_error", True),
        ({"agent_exit": 137, "error": "gone"}, "engine_lost", "environment_error", True),
        ({"agent_exit": 137, "oom_killed": True}, "out_of_memory", "environment_error", False),
        ({"gone": False}, "not_gone", "environment_error", False),
        ({"interrupted": True, "agent_exit": 143}, "interrupted", "interrupted", False),
        ({"interrupted": True, "stopped_by": "run_budget"}, "run_budget", "failed", False),
        ({"interrupted": True, "stopped_by": "batch_budget"}, "batch_budget", "interrupted", False),
        ({"agent_exit": None, "stopped_by": "auth_error"}, "auth_error", "environment_error", False),
    ],
)  # fmt: skip
def test_each_ending_has_its_kind(
    tmp_path: Path, change: dict[str, Any], kind: str, state: str, retry: bool
) -> None:
    assert diagnose(GOOD | change, tmp_path / "none") == (kind, "")
    assert final_state(kind) == state
    assert bool(kind and TABLE[kind].retry) == retry


def test_what_is_the_agents_is_never_tried_again_and_is_a_result() -> None:
    for failure in TABLE.values():
        assert not (failure.agents and failure.retry)
        assert failure.agents == (failure.final_state == "failed")
        assert not (failure.stops and failure.retry)
        assert message(failure.kind, GOOD | {"error": "it broke"})


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"is_error":true,"result":"API Error: 401 {\\"type\\":\\"error\\",\\"error\\":{\\"type\\":'
         '\\"authentication_error\\",\\"message\\":\\"invalid x-api-key\\"}}"}', "auth_error"),
        ("Invalid API key · Please run /login", "auth_error"),
        ("OAuth token has expired. Please obtain a new token", "auth_error"),
        ("ERROR: unexpected status 401 Unauthorized: Missing bearer", "auth_error"),
        ("Your access token could not be refreshed because your refresh token was already used",
         "auth_error"),
        ('{"error":"invalid_grant"}', "auth_error"),
        ("API Error: 529 {\"type\":\"overloaded_error\"}", "overloaded"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "overloaded"),
        ("HTTP 503", "overloaded"),
        ('{"code": 429, "status": "RESOURCE_EXHAUSTED"}', "overloaded"),
        ('{"type":"insufficient_quota","code":"429"}', "quota_exhausted"),
        ("You've hit your usage limit. Try again at 5pm", "quota_exhausted"),
        ("Your credit balance is too low to access the API", "quota_exhausted"),
        ("frame 401 of 900 rendered", ""),
        ("wrote 429 faces; 503 vertices", ""),
        ("Traceback (most recent call last): KeyError: 'token'", ""),
    ],
)  # fmt: skip
def test_refusals_of_providers_are_told_from_the_agents_own_failures(
    tmp_path: Path, line: str, kind: str
) -> None:
    log = tmp_path / "agent.log"
    log.write_text(f"working\n{line}\n\n", encoding="utf-8")
    found, said = provider_error(log)
    assert found == kind
    assert bool(said) == bool(kind)
    assert diagnose(GOOD | {"agent_exit": 1}, log) == (kind or "agent_exit", said)
    assert diagnose(GOOD, log) == ("", ""), "an agent that succeeded may write what it likes"
    assert diagnose(GOOD | {"agent_exit": 124, "timed_out": True}, log) == ("timeout", "")


def test_only_the_last_lines_count(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text("HTTP 401\n" + "going on\n" * 30, encoding="utf-8")
    assert provider_error(log) == ("", "")
    log.write_text("x" * 100_000 + " HTTP 401 at the end of a long line", encoding="utf-8")
    kind, said = provider_error(log)
    assert kind == "auth_error"
    assert len(said) <= 160


def test_a_full_disk(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text("OSError: [Errno 28] No space left on device\n", encoding="utf-8")
    broken = GOOD | {"agent_exit": 1}
    assert diagnose(broken, log, disk_is_full=True)[0] == "disk_full"
    assert diagnose(broken, log, disk_is_full=False)[0] == "agent_exit", "its own little file system"
    lost = GOOD | {"agent_exit": None, "error": "[Errno 28] No space left on device"}
    assert diagnose(lost, log, disk_is_full=True)[0] == "disk_full"


@pytest.mark.parametrize("kind", ["missing", "link", "pipe", "directory"])
def test_a_log_that_is_no_file_says_nothing(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "agent.log"
    if kind == "link":
        (tmp_path / "secret").write_text("HTTP 401", encoding="utf-8")
        log.symlink_to("secret")
    elif kind == "pipe":
        os.mkfifo(log)
    elif kind == "directory":
        log.mkdir()
    assert tail(log) == ""
    assert failures.provider_error(log) == ("", "")


def test_messages_name_the_numbers() -> None:
    fields = GOOD | {"agent_exit": 7, "stopped_for": "5 tokens", "error": "boom", "said": "HTTP 401"}
    assert message("agent_exit", fields) == "the agent ended with status 7"
    assert message("timeout", fields) == "timed out after 60 s"
    assert message("launch_error", fields) == "boom"
    assert message("auth_error", fields).endswith("HTTP 401")
    assert message("", fields) == ""
