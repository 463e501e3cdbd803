"""``[launcher]``: whether work runs on this machine or is handed to a SLURM cluster, and on which terms."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from harness.runtime.agentconfig import Positive, Seconds
from harness.runtime.tomlfile import Table

LOCAL: Final = "local"
SLURM: Final = "slurm"
Text = Annotated[str, Field(min_length=1)]


class LauncherSection(Table):
    """``[launcher]``. All but ``engine`` is for SLURM and handed to ``sbatch``."""

    engine: Literal["local", "slurm"] = LOCAL
    slots: Annotated[int, Field(ge=1, le=4096)] = 1
    """Array tasks at the same time."""
    partition: Text | None = None
    time: Text | None = None
    """Limit of one task, as SLURM writes it: ``minutes``, ``hours:minutes:seconds``, ``days-hours``."""
    gres: Text | None = None
    cpus_per_task: Positive | None = None
    mem: Text | None = None
    setup: tuple[Text, ...] = Field(default=(), strict=False)
    """Shell commands before a task starts: modules to load, an environment to enter."""
    extra: dict[Text, str | int | bool] = Field(default_factory=dict)
    """Further options of ``sbatch`` without their dashes."""
    resubmits: Annotated[int, Field(ge=0, le=100)] = 3
    """How often tasks are submitted again for what others have lost."""
    stale_sec: Seconds = 120.0
    """A worker without a sign of life for so long counts as dead."""
