"""The loop for OpenAI-compatible endpoints: the real Stirrup package against a server of our own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Reply, fails, says
from stirrup_python import interpreter, needs_stirrup

from harness.runtime.transcripts import READERS, Usage

SMALL = {"FDCB_FIRST_PAUSE": "0.05", "FDCB_HEALTH_PAUSE": "0.05"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="


pytestmark = needs_stirrup


@dataclass
class Bench:
    """One run of the program."""

    root: Path
    server: ChatServer
    repository: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def run(
        self, *replies: Any, timeout: int = 60, effort: str = "none", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        self.server.replies = list(replies)
        self.workspace.mkdir(exist_ok=True)
        (self.root / "TASK.md").write_text("Make the file hello.txt.", encoding="utf-8")
        program = self.repository / "harness/stirrup/runner.py"
        words = [str(self.root / "TASK.md"), str(self.workspace), "org/model", effort, str(timeout)]
        endpoint = {"OPENAI_BASE_URL": self.server.url, "OPENAI_API_KEY": "key-of-test"}
        return subprocess.run(
            [str(interpreter()), str(program), *words],
            env={"HOME": str(self.root), "PATH": os.environ["PATH"], **SMALL, **endpoint, **variables},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def events(self) -> list[dict[str, Any]]:
        (path,) = (self.root / ".stirrup/session").glob("*.jsonl")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def bench(tmp_path: Path, repository: Path) -> Iterator[Bench]:
    with ChatServer().running() as server:
        yield Bench(tmp_path, server, repository)


def shell(command: str, **usage: int) -> Reply:
    return says("", ("code_exec", {"cmd": command}), **usage)


def finish(**usage: int) -> Reply:
    return says("", ("finish", {"reason": "all done", "paths": []}), **usage)


def results(server: ChatServer) -> list[str]:
    """What the tools answered, as the model was told it."""
    told = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    return [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in told]


def test_a_run_to_its_end_leaves_files_and_a_transcript_that_is_counted_right(bench: Bench) -> None:
    done = bench.run(
        shell("printf hi > hello.txt; pwd; ls /", read=100, written=10),
        finish(read=150, written=20),
        effort="high",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished turns=2 finish=all done" in done.stdout
    assert (bench.workspace / "hello.txt").read_text(encoding="utf-8") == "hi"
    assert str(bench.workspace) in results(bench.server)[0]
    first = bench.server.requests[0]
    assert (first["model"], first["reasoning_effort"]) == ("org/model", "high")
    assert first["max_completion_tokens"] == 65_536
    assert {tool["function"]["name"] for tool in first["tools"]} == {"code_exec", "view_image", "finish"}
    assert bench.server.headers[0]["authorization"] == "Bearer key-of-test"
    types = [event["type"] for event in bench.events()]
    assert types[0] == "task"
    assert types.count("step") == 2
    assert {"assistant", "tool", "step"} <= set(types)
    reading = READERS["stirrup"].read(bench.root, bench.root / "absent.log")
    assert reading.usage == Usage(input=150, cached=100, output=30)
    assert (reading.steps, reading.tool_calls) == (2, 2)


def test_no_effort_is_not_sent(bench: Bench) -> None:
    assert bench.run(finish(), effort=" OFF ").returncode == 0
    assert "reasoning_effort" not in bench.server.requests[0]


def test_commands_that_time_out_leave_processes_or_print_too_much(bench: Bench) -> None:
    done = bench.run(
        shell("echo before; sleep 300"),
        shell("sleep 0.3; sleep 300 & echo started"),
        shell("head -c 9000000 /dev/zero | tr '\\0' x; echo; echo the end"),
        shell("cat; exit 7"),
        finish(),
        FDCB_SHELL_TIMEOUT="5",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    late, left, much, code = results(bench.server)[:4]
    assert "before" in late
    assert "timed out after 5 seconds" in late
    assert "started" in left
    assert "<exit_code>0" in left
    assert len(much) < 100_000
    assert "<exit_code>7" in code


def test_images_are_shown_and_other_files_refused_with_advice(bench: Bench) -> None:
    done = bench.run(
        shell(f"echo {PNG} | base64 -d > a.png; echo no > b.png; ln -s /etc/hostname c.png"),
        says("", ("view_image", {"path": "a.png"})),
        says("", ("view_image", {"path": "b.png"})),
        says("", ("view_image", {"path": "c.png"})),
        finish(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.dumps(bench.server.requests[-1]["messages"])
    assert "data:image/png;base64" in told
    assert "PNG or JPG" in told
    assert "outside" in told
    shown = [event for event in bench.events() if event["type"] == "user" and "image" in json.dumps(event)]
    assert '"kind": "image"' in json.dumps(shown)
    assert PNG[:40] not in json.dumps(shown)


def test_an_endpoint_that_goes_away_is_waited_for(bench: Bench) -> None:
    bench.server.health = [503, 503, 200, 404]
    done = bench.run(Reply(drop=True), fails(503, "loading"), finish())
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(bench.server.requests) == 3
    assert bench.server.health_asked == 4
    assert done.stdout.count("waiting for the endpoint") == 2


def test_an_endpoint_that_stays_away_ends_the_run(bench: Bench) -> None:
    bench.server.health = [503] * 1000
    done = bench.run(*[fails(503, "loading")] * 5, FDCB_RECONNECT="0.5")
    assert done.returncode == 1
    assert "503" in done.stderr
    assert bench.events()[-1]["type"] == "error"


def test_too_many_requests_are_waited_for(bench: Bench) -> None:
    done = bench.run(fails(429, "slow down", **{"Retry-After": "0"}), finish())
    assert done.returncode == 0, done.stdout + done.stderr
    assert bench.server.health_asked == 0


def test_a_refusal_is_final(bench: Bench) -> None:
    done = bench.run(fails(401, "bad key"))
    assert done.returncode == 1
    assert len(bench.server.requests) == 1


def budgets(server: ChatServer) -> list[int]:
    return [request["max_completion_tokens"] for request in server.requests]


def cut(body: dict[str, Any]) -> Reply:
    reply = says("half an ans")
    reply.body["choices"][0]["finish_reason"] = "length"
    return reply


def test_a_cut_answer_is_asked_for_once_more_with_room(bench: Bench) -> None:
    done = bench.run(cut, finish())
    assert done.returncode == 0, done.stdout + done.stderr
    assert budgets(bench.server) == [65_536, 131_072]


def test_an_overflow_climbs_down_and_the_budget_comes_back(bench: Bench) -> None:
    sglang = (
        "Requested token count exceeds the model's maximum context length of 40000 tokens. You requested a "
        "total of 70536 tokens: 5000 tokens from the input messages and 65536 tokens for the completion."
    )
    vllm = (
        "maximum context length is 40000 tokens. However, you requested 32768 output tokens and your prompt"
    )
    done = bench.run(fails(400, sglang), fails(400, vllm), shell("true"), finish())
    assert done.returncode == 0, done.stdout + done.stderr
    assert budgets(bench.server) == [65_536, 40_000 - 5000 - 512, 32_768, 65_536]


def test_a_full_context_window_is_an_end_on_record(bench: Bench) -> None:
    done = bench.run(fails(400, "This model's context window is full"))
    assert done.returncode == 0
    assert "context_limit" in done.stdout
    assert bench.events()[-1]["text"].startswith("context_limit")


def test_reasoning_under_another_name_is_kept(bench: Bench) -> None:
    done = bench.run(says("thinking aloud", reasoning="because"), finish())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "because" in json.dumps(bench.server.requests[1]["messages"])


def test_its_time_is_up_before_the_harness_would_kill_it(bench: Bench) -> None:
    done = bench.run(shell("echo first"), shell("sleep 300"), timeout=4)
    assert done.returncode == 124
    assert bench.events()[-1]["type"] == "error"
    assert "timeout after" in done.stdout


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["task"], {}),
        (["absent.md", ".", "m", "none", "10"], {}),
        (["TASK.md", ".", "m", "none", "soon"], {}),
        (["TASK.md", ".", "m", "none", "10"], {"FDCB_MAX_TURNS": "many"}),
        (["TASK.md", ".", "m", "none", "10"], {"FDCB_SUMMARISE_AT": "7"}),
    ],
)
def test_faults_are_one_line(bench: Bench, words: list[str], variables: dict[str, str]) -> None:
    (bench.root / "TASK.md").write_text("x", encoding="utf-8")
    done = subprocess.run(
        [str(interpreter()), str(bench.repository / "harness/stirrup/runner.py"), *words],
        env={"HOME": str(bench.root), "PATH": os.environ["PATH"], **variables},
        cwd=bench.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
