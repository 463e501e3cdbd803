"""Which GPUs runs get: all of them for a run at a time, a whole one each for several at once, or none."""

from __future__ import annotations

import os
from pathlib import Path

from contract.errors import UserError

Gpus = tuple[str, ...] | None
"""GPUs of one run: () for none, None for all that there are."""
_DRIVER = Path("/proc/driver/nvidia/gpus")


def devices(text: str) -> Gpus:
    """GPUs that ``[agent.environment] gpus`` names. ``auto``: those of CUDA_VISIBLE_DEVICES, else all that
    there are.
    """
    if text == "none":
        return ()
    if text == "all":
        return None
    if text != "auto":
        return tuple(text.split(","))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(part for part in visible.split(",") if part)
    return None if Path("/dev/nvidiactl").exists() else ()


def slots(parallel: int, gpus: Gpus, driver: Path = _DRIVER) -> list[Gpus]:
    """The GPUs of each run that goes on at the same time; as many slots as runs are possible at once.

    A run alone gets every GPU; several at once get one each, so there are never more than GPUs. Raises
    ``UserError`` where the GPUs would have to be shared out and nobody knows their number.
    """
    if parallel == 1 or gpus == ():
        return [gpus] * parallel
    if gpus is None:
        count = len(list(driver.iterdir())) if driver.is_dir() else 0
        if not count:
            raise UserError(
                f"[agent] parallel = {parallel}: which GPUs there are is not known",
                next_step="name them in CUDA_VISIBLE_DEVICES, or set [agent.environment] gpus",
            )
        gpus = tuple(map(str, range(count)))
    return [(gpu,) for gpu in gpus[:parallel]]
