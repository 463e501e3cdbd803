"""The Stirrup loop for OpenAI-compatible endpoints."""

from __future__ import annotations

from harness.runtime.agents.base import Agent, Context

TARGET = "/opt/stirrup"


def command(context: Context) -> tuple[str, ...]:
    """The runner from ``harness/stirrup``, which reads the task from its file."""
    return (
        "python3", f"{TARGET}/runner.py", context.task, context.workspace,
        context.model, context.effort, str(context.timeout),
    )  # fmt: skip


AGENT = Agent("stirrup", command, ".stirrup", tools="harness/stirrup", tools_target=TARGET)
