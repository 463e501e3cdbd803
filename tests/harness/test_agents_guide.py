"""What docs/agents.md and docs/doctor.md say holds: the example of an agent of one's own runs as printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, says
from harness_lab import Lab

from harness.runtime import doctor
from harness.runtime.agents import BUILT_IN
from harness.runtime.agents.custom import PLACEHOLDERS
from harness.runtime.backends import get_backend
from harness.runtime.config import load_runtime
from harness.runtime.doctor_check import Patient
from harness.runtime.failures import TABLE


@pytest.fixture
def guide(repository: Path) -> str:
    return (repository / "docs/agents.md").read_text(encoding="utf-8")


def blocks(text: str, kind: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_example_of_an_agent_of_ones_own_runs_as_printed(lab: Lab, guide: str) -> None:
    (program,) = blocks(guide, "python")
    (table,) = [block for block in blocks(guide, "toml") if "[agent.mine]" in block]
    (lab.root / "my_agent.py").write_text(program, encoding="utf-8")
    build = "#!/bin/sh\nmkdir -p world && echo made > world/a\n"
    with ChatServer().running() as server:
        server.replies = [says(build, read=1000, written=50)]
        table = table.replace("/opt/mine", str(lab.root)).replace("http://127.0.0.1:8000/v1", server.url)
        lab.runtime(table)
        lab.jobs({"agent": "mine", "model": "some-model"})
        done = lab.infer(MY_API_KEY="key-0123456789abcdef")
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.requests[0]["model"] == "some-model"
        assert server.headers[0]["authorization"] == "Bearer key-0123456789abcdef"
    record: dict[str, Any] = lab.record(system="mine-some-model-none")
    assert record["state"] == "done"
    assert (record["usage"]["input_tokens"], record["usage"]["output_tokens"]) == (1000, 50)
    assert (record["cost_usd"], record["steps"], record["tool_calls"]) == (0.0012, 1, 1)
    assert (lab.place(system="mine-some-model-none") / "session/.my-agent/usage.jsonl").is_file()


def test_every_table_of_the_guide_is_accepted(lab: Lab, guide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for block in blocks(guide, "toml"):
        lab.runtime(block)
        seen |= set(load_runtime(lab.runtime_path).file.agent.agents)
    assert seen == {*BUILT_IN, "baseline", "mine"}
    for block in blocks(guide, "json"):
        assert set(json.loads(block)) == {"usage", "cost_usd", "tool_calls"}


def test_every_failure_agent_effort_and_placeholder_is_in_the_guide(guide: str) -> None:
    for kind in TABLE:
        assert f"\n| `{kind}` |" in guide, kind
    for name, agent in BUILT_IN.items():
        section = guide.split(f"\n### `{name}`\n")[1].split("\n### ")[0]
        assert all(f"`{effort}`" in section for effort in agent.efforts), name
        assert f"`session/{agent.session_dir}" in section
    for name in PLACEHOLDERS:
        assert f"`{{{name}}}`" in guide


@pytest.mark.parametrize("backend", ["host", "docker", "sif"])
def test_every_check_of_the_doctor_is_documented(lab: Lab, repository: Path, backend: str) -> None:
    text = (repository / "docs/doctor.md").read_text(encoding="utf-8")
    images = '[agent.image]\nsif = "a.sif"\n[scorer.image]\nsif = "s.sif"\n'
    lab.runtime(
        images + "[agent.stirrup]\ncredential = 'x'\ncontainer = '/root/x'", top=f'backend = "{backend}"'
    )
    runtime = load_runtime(lab.runtime_path)
    for check in doctor.all_checks(Patient(runtime, get_backend(backend, runtime))):
        name = re.sub(r"^(agent|login) .*", r"\1 NAME", check.name)
        assert f"`{name}`" in text, name


def test_links_between_these_pages_lead_somewhere(repository: Path) -> None:
    for name in ("docs/agents.md", "docs/doctor.md", "harness/README.md", "README.md"):
        page = repository / name
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name}: {target}"
