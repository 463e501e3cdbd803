"""The real Claude Code and Codex in the agent image, against a server of our own; what they used, counted."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from harness_lab import Lab
from provider_server import ProviderServer

pytest_plugins = ("docker_engine",)
pytestmark = [pytest.mark.docker, pytest.mark.slow]

KEY = "sk-ant-api03-planted-secret-0123456789"
COMMAND = (
    "mkdir -p /workspace/world /workspace/solution && cp /input/reference.mp4 /workspace/world/a"
    " && printf '#!/bin/sh\\n' > /workspace/solution/build.sh && echo key=$ANTHROPIC_API_KEY$OPENAI_API_KEY"
)
CONFIG = """
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""


@pytest.fixture
def gateway(engine: docker.DockerClient) -> str:
    """This machine as containers see it."""
    return str(engine.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"])


@pytest.fixture
def provider(gateway: str) -> Iterator[ProviderServer]:
    with ProviderServer(gateway, COMMAND).running() as server:
        yield server


def with_file(engine: docker.DockerClient, image: str, path: str, text: str) -> str:
    """The image with one more file, under a name of its own."""
    container = engine.containers.create(image, ["true"])
    try:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        container.put_archive("/", stream.getvalue())
        return str(container.commit("4dcb/agent-test", "codex-local").tags[0])
    finally:
        container.remove()


def prepare(lab: Lab, image: str, agent: str, model: str, effort: str, variables: dict[str, str]) -> None:
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in variables.items())
    lab.runtime(
        f'[agent.image]\ndocker = "{image}"\n[agent.{agent}.env]\n{table}',
        top='backend = "docker"',
        agent="timeout_sec = 100\ngrace_sec = 1",
    )
    lab.jobs({"agent": agent, "model": model, "effort": effort})


def check_delivered(lab: Lab, system: str) -> Path:
    place = lab.place(system=system)
    record = lab.record(system=system)
    log = (place / "logs/agent.log").read_text(encoding="utf-8")
    assert record["state"] == "done", log[-3000:]
    assert (place / "workspace/world/a").stat().st_size > 0
    for path in place.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    return place


def test_claude_code(lab: Lab, cli_image: str, gateway: str, provider: ProviderServer) -> None:
    variables = {
        "ANTHROPIC_BASE_URL": f"http://{gateway}:{provider.port}",
        "ANTHROPIC_API_KEY": "${PLANTED}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
    }
    prepare(lab, cli_image, "claude", "claude-opus-4-5", "low", variables)
    done = lab.infer(PLANTED=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    check_delivered(lab, "claude-claude-opus-4-5-low")
    assert provider.keys == {KEY}
    record = lab.record(system="claude-claude-opus-4-5-low")
    assert record["usage"] == {
        "input_tokens": 201,
        "cached_input_tokens": 2000,
        "cache_write_tokens": 14,
        "output_tokens": 101,
        "reasoning_output_tokens": 0,
    }
    assert (record["steps"], record["tool_calls"]) == (2, 1)
    # 201 · 5 + 2000 · 0.5 + 14 · 6.25 + 101 · 25 dollars a million: what the program itself reports.
    assert record["cost_usd"] == pytest.approx(0.0046175)
    assert KEY not in done.stdout + done.stderr


def test_codex(
    lab: Lab, cli_image: str, gateway: str, provider: ProviderServer, engine: docker.DockerClient
) -> None:
    config = CONFIG.format(url=f"http://{gateway}:{provider.port}")
    image = with_file(engine, cli_image, "/etc/codex/config.toml", config)
    prepare(lab, image, "codex", "gpt-5-codex", "low", {"OPENAI_API_KEY": "${PLANTED}"})
    done = lab.infer(PLANTED=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    check_delivered(lab, "codex-gpt-5-codex-low")
    assert provider.keys == {f"Bearer {KEY}"}
    record = lab.record(system="codex-gpt-5-codex-low")
    assert record["usage"] == {
        "input_tokens": 1060,
        "cached_input_tokens": 40,
        "cache_write_tokens": 0,
        "output_tokens": 61,
        "reasoning_output_tokens": 10,
    }
    assert (record["steps"], record["tool_calls"]) == (2, 1)
    assert record["cost_usd"] == pytest.approx(1060 * 1.25e-6 + 40 * 0.125e-6 + 61 * 10e-6)


def test_a_refused_key_is_an_authentication_error_and_not_the_agents(
    lab: Lab, cli_image: str, gateway: str
) -> None:
    with ProviderServer(gateway, COMMAND, status=401).running() as provider:
        variables = {
            "ANTHROPIC_BASE_URL": f"http://{gateway}:{provider.port}",
            "ANTHROPIC_API_KEY": "${PLANTED}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "IS_SANDBOX": "1",
        }
        prepare(lab, cli_image, "claude", "claude-opus-4-5", "low", variables)
        done = lab.infer(PLANTED=KEY)
    assert done.returncode == 1
    record = lab.record(system="claude-claude-opus-4-5-low")
    assert (record["state"], record["failure"]) == ("environment_error", "auth_error"), record
