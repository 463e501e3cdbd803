"""Antigravity CLI."""

from __future__ import annotations

from harness.runtime.agents.base import Agent, Context


def command(context: Context) -> tuple[str, ...]:
    """``agy`` in print mode with the task text as its prompt."""
    return (
        "agy", "-p", context.task_text,
        "--model", context.model,
        "--effort", context.effort,
        "--dangerously-skip-permissions",
        "--output-format", "json",
        "--print-timeout", f"{context.timeout}s",
    )  # fmt: skip


AGENT = Agent("antigravity", command, ".gemini/antigravity-cli/brain", ("low", "medium", "high"))
