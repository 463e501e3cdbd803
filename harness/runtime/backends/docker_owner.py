"""Who started a container: labels that let a later launcher tell a dead owner from a living one.

A process is known by its pid *and* its start time on one boot of one machine, in one pid name space; a pid
alone is handed out again. Whatever cannot be judged from here (another machine on the same engine, another
user, another pid name space) counts as living, so that it is left alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from harness.runtime.backends.base import LABEL
from harness.runtime.owner import boot_id, start_ticks

RUN, OWNER, BOOT = f"{LABEL}.run", f"{LABEL}.owner", f"{LABEL}.boot"
START, USER, HOST, NAMESPACE = f"{LABEL}.start", f"{LABEL}.user", f"{LABEL}.host", f"{LABEL}.pidns"
TOKEN = f"{LABEL}.token"
"""One random word a run: recognises a container whose creation was answered too late to be seen."""


def machine() -> str:
    """A name of this machine that outlives a reboot."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()


def pid_namespace() -> str:
    """The pid name space that our pids are counted in; empty when the kernel does not tell."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def own_labels() -> dict[str, str]:
    """Labels that name this very process as owner."""
    pid = os.getpid()
    return {
        OWNER: str(pid),
        BOOT: boot_id(),
        START: str(start_ticks(pid) or 0),
        USER: str(os.getuid()),
        HOST: machine(),
        NAMESPACE: pid_namespace(),
    }


def owner_is_dead(labels: Mapping[str, str]) -> bool:
    """True when the launcher named by ``labels`` certainly runs no more and was ours to clean up after.

    Absent labels judge nothing; without a readable owner the answer is False.
    """
    if labels.get(USER, str(os.getuid())) != str(os.getuid()):
        return False
    if labels.get(HOST, machine()) != machine():
        return False
    if not labels.get(OWNER, "").isdecimal() or BOOT not in labels:
        return False
    if labels[BOOT] != boot_id():
        return True
    if labels.get(NAMESPACE, pid_namespace()) != pid_namespace():
        return False
    started = start_ticks(int(labels[OWNER]))
    return started is None or labels.get(START, str(started)) != str(started)
