"""The launcher's end of the pipe to a warden: start it, give orders, pass a stop on, read the report."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_POLL = 0.2


def start_warden(script: Path, name: str, log: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A warden that waits for its orders.

    name : of the job, for people who look at the list of processes. log : descriptor of the job's log, which
    keeps its number in the warden. Raises ``OSError``.
    """
    return subprocess.Popen(
        # -I -S: the warden needs nothing of ours, and no variable or directory shall lead it astray.
        [sys.executable, "-I", "-S", str(script), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=dict(env),
        cwd="/",
        pass_fds=(log,),
        start_new_session=True,
        bufsize=0,
    )


def converse(
    warden: subprocess.Popen[bytes], orders: dict[str, Any], stop: threading.Event
) -> dict[str, Any] | None:
    """Give the orders, pass a stop on, read the report. None when the warden ended without one."""
    assert warden.stdin is not None
    assert warden.stdout is not None
    told = False
    data = b""
    try:
        warden.stdin.write((json.dumps(orders) + "\n").encode())
        while True:
            if stop.is_set() and not told:
                told = True
                warden.stdin.write(b"s")
            if not select.select([warden.stdout], [], [], _POLL)[0]:
                continue
            piece = os.read(warden.stdout.fileno(), 65536)
            if not piece:
                break
            data += piece
    except BrokenPipeError:
        data += warden.stdout.read() or b""
    warden.wait()
    return json.loads(data) if data.endswith(b"\n") else None
