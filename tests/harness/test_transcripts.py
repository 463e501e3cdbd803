"""Transcript readers against small transcripts in each agent's format, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.runtime.transcripts import READERS, Reading, Usage
from harness.runtime.transcripts import base as base_module

Line = dict[str, Any] | str


class Run:
    """A run directory that transcripts are written into."""

    def __init__(self, root: Path) -> None:
        self.session, self.log = root / "session", root / "logs" / "agent.log"
        self.session.mkdir()
        self.log.parent.mkdir()

    def write(self, name: str, *lines: Line, end: str = "\n") -> Path:
        path = self.session / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(lines) + end, encoding="utf-8")
        return path

    def printed(self, *lines: Line) -> None:
        self.log.write_text(_text(lines) + "\n", encoding="utf-8")

    def read(self, agent: str) -> Reading:
        return READERS[agent].read(self.session, self.log)


def _text(lines: tuple[Line, ...]) -> str:
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.parametrize("agent", sorted(READERS))
def test_nothing_is_known_of_a_run_without_transcripts(run: Run, agent: str) -> None:
    assert run.read(agent) == Reading()
    run.session.rmdir()
    assert run.read(agent) == Reading()


# Claude Code


def said(name: str, output: int, request: str | None = "r1", tools: int = 0, **counts: int) -> dict[str, Any]:
    content = [{"type": "tool_use", "id": f"{name}-{index}"} for index in range(tools)]
    usage = {"input_tokens": 3, "cache_read_input_tokens": 15_030, "output_tokens": output, **counts}
    line = {"type": "assistant", "message": {"id": name, "usage": usage, "content": content or "text"}}
    return line if request is None else {**line, "requestId": request}


def test_claude_counts_a_message_once_by_its_last_line(run: Run) -> None:
    run.write(".claude/projects/p/one.jsonl", said("m1", 1), said("m1", 1), said("m1", 500))
    reading = run.read("claude")
    assert reading.usage == Usage(input=3, cached=15_030, output=500)
    assert (reading.steps, reading.tool_calls) == (1, 0)


def test_claude_counts_sub_agents_and_not_the_copies_of_a_resumed_session(run: Run) -> None:
    run.write("p/a.jsonl", {"type": "user"}, said("m1", 10, tools=2), said("m2", 20, request="r2"))
    run.write("p/b.jsonl", said("m1", 10, tools=2), said("m2", 4, request="r2"), said("m3", 30, request="r3"))
    run.write("p/agents/c.jsonl", said("m4", 40, request=None, tools=1, cache_creation_input_tokens=7))
    reading = run.read("claude")
    assert reading.usage == Usage(input=12, cached=4 * 15_030, written=7, output=100)
    assert (reading.steps, reading.tool_calls) == (4, 3)


def test_claude_tells_two_requests_with_one_message_id_apart(run: Run) -> None:
    run.write("a.jsonl", said("m1", 10, request="r1"), said("m1", 10, request="r2"))
    assert run.read("claude").usage == Usage(input=6, cached=30_060, output=20)


def test_claude_reports_its_own_cost_and_falls_back_to_its_result(run: Run) -> None:
    result = {"type": "result", "total_cost_usd": 1.25, "usage": {"input_tokens": 5, "output_tokens": 6,
              "output_tokens_details": {"thinking_tokens": 2}}}  # fmt: skip
    run.printed("warning: something", {"usage": {"input_tokens": 1}}, result)
    reading = run.read("claude")
    assert reading.usage == Usage(input=5, output=6, reasoning=2)
    assert (reading.reported_usd, reading.steps) == (1.25, None)
    run.write("a.jsonl", said("m1", 9))
    assert run.read("claude").usage == Usage(input=3, cached=15_030, output=9)


# Codex


def tokens(total: int, last: int | None = None, cached: int = 0) -> dict[str, Any]:
    info = {"total_token_usage": {"input_tokens": total, "cached_input_tokens": cached, "output_tokens": 0}}
    if last is not None:
        info["last_token_usage"] = {"input_tokens": last, "cached_input_tokens": 0, "output_tokens": 0}
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


def test_codex_totals_are_cumulative(run: Run) -> None:
    run.write(".codex/sessions/2026/rollout-1.jsonl", tokens(1000, 1000), tokens(1800, 800))
    assert run.read("codex").usage == Usage(input=1800)


def test_codex_does_not_count_what_a_resumed_session_brought_along(run: Run) -> None:
    run.write("rollout-1.jsonl", tokens(1000, 1000), tokens(1800, 800))
    run.write("rollout-2.jsonl", tokens(2000, 200), tokens(2100, 100))
    assert run.read("codex").usage == Usage(input=1800 + 300)


def test_codex_steps_are_distinct_events_and_cached_input_is_part_of_the_input(run: Run) -> None:
    call = {"type": "response_item", "payload": {"type": "function_call", "call_id": "c1"}}
    custom = {"type": "response_item", "payload": {"type": "custom_tool_call", "call_id": "c2"}}
    empty = {"type": "event_msg", "payload": {"type": "token_count", "info": None}}
    run.write("rollout-1.jsonl", empty, call, tokens(100, 100, 40), tokens(100, 100, 40), call, custom,
              tokens(150, 50, 60))  # fmt: skip
    reading = run.read("codex")
    assert reading.usage == Usage(input=90, cached=60)
    assert (reading.steps, reading.tool_calls) == (2, 2)


def test_codex_without_totals_adds_up_and_without_rollouts_takes_the_last_turn(run: Run) -> None:
    counts = {"cached_input_tokens": 5, "output_tokens": 7, "reasoning_output_tokens": 3}
    turns = [{"type": "turn.completed", "usage": {**counts, "input_tokens": read}} for read in (10, 30)]
    run.printed("garbage", *turns, {"type": "turn.started"})
    assert run.read("codex").usage == Usage(input=25, cached=5, output=7, reasoning=3)
    last = {"type": "event_msg", "payload": {"type": "token_count",
            "info": {"last_token_usage": {"input_tokens": 4, "output_tokens": 1}}}}  # fmt: skip
    run.write("rollout-1.jsonl", last, last)
    assert run.read("codex").usage == Usage(input=8, output=2)


# Antigravity


def test_antigravity(run: Run) -> None:
    name = ".gemini/antigravity-cli/brain/x/.system_generated/logs/transcript_full.jsonl"
    run.write(name, {"type": "PLANNER_RESPONSE", "tool_calls": [{}, {}]}, {"type": "TOOL"},
              {"type": "PLANNER_RESPONSE", "tool_calls": None})  # fmt: skip
    run.write("elsewhere/transcript_full.jsonl", {"type": "PLANNER_RESPONSE"})
    counts = {"input_tokens": 9, "cache_read_tokens": 8, "output_tokens": 7, "thinking_tokens": 6}
    run.printed({"usage": {"input_tokens": 1}}, {"response": "done", "usage": counts})
    reading = run.read("antigravity")
    assert reading.usage == Usage(input=9, cached=8, output=7, reasoning=6)
    assert (reading.steps, reading.tool_calls) == (2, 2)


# Stirrup


def step(number: int, read: int, written: int, calls: int) -> dict[str, Any]:
    return {
        "type": "step",
        "step": number,
        "input_tokens": read,
        "output_tokens": written,
        "tool_calls": calls,
    }


def test_stirrup_takes_what_a_request_repeats_as_cached(run: Run) -> None:
    lines = [{"type": "task"}, step(1, 100, 10, 1), step(2, 250, 30, 2), step(3, 330, 35, 4)]
    run.write(".stirrup/session/20261130-120000.jsonl", *lines)
    run.write(".stirrup/session/20261130-130000.jsonl", step(1, 50, 5, 0))
    run.write(".stirrup/session/notes.jsonl", step(1, 5000, 500, 50))
    reading = run.read("stirrup")
    # Requests of 100, 150 and 80 tokens: min(100, 150) + min(150, 80) were sent before.
    assert reading.usage == Usage(input=330 - 180 + 50, cached=180, output=40)
    assert (reading.steps, reading.tool_calls) == (4, 4)


# Hostile files


@pytest.mark.parametrize(
    ("agent", "name", "good"),
    [
        ("claude", "a.jsonl", said("m1", 5)),
        ("codex", "rollout-1.jsonl", tokens(10, 10)),
        ("stirrup", "1.jsonl", step(1, 10, 1, 0)),
    ],
)
def test_a_cut_last_line_costs_that_line_only(run: Run, agent: str, name: str, good: dict[str, Any]) -> None:
    run.write(name, good, '{"type": "assistant", "mess', end="")
    reading = run.read(agent)
    assert reading.usage is not None
    assert reading.usage.total > 0
    assert [note for note in reading.notes if "cut" in note]


def test_a_line_that_does_not_end_is_skipped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "LONGEST_LINE", 1000)
    run.write("a.jsonl", "{" + "x" * 5000, said("m1", 5))
    reading = run.read("claude")
    assert reading.usage == Usage(input=3, cached=15_030, output=5)
    assert len(reading.notes) == 1


def test_links_pipes_and_directories_are_not_read(run: Run, tmp_path: Path) -> None:
    import os

    outside = tmp_path / "outside.jsonl"
    outside.write_text(json.dumps(said("m1", 5)), encoding="utf-8")
    (run.session / "link.jsonl").symlink_to(outside)
    os.mkfifo(run.session / "pipe.jsonl")
    (run.session / "folder.jsonl").mkdir()
    assert run.read("claude") == Reading()


NAMES = (
    "type message usage id payload info total_token_usage last_token_usage input_tokens output_tokens "
    "cached_input_tokens tool_calls content total_cost_usd"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["assistant", "event_msg", "response_item", "step", "turn.completed", "PLANNER_RESPONSE"]
)


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(st.tuples(KINDS, st.dictionaries(st.sampled_from(["message", "payload", "usage"]), JSON)))
)
def test_no_json_makes_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, dict[str, Any]]]
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    objects = [{"type": kind, **rest} for kind, rest in lines]
    for name in ("a.jsonl", "rollout-1.jsonl", "1.jsonl"):
        run.write(name, *objects)
    run.printed(*objects)
    for agent in READERS:
        usage = run.read(agent).usage
        assert usage is None or min(usage.record().values()) >= 0
