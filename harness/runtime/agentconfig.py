"""The tables of the runtime file that are about agents: ``[agent]`` and below, and ``[budget]``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from contract.names import LONGEST_LEVEL
from harness.runtime.tomlfile import Table

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Network = Literal["default", "no-network"]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AgentImage(Table):
    """``[agent.image]``: image per container backend."""

    docker: str = "4dcb/agent:dev"
    sif: str | None = None


class AgentEnvironment(Table):
    """``[agent.environment]``: what an agent's container sees of the machine."""

    network_mode: Network = "default"
    gpus: str = "auto"
    root: bool = True

    @field_validator("gpus")
    @classmethod
    def _devices(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*", value):
            raise ValueError("must be 'auto', 'all', 'none' or device ids joined by commas")
        return value


class AgentLimits(Table):
    """``[agent.limits]``: resources of one agent container; a backend that cannot keep one refuses."""

    cpus: Seconds | None = None
    memory_mb: Positive | None = None
    pids: Positive | None = None
    shm_mb: Positive | None = None


class DeliveryLimits(Table):
    """``[agent.delivery]``: how much is collected of what an agent leaves."""

    max_files: Positive = 20_000
    max_file_mb: Positive = 8_192
    max_total_mb: Positive = 32_768


Transcript = Literal["none", "free", "usage", "claude", "codex", "antigravity", "stirrup"]


class Budget(Table):
    """``[budget]``: at which spending runs are stopped; a key that is left out sets no bound."""

    max_usd: Seconds | None = None
    max_tokens: Positive | None = None
    max_usd_per_run: Seconds | None = None
    max_tokens_per_run: Positive | None = None


class AgentTable(Table):
    """``[agent.NAME]``: credentials and variables of one agent; with ``command`` it defines a custom one."""

    credential: str | None = None
    container: str | None = None
    write_back: bool = True
    parallel: Positive | None = None
    env: dict[str, str] = Field(default_factory=dict)
    python: str | None = Field(default=None, min_length=1)
    command: tuple[str, ...] | None = Field(default=None, strict=False, min_length=1)
    session_dir: str | None = None
    efforts: tuple[str, ...] = Field(default=(), strict=False)
    stdin: Literal["closed", "task"] = "closed"
    transcript: Transcript = "none"

    @field_validator("session_dir")
    @classmethod
    def _below_home(cls, value: str | None) -> str | None:
        if value is not None and (
            value.startswith("/") or ".." in value.split("/") or not value.strip("/. ")
        ):
            raise ValueError("must be a path below the agent's home, without '..'")
        if value is not None and any(len(part.encode()) > LONGEST_LEVEL for part in value.split("/")):
            raise ValueError(f"must have levels of at most {LONGEST_LEVEL} bytes")
        if value is not None and "\0" in value:
            raise ValueError("holds a NUL character")
        return value

    @field_validator("env")
    @classmethod
    def _variable_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if "\0" in text:
                raise ValueError(f"the value of {name} holds a NUL character")
        return value


class AgentSection(Table):
    """``[agent]``: what holds for every agent, and one table per agent (gathered in ``agents``)."""

    timeout_sec: Positive = 21_600
    grace_sec: Seconds = 5.0
    parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    retry_wait_sec: Seconds = 15.0
    min_free_gb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    image: AgentImage = AgentImage()
    environment: AgentEnvironment = AgentEnvironment()
    limits: AgentLimits = AgentLimits()
    delivery: DeliveryLimits = DeliveryLimits()
    agents: dict[str, AgentTable] = Field(default_factory=dict)
