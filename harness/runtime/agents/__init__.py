"""Agents as data: one file each, a pure function from a context to an argument vector."""

from __future__ import annotations

from harness.runtime.agents import antigravity, claude, codex, stirrup
from harness.runtime.agents.base import Agent, Context
from harness.runtime.agents.custom import custom_agent

BUILT_IN: dict[str, Agent] = {
    agent.name: agent for agent in (claude.AGENT, codex.AGENT, antigravity.AGENT, stirrup.AGENT)
}

__all__ = ["BUILT_IN", "Agent", "Context", "custom_agent"]
