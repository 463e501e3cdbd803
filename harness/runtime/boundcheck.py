"""Whether the bounds of ``[budget]`` can be kept: a bound that nobody can check is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from contract.errors import UserError
from harness.runtime import accounting
from harness.runtime.agentconfig import Budget
from harness.runtime.agentjob import Setting

PRIVATE_TRANSCRIPTS = (
    "[budget]: agents are root in their containers and you are not, so a transcript that they write for "
    "themselves only is read at the end of a run; set [agent.environment] root = false to bound runs before"
)


def check_bounds(settings: Sequence[Setting], budget: Budget, path: Path) -> None:
    """Refuse a bound of dollars for a model without a price, and of tokens for an agent whose transcript
    nobody can read. ``path`` : the runtime file, for the message. Raises ``UserError``.
    """
    for key, bound in (("max_usd", budget.max_usd), ("max_usd_per_run", budget.max_usd_per_run)):
        for setting in settings if bound is not None else ():
            agent, model = setting.key.agent, setting.key.model
            if not accounting.priced(setting.reader, model):
                why = accounting.why_unpriced(setting.reader, model)
                raise UserError(
                    f"[budget] {key} cannot be kept: the price of {model!r} for agent {agent} is not known"
                    + (f" ({why})" if why else ""),
                    where=path,
                    next_step="set max_tokens instead, or make the price known, see docs/configuration.md",
                )
    for key, limit in (("max_tokens", budget.max_tokens), ("max_tokens_per_run", budget.max_tokens_per_run)):
        for setting in settings if limit is not None else ():
            if not accounting.counted(setting.reader):
                raise UserError(
                    f"[budget] {key} cannot be kept: nobody counts the tokens of agent {setting.key.agent}",
                    where=path,
                    next_step=f"say in [agent.{setting.key.agent}] which transcript it writes",
                )


def live_warnings(setting: Setting) -> tuple[str, ...]:
    """Warnings about bounds of a run that can be checked at its end only."""
    bounded = setting.max_usd is not None or setting.max_tokens is not None
    return (PRIVATE_TRANSCRIPTS,) if bounded and setting.as_root and os.geteuid() != 0 else ()
