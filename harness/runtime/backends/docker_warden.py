"""A small process that outlives its launcher, and removes the containers that a killed launcher left.

SIGKILL cannot be caught, so the launcher cannot clean up after itself. It therefore starts one warden with
its first container and tells it, over a pipe, of every container before it is created and after it is gone.
The pipe closes when the launcher ends, however it ends; the warden then removes what was not reported gone,
gives the files back and ends. It is in a session of its own, so that a signal to the launcher's group does
not reach it. When it is killed too, the next launcher finds the container by its labels.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_LATE_CREATION_S = 5.0
"""How long a container that is not there may still appear: its creation can be under way when its launcher
dies.
"""
_PATIENCE_S = 600.0


class Warden:
    """The launcher's end of the pipe. Safe to use from several threads; started with the first
    container."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._watched: dict[str, str] = {}

    def watch(self, name: str, token: str, image: str, paths: Iterable[Path], owner: str, host: str) -> None:
        """Before a container is created.

        token : value of its ``TOKEN`` label. paths : writable host paths to hand back to ``owner``
        (``uid:gid`` as seen inside), none when nothing is to be handed back. Raises ``OSError`` when no
        warden can be started.
        """
        record = {
            "name": name,
            "token": token,
            "image": image,
            "owner": owner,
            "paths": [str(path) for path in paths],
            "host": host,
        }
        with self._lock:
            self._watched[token] = json.dumps({"watch": record})
            try:
                self._send(self._watched[token])
            except OSError:
                del self._watched[token]
                raise

    def release(self, token: str) -> None:
        """After a container was confirmed to be gone."""
        with self._lock:
            self._watched.pop(token, None)
            # One that was killed needs no word of it: the next one is told of what is still watched.
            if self._process is not None and self._pid == os.getpid():
                _write(self._process, json.dumps({"release": token}))

    def close(self) -> None:
        """Let the warden end; it removes what was not released."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None and self._pid == os.getpid():
                self._process.stdin.close()
                if not self._watched:
                    self._process.wait()
            self._process = None

    def _send(self, line: str) -> None:
        """Write a line, starting the warden when there is none, or another when it was killed."""
        if self._process is None or self._pid != os.getpid() or not _write(self._process, line):
            self._start()

    def _start(self) -> None:
        if self._pid != os.getpid():
            atexit.register(self.close)
        elif self._process is not None:
            self._process.wait()
        self._process = subprocess.Popen(
            # -P: the folder of this file must not be searched; it holds a docker.py.
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._pid = os.getpid()
        for line in self._watched.values():
            _write(self._process, line)


def _write(process: subprocess.Popen[bytes], line: str) -> bool:
    if process.stdin is None or process.poll() is not None:
        return False
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return False
    return True


def main() -> None:
    """Read the launcher's pipe to its end, then clean up after it."""
    watched: dict[str, dict[str, object]] = {}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "watch" in message:
            watched[message["watch"]["token"]] = message["watch"]
        else:
            watched.pop(message["release"], None)
    deadline = time.monotonic() + _PATIENCE_S
    for record in watched.values():
        _clean_up(record, deadline)


def _clean_up(record: dict[str, object], deadline: float) -> None:
    # Imported late: a warden that has nothing to do must not hold the memory of the Docker SDK.
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    from harness.runtime.backends.docker_engine import EngineError
    from harness.runtime.backends.docker_supervision import clean_up_after

    while time.monotonic() < deadline:
        try:
            clean_up_after(record, _LATE_CREATION_S)
        except EngineError:
            time.sleep(5.0)
        else:
            return


if __name__ == "__main__":
    main()
