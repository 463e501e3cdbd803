"""The agent ``stirrup`` on the host, through ``infer.py``, and prices of one's own for its model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer, says
from harness_lab import Lab
from stirrup_python import interpreter, needs_stirrup

from contract.errors import UserError
from harness.runtime import infer
from harness.runtime.agents import stirrup

KEY = "sk-test-0123456789abcdef"
DELIVER = "pwd; mkdir -p world solution; echo made > world/a; echo '#!/bin/sh' > solution/build.sh"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().running() as running:
        yield running


def configure(lab: Lab, python: str | None, url: str = "http://127.0.0.1:9/v1", more: str = "") -> None:
    line = "" if python is None else f"python = {json.dumps(python)}\n"
    agents = (
        f'[agent.stirrup]\n{line}[agent.stirrup.env]\nOPENAI_BASE_URL = "{url}"\nOPENAI_API_KEY = "{KEY}"\n'
    )
    lab.runtime(agents + more)
    lab.jobs({"agent": "stirrup", "model": "org/Tiny-1-FP8", "effort": "low"})


def refusal(lab: Lab) -> str:
    with pytest.raises(UserError) as caught:
        infer.main(["--jobs", str(lab.jobs_path), "--runtime", str(lab.runtime_path)])
    return caught.value.line()


@needs_stirrup
def test_a_run_on_the_host_is_counted_and_priced(lab: Lab, server: ChatServer) -> None:
    configure(
        lab,
        interpreter(),
        server.url,
        f'[prices]\noverlay = "{lab.root / "prices.toml"}"\n[budget]\nmax_usd = 5',
    )
    (lab.root / "prices.toml").write_text('["tiny-1"]\ninput = 1.0\noutput = 10.0\n', encoding="utf-8")
    server.replies = [
        says("", ("code_exec", {"cmd": DELIVER}), read=1000, written=100),
        says("", ("finish", {"reason": "all done", "paths": []}), read=1500, written=200),
    ]
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    system = {"system": "stirrup-org%2FTiny-1-FP8-low"}
    record = lab.record(**system)
    assert (record["state"], record["agent_exit"], record["delivered"]) == ("done", 0, True)
    assert (record["steps"], record["tool_calls"], record["transcript"]) == (2, 2, "stirrup")
    # Of the second request the first one's 1000 tokens count as cached.
    assert record["usage"]["input_tokens"] == 1500
    assert record["usage"]["cached_input_tokens"] == 1000
    assert record["usage"]["output_tokens"] == 300
    assert record["cost_usd"] == pytest.approx(2500 * 1e-6 + 300 * 10e-6)
    assert "prices.toml" in record["cost_note"]
    assert record["config"]["command"][:2] == ["{tools_python}", "{tools}/runner.py"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "Rebuild" in json.dumps(server.requests[0]["messages"])
    place = lab.place(**system)
    assert list((place / "session/.stirrup/session").glob("*.jsonl"))
    assert KEY not in "".join(path.read_text(encoding="utf-8") for path in place.rglob("*") if path.is_file())
    assert lab.infer().returncode == 0
    assert lab.record(**system) == record
    assert len(server.requests) == 2


def test_an_interpreter_without_the_package_is_refused_with_what_to_do(lab: Lab) -> None:
    for python, part in (
        (sys.executable, "stirrup"),
        ("no-such-python-4dcb", "was not found"),
        (str(lab.root), "was not found"),
        ("/bin/false", "ended with status 1"),
    ):
        stirrup.unfit_interpreter.cache_clear()
        configure(lab, python)
        said = refusal(lab)
        assert part in said
        assert f"[agent.stirrup]: python = {python!r}" in said
        assert "Python 3.12 or newer with stirrup" in said
    assert not lab.runs.exists()


def test_a_relative_interpreter_starts_at_the_repository(lab: Lab, repository: Path) -> None:
    stirrup.unfit_interpreter.cache_clear()
    configure(lab, "no/such/python")
    assert "'no/such/python' was not found" in refusal(lab)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("[agent.claude]\npython = 'x'", "claude has a program of its own"),
        ("[agent.mine]\ncommand = ['true']\npython = 'x'", "belongs to stirrup only"),
        ("[agent.stirrup]\npython = ''", "at least 1 character"),
    ],
)
def test_the_key_belongs_to_stirrup(lab: Lab, table: str, part: str) -> None:
    lab.runtime(table)
    lab.jobs()
    assert part in refusal(lab)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "no such file"),
        ("[m]\ninput = 1.0", "'output' is missing"),
        ("[m]\ninput = -1.0\noutput = 1.0", "input = -1.0"),
    ],
)
def test_a_faulty_price_file_is_said_before_anything(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, content: str | None, part: str
) -> None:
    monkeypatch.setenv("FOURDCB_PRICES", "")
    overlay = lab.root / "own prices.toml"
    lab.runtime(lab.shell_agent("true") + f'[prices]\noverlay = "{overlay}"')
    lab.jobs()
    if content is not None:
        overlay.write_text(content, encoding="utf-8")
    said = refusal(lab)
    assert str(overlay) in said
    assert part in said
    assert not lab.runs.exists()


def test_a_budget_in_dollars_takes_the_price_of_ones_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOURDCB_PRICES", "")
    overlay = lab.root / "prices.toml"
    extra = 'transcript = "codex"\n[budget]\nmax_usd = 1.0\n'
    lab.runtime(lab.shell_agent("true", extra=extra))
    lab.jobs({"model": "nobody-knows-4dcb"})
    assert "the price of 'nobody-knows-4dcb'" in refusal(lab)
    overlay.write_text("[nobody-knows-4dcb]\ninput = 0.0\noutput = 0.0\n", encoding="utf-8")
    lab.runtime(lab.shell_agent("true", extra=extra) + f'[prices]\noverlay = "{overlay}"')
    words = ["--jobs", str(lab.jobs_path), "--runtime", str(lab.runtime_path), "--dry-run"]
    assert infer.main(words) == 0
