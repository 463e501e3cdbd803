"""Claude Code."""

from __future__ import annotations

from harness.runtime.agents.base import Agent, Context

TOOLS = ("Bash", "Edit", "Write", "Read", "Glob", "Grep", "NotebookEdit")


def command(context: Context) -> tuple[str, ...]:
    """``claude`` in print mode with the task text as its prompt."""
    return (
        "claude", "-p", context.task_text,
        "--model", context.model,
        "--effort", context.effort,
        "--permission-mode", "dontAsk",
        "--allowedTools", *TOOLS,
        "--output-format", "json",
    )  # fmt: skip


AGENT = Agent("claude", command, ".claude/projects", ("low", "medium", "high", "xhigh", "max"))
