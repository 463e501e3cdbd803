"""Codex CLI."""

from __future__ import annotations

from harness.runtime.agents.base import Agent, Context


def command(context: Context) -> tuple[str, ...]:
    """``codex exec`` with the task text as its prompt; the effort is a TOML string to codex, hence the
    quotes.
    """
    return (
        "codex", "exec", context.task_text,
        "--model", context.model,
        "-c", f'model_reasoning_effort="{context.effort}"',
        "--disable", "plugins",
        "--disable", "remote_plugin",
        "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check",
        "-C", context.workspace,
        "--json",
    )  # fmt: skip


AGENT = Agent("codex", command, ".codex/sessions", ("low", "medium", "high", "xhigh", "max"))
