"""Whose container it is, and whether that launcher still lives; no engine needed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.runtime.backends.docker_owner import (
    BOOT,
    HOST,
    NAMESPACE,
    OWNER,
    START,
    USER,
    own_labels,
    owner_is_dead,
)


def without(*keys: str) -> dict[str, str]:
    return {key: value for key, value in own_labels().items() if key not in keys}


def test_we_are_alive() -> None:
    assert not owner_is_dead(own_labels())
    assert not owner_is_dead(without(START, USER, HOST, NAMESPACE))


def test_a_pid_that_was_handed_out_again_is_another_process() -> None:
    assert owner_is_dead({**own_labels(), START: "1"})


def test_an_earlier_boot_is_dead() -> None:
    assert owner_is_dead({**own_labels(), BOOT: "00000000-0000-0000-0000-000000000000"})


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {OWNER: "1"},
        {BOOT: "x"},
        {OWNER: "", BOOT: "x"},
        {OWNER: "-1", BOOT: "x"},
        {OWNER: "1; rm", BOOT: "x"},
    ],
)
def test_what_names_no_owner_is_left_alone(labels: dict[str, str]) -> None:
    assert not owner_is_dead(labels)


@pytest.mark.parametrize("key", [USER, HOST, NAMESPACE])
def test_what_cannot_be_judged_from_here_is_left_alone(key: str) -> None:
    gone = {OWNER: str(2**22 + 1)}
    assert owner_is_dead(own_labels() | gone)
    assert not owner_is_dead(own_labels() | gone | {key: "another"})


def test_an_ended_process_is_dead_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner_is_dead(without(START) | {OWNER: str(child.pid)})
    child.wait()
    assert owner_is_dead(without(START) | {OWNER: str(child.pid)})
