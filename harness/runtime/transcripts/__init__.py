"""Readers of the transcripts that agents leave: one file an agent, one function ``read(session, log)``."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import cast

from harness.runtime.transcripts import antigravity, claude, codex, stirrup
from harness.runtime.transcripts.base import Reader, Reading, Usage

_MODULES: Mapping[str, ModuleType] = {
    "claude": claude,
    "codex": codex,
    "antigravity": antigravity,
    "stirrup": stirrup,
}

READERS: Mapping[str, Reader] = {name: cast(Reader, module) for name, module in _MODULES.items()}
"""By the agent's name. An agent of a runtime file has none unless its table names one of these."""

__all__ = ["READERS", "Reader", "Reading", "Usage"]
