"""Which process on which boot of which machine holds something, and whether it still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@cache
def boot_id() -> str:
    """Identifier of this boot of the machine; process ids mean nothing across two of them."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, None when there is none. Tells reused pids apart."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def this_process() -> dict[str, str | int | None]:
    """How records name the present process."""
    pid = os.getpid()
    return {"pid": pid, "boot_id": boot_id(), "start_ticks": start_ticks(pid), "host": socket.gethostname()}


def alive(owner: Mapping[str, object]) -> bool:
    """Whether the process that :func:`this_process` once described still runs.

    An owner on another machine cannot be looked at from here and counts as alive; an owner of an earlier boot
    of this machine is dead.
    """
    if owner.get("host") not in (None, socket.gethostname()):
        return True
    if owner.get("boot_id") != boot_id():
        return False
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return False
    started = start_ticks(pid)
    return started is not None and owner.get("start_ticks") in (None, started)
