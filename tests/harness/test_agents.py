"""Command lines of the agents, word for word, and the placeholders of custom ones."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import UserError
from harness.runtime.agents import BUILT_IN, Context, custom_agent
from harness.runtime.agents.custom import PLACEHOLDERS, fill

TEXT = "line one\n$(rm -rf /) `x` \"quoted\" 'single' {model} \\"
CONTEXT = Context(
    task="/task/TASK.md",
    task_text=TEXT,
    workspace="/workspace",
    video="/input/reference.mp4",
    world="/workspace/world",
    solution="/workspace/solution",
    model="org/model; echo pwned",
    effort="high",
    timeout=21600,
    python="python3",
    tools="/opt/stirrup",
)


def test_claude() -> None:
    assert BUILT_IN["claude"].command(CONTEXT) == (
        "claude", "-p", TEXT, "--model", "org/model; echo pwned", "--effort", "high",
        "--permission-mode", "dontAsk",
        "--allowedTools", "Bash", "Edit", "Write", "Read", "Glob", "Grep", "NotebookEdit",
        "--output-format", "json",
    )  # fmt: skip


def test_codex() -> None:
    assert BUILT_IN["codex"].command(CONTEXT) == (
        "codex", "exec", TEXT, "--model", "org/model; echo pwned", "-c", 'model_reasoning_effort="high"',
        "--disable", "plugins", "--disable", "remote_plugin", "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check", "-C", "/workspace", "--json",
    )  # fmt: skip


def test_antigravity() -> None:
    assert BUILT_IN["antigravity"].command(CONTEXT) == (
        "agy", "-p", TEXT, "--model", "org/model; echo pwned", "--effort", "high",
        "--dangerously-skip-permissions", "--output-format", "json", "--print-timeout", "21600s",
    )  # fmt: skip


def test_stirrup() -> None:
    assert BUILT_IN["stirrup"].command(CONTEXT) == (
        "python3", "/opt/stirrup/runner.py", "/task/TASK.md", "/workspace", "org/model; echo pwned", "high",
        "21600",
    )  # fmt: skip


def test_sessions_and_efforts() -> None:
    assert {name: (agent.session_dir, agent.efforts) for name, agent in BUILT_IN.items()} == {
        "claude": (".claude/projects", ("low", "medium", "high", "xhigh", "max")),
        "codex": (".codex/sessions", ("low", "medium", "high", "xhigh", "max")),
        "antigravity": (".gemini/antigravity-cli/brain", ("low", "medium", "high")),
        "stirrup": (".stirrup", ()),
    }


def test_a_custom_command_keeps_its_words() -> None:
    agent = custom_agent("mine", ["run", "{task_text}", "--out={world}", "{{{model}}}", "{timeout}", ""])
    assert agent.command(CONTEXT) == (
        "run", TEXT, "--out=/workspace/world", "{org/model; echo pwned}", "21600", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    "word", ["{modell}", "{}", "${HOME}", "{model", "model}", '{"a": 1}', "{{model}", "{model.x}"]
)
def test_a_word_with_a_stray_brace_or_unknown_placeholder_is_refused(word: str) -> None:
    with pytest.raises(UserError) as caught:
        custom_agent("mine", ["run", word])
    assert "placeholder" in caught.value.line()
    assert "{task_text}" in caught.value.line()


@pytest.mark.parametrize("words", [[], [""], ["run", "a\0b"]])
def test_commands_that_cannot_run_are_refused(words: list[str]) -> None:
    with pytest.raises(UserError):
        custom_agent("mine", words)


@given(st.dictionaries(st.sampled_from([n for n in PLACEHOLDERS if n != "timeout"]), st.text()))
def test_what_a_placeholder_inserts_is_never_read_again(values: dict[str, str]) -> None:
    context = dataclasses.replace(CONTEXT, **values)
    words = tuple(f"<{{{name}}}>" for name in PLACEHOLDERS)
    assert fill(words, context) == tuple(f"<{getattr(context, name)}>" for name in PLACEHOLDERS)
