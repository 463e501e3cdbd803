"""What is asked of an engine, as data; no engine needed."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

import docker.types
import pytest

from harness.runtime.backends.base import Job, Limits, Mount
from harness.runtime.backends.docker import DockerBackend
from harness.runtime.backends.docker_spec import (
    Engine,
    command_line,
    container_arguments,
    device_requests,
    host_arguments,
)

OWNER = (1000, 100)


def job(**fields: object) -> Job:
    return Job("n", ("run", "a b"), image="i:1", **fields)  # type: ignore[arg-type]


def test_the_command_replaces_entry_point_and_command_of_the_image() -> None:
    asked = container_arguments(job(), OWNER, {"k": "v"}, Engine())
    assert (asked["entrypoint"], asked["command"]) == (["run"], ["a b"])
    assert asked["labels"] == {"k": "v"}
    words = command_line(job(), OWNER, Engine())
    assert words[-4:] == ["--entrypoint", "run", "i:1", "a b"]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ((), []),
        (None, [{"Count": -1, "DeviceIDs": []}]),
        (("0",), [{"Count": 0, "DeviceIDs": ["0"]}]),
        (("0", "GPU-af12"), [{"Count": 0, "DeviceIDs": ["0", "GPU-af12"]}]),
    ],
)
def test_gpus_are_ids_or_all_and_never_both(gpus: tuple[str, ...] | None, expected: list[dict]) -> None:
    requests = [dict(request) for request in device_requests(job(gpus=gpus))]
    assert [{key: request[key] for key in ("Count", "DeviceIDs")} for request in requests] == expected
    assert all(request["Capabilities"] == [["gpu"]] for request in requests)


def test_several_devices_keep_their_inner_quotes() -> None:
    words = command_line(job(gpus=("0", "1")), OWNER, Engine())
    assert words[words.index("--gpus") + 1] == '"device=0,1"'
    assert "--gpus '\"device=0,1\"'" in shlex.join(words)
    assert "--gpus" not in command_line(job(), OWNER, Engine())


def test_no_gpus_also_under_a_default_nvidia_runtime() -> None:
    assert container_arguments(job(), OWNER, {}, Engine())["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    asked = container_arguments(job(gpus=None), OWNER, {}, Engine())
    assert "NVIDIA_VISIBLE_DEVICES" not in asked["environment"]


def test_secrets_are_hidden_from_words_and_labels() -> None:
    secret = job(env={"A": "1"}, secrets={"KEY": "sk-very-secret"})
    assert container_arguments(secret, OWNER, {}, Engine())["environment"]["KEY"] == "sk-very-secret"
    words = DockerBackend(OWNER).describe(secret)
    assert "KEY=***" in words
    assert "A=1" in words
    assert "sk-very-secret" not in " ".join(words)


def test_limits() -> None:
    limited = job(limits=Limits(cpus=1.5, memory_mb=512, pids=64, shm_mb=32))
    asked = host_arguments(limited, Engine(cpus=8))
    assert asked["nano_cpus"] == 1_500_000_000
    assert asked["mem_limit"] == asked["memswap_limit"] == "512m"
    assert (asked["pids_limit"], asked["shm_size"]) == (64, "32m")
    words = " ".join(command_line(limited, OWNER, Engine()))
    assert "--cpus 1.5 --memory 512m --memory-swap 512m --pids-limit 64 --shm-size 32m" in words
    assert not {"nano_cpus", "mem_limit", "pids_limit", "shm_size"} & set(host_arguments(job(), Engine()))


def test_no_more_processors_than_the_engine_has() -> None:
    greedy = job(limits=Limits(cpus=64))
    assert host_arguments(greedy, Engine(cpus=2))["nano_cpus"] == 2_000_000_000
    assert host_arguments(greedy, Engine(cpus=None))["nano_cpus"] == 64_000_000_000


def test_network() -> None:
    assert host_arguments(job(network=False), Engine())["network_mode"] == "none"
    assert "network_mode" not in host_arguments(job(), Engine())
    assert "--network none" in " ".join(command_line(job(network=False), OWNER, Engine()))


def test_mounts_are_binds_that_name_their_mode_and_survive_commas() -> None:
    mounted = job(
        mounts=(
            Mount(Path("/a,b"), PurePosixPath("/in")),
            Mount(Path("/out"), PurePosixPath("/out"), writable=True),
        )
    )
    asked = host_arguments(mounted, Engine())["mounts"]
    assert all(isinstance(mount, docker.types.Mount) for mount in asked)
    assert [(m["Source"], m["Target"], m["Type"], m["ReadOnly"]) for m in asked] == [
        ("/a,b", "/in", "bind", True),
        ("/out", "/out", "bind", False),
    ]
    words = command_line(mounted, OWNER, Engine())
    assert [words[i + 1] for i, word in enumerate(words) if word == "--mount"] == [
        'type=bind,"source=/a,b",target=/in,readonly',
        "type=bind,source=/out,target=/out",
    ]


@pytest.mark.parametrize(
    ("as_root", "engine", "user"),
    [
        (False, Engine(), "1000:100"),
        (True, Engine(), "0:0"),
        (False, Engine(rootless=True), "0:0"),
        (True, Engine(rootless=True), "0:0"),
    ],
)
def test_user(as_root: bool, engine: Engine, user: str) -> None:
    assert container_arguments(job(as_root=as_root), OWNER, {}, engine)["user"] == user
    words = command_line(job(as_root=as_root), OWNER, engine)
    assert words[words.index("--user") + 1] == user


def test_a_user_without_an_entry_in_the_image_has_a_writable_home() -> None:
    home = (Mount(Path("/h"), PurePosixPath("/root"), writable=True),)
    assert container_arguments(job(mounts=home), OWNER, {}, Engine())["environment"]["HOME"] == "/root"
    assert container_arguments(job(), OWNER, {}, Engine())["environment"]["HOME"] == "/tmp"
    mine = container_arguments(job(env={"HOME": "/mine"}), OWNER, {}, Engine())["environment"]
    assert (mine["HOME"], mine["USER"]) == ("/mine", "user")
    assert "HOME" not in container_arguments(job(as_root=True), OWNER, {}, Engine())["environment"]


def test_a_remapping_engine_is_asked_for_real_user_ids() -> None:
    assert host_arguments(job(), Engine(remapped=True))["userns_mode"] == "host"
    assert "--userns host" in " ".join(command_line(job(), OWNER, Engine(remapped=True)))
