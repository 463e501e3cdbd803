"""The process between the launcher and an Apptainer container: it starts the instance, runs the command in
it, and ends both, also when the launcher is killed.

A script of its own like :mod:`.warden`, whose pipe to the launcher, subreaper and way of waiting it uses.
Everything of a container is below this process: the instance's monitor, the first process of its name space
of processes, and the program that entered it with the command. SIGTERM goes to the container's own processes
only, for the monitor would take it as an order to end at once. SIGKILL to the first process of the name
space ends all in it, whatever they do; the monitor then tidies up.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.runtime.backends import sif_cgroup, warden
else:
    # Started by path and without site packages: the neighbours are found by path as well.
    sys.path.insert(0, str(Path(__file__).parent))
    import sif_cgroup
    import warden

TIDY_S = 10.0
"""How long the monitor may take to tidy up after its container."""
LIST_S = 60.0


class Container:
    """A started instance. ``pid``: its first process; ``level``: how deep its name space of processes is."""

    def __init__(self, pid: int, logs: list[str]) -> None:
        self.pid = pid
        self.logs = logs
        self.level = len(_name_space_pids(pid))
        self.groups = sif_cgroup.groups(pid)
        self.oom_before = sif_cgroup.oom_kills(self.groups)

    def alive(self) -> bool:
        """Whether the first process still runs."""
        return self.pid in warden.descendants()

    def members(self) -> set[int]:
        """Processes in the container, without its first one."""
        below = warden.descendants() - {self.pid}
        return {pid for pid in below if len(_name_space_pids(pid)) >= self.level}

    def oom_kills(self) -> int:
        """Processes killed for want of memory since the start, as far as can be told."""
        now = sif_cgroup.oom_kills(self.groups)
        return 0 if now is None or self.oom_before is None else max(0, now - self.oom_before)


def main() -> None:
    """Read the orders, run the container, report."""
    orders = warden.take_orders()
    os.set_inheritable(orders["log"], False)
    began = time.monotonic()
    report: dict[str, Any] = {"exit_code": None, "error": "", "seconds": 0.0, "gone": True}
    container = None
    try:
        container, started = _start(orders)
        report |= started
        if container is not None:
            report |= _run(container, orders)
    except Exception as error:
        report |= {"error": f"the warden failed: {type(error).__name__}: {error}"}
        report["gone"] = warden.kill_all(None)
    if container is None:
        report["seconds"] = time.monotonic() - began
    if report["gone"]:
        _forget(container, orders)
    warden.tell(report)


def _start(orders: dict[str, Any]) -> tuple[Container | None, dict[str, Any]]:
    """Start the instance; None with what to report where it could not be started or need not be."""
    said = Path(orders["private"]) / "start.log"
    with said.open("wb") as stream:
        child = warden.start(
            {**orders, "command": orders["start"], "cwd": "/", "env": orders["env"], "log": stream.fileno()}
        )
    if isinstance(child, str):
        return None, {"error": child}
    command = warden.Command(child)
    why, _ = warden.wait(command, time.monotonic() + orders["start_timeout"], 0.0)
    if why or command.code != 0:
        gone = warden.kill_all(command)
        words = said.read_text(encoding="utf-8", errors="replace")
        error = {
            "stop": "",
            "timeout": "the container did not start in time",
            "": words or "it did not start",
        }[why]
        return None, {"interrupted": why == "stop", "error": error, "gone": gone}
    container = _find(orders)
    if isinstance(container, str):
        return None, {"error": container, "gone": warden.kill_all(command)}
    if broken := _broken(container, orders["limits"]):
        return None, {"error": broken, "gone": _end(container, command)}
    return container, {}


def _broken(container: Container, limits: dict[str, float]) -> str:
    """What was asked for and not kept; empty when all is."""
    if container.level < 2:
        return 'the container got no name space of processes of its own ("allow pid ns" of apptainer.conf)'
    unkept = sif_cgroup.unkept(container.groups, limits)
    return f"limits are not kept: {'; '.join(unkept)}" if unkept else ""


def _find(orders: dict[str, Any]) -> Container | str:
    """The started instance as the program lists it, or why it is not to be found."""
    try:
        done = subprocess.run(
            orders["list"],
            env=orders["env"],
            capture_output=True,
            timeout=LIST_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        for entry in json.loads(done.stdout)["instances"]:
            if entry["instance"] == orders["name"]:
                logs = [entry.get("logErrPath"), entry.get("logOutPath")]
                return Container(int(entry["pid"]), [log for log in logs if log])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return f"the started container cannot be found: {error}"
    return "the container ended at once"


def _run(container: Container, orders: dict[str, Any]) -> dict[str, Any]:
    """Run the command and end everything; what to report."""
    started = time.monotonic()
    child = warden.start({**orders, "command": orders["exec"], "cwd": "/", "env": orders["exec_env"]})
    if isinstance(child, str):
        return {"error": child, "gone": _end(container, None)}
    command = warden.Command(child)
    why, grace = warden.wait(command, started + orders["timeout"], orders["grace"])
    seconds = time.monotonic() - started
    if why:
        _ask_to_leave(container, command, grace)
    own_group = "memory" in orders["limits"]
    # A group that is shared with others may count their misfortune.
    oom = container.oom_kills() > 0 and (own_group or (not why and command.code == 137))
    # Whoever ends the instance (or the monitor) takes the command with it: its status is not its own.
    lost = not why and not container.alive()
    gone = _end(container, command)
    return {
        "exit_code": command.code,
        "seconds": seconds,
        "timed_out": why == "timeout",
        "interrupted": why == "stop",
        "killed_after_sec": round(seconds, 1) if why else None,
        "oom_killed": oom,
        "gone": gone,
        "error": "the container was ended from outside while it ran" if lost and not oom else "",
    }


def _ask_to_leave(container: Container, command: warden.Command, grace: float) -> None:
    """SIGTERM to all in the container, then wait until all have left or the grace period is over."""
    warden.signal_all(signal.SIGTERM, container.members)
    until = time.monotonic() + grace
    while time.monotonic() < until and (command.code is None or container.members()):
        time.sleep(warden.PAUSE)
        command.reap()


def _end(container: Container, command: warden.Command | None) -> bool:
    """End the container: its first process, and with it all; then what is left. False when some will not
    go.
    """
    with suppress(ProcessLookupError, PermissionError):
        if container.alive():
            os.kill(container.pid, signal.SIGKILL)
    reaper = command or warden.Command(0)
    until = time.monotonic() + TIDY_S
    while warden.descendants() and time.monotonic() < until:
        reaper.reap()
        time.sleep(warden.PAUSE / 4)
    return warden.kill_all(command)


def _forget(container: Container | None, orders: dict[str, Any]) -> None:
    """Remove what a container leaves in the file system; the record of its owner last."""
    if container is not None:
        sif_cgroup.remove(container.groups)
    for log in container.logs if container is not None else ():
        Path(log).unlink(missing_ok=True)
    for folder in orders["remove"]:
        shutil.rmtree(folder, ignore_errors=True)
    Path(orders["record"]).unlink(missing_ok=True)


def _name_space_pids(pid: int) -> list[str]:
    """The numbers of a process, from our name space of processes to its own; empty when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return []


if __name__ == "__main__":
    main()
