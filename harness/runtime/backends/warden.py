"""The process between the launcher and an agent on the host: it ends everything the agent started.

It is started by path as a script of its own (standard library only, nothing of ours imported). Orders come as
one JSON line on standard input; the report goes as one JSON line to standard output, which is a pipe to the
launcher. The agent's output goes to the log file whose descriptor the orders name.

How nothing escapes: the warden is a *child subreaper*, so a process whose parent dies becomes the warden's
child wherever its session or group is. When the command ends, the time is up, the launcher says ``stop`` or
the launcher dies (its end of standard input closes), every descendant gets SIGTERM, a grace period, then
SIGKILL until none is left. Should the warden itself be killed, the command dies with it (parent death
signal).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KILL_PATIENCE = 15.0
"""Seconds of SIGKILL after which processes that will not go are reported."""
PAUSE = 0.02
"""Seconds between two looks at processes that are on their way out."""


def main() -> None:
    """Read the orders, run the command, report."""
    orders = take_orders()
    started = time.monotonic()
    child = start(orders)
    report: dict[str, object] = {"exit_code": None, "error": ""}
    if isinstance(child, str):
        report["error"] = child
    else:
        report |= _watch(child, started, orders)
    report["seconds"] = time.monotonic() - started
    tell(report)


def take_orders() -> dict[str, Any]:
    """Become the one whose children's orphans come home to, deaf to signals; then the orders, from standard
    input.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    orders: dict[str, Any] = json.loads(read_line(0))
    return orders


def tell(report: dict[str, object]) -> None:
    """The report, as one line to the launcher; a dead one needs none."""
    try:
        os.write(1, (json.dumps(report) + "\n").encode())
    except BrokenPipeError:
        # The launcher is dead: there is nobody to tell.
        sys.exit(1)


def read_line(descriptor: int) -> bytes:
    """One line of standard input, byte by byte past its end: further bytes are commands for later."""
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = os.read(descriptor, 1)
        if not piece:
            sys.exit(1)
        data += piece
    return bytes(data)


def prctl(option: int, value: int) -> None:
    """The system call, for options of one argument. Raises ``OSError``."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def start(orders: dict[str, Any]) -> int | str:
    """Fork and execute the command. Returns its pid, or what went wrong before it ran."""
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become(orders)
        except BaseException as error:
            os.write(failed_write, f"{error}".encode(errors="replace"))
        finally:
            os._exit(127)
    os.close(failed_write)
    message = b""
    while piece := os.read(failed_read, 65536):
        message += piece
    os.close(failed_read)
    if not message:
        return pid
    os.waitpid(pid, 0)
    return f"the command could not be started: {message.decode(errors='replace')}"


def _become(orders: dict[str, Any]) -> None:
    """In the child: own session, closed standard input, output to the log, then the command."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    log = int(str(orders["log"]))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(str(orders["cwd"]))
    os.umask(0o022)
    command, env = orders["command"], orders["env"]
    assert isinstance(command, list)
    assert isinstance(env, dict)
    os.set_inheritable(log, False)
    os.execvpe(command[0], command, env)


class Command:
    """The command's process; ``code`` is its exit status as a shell shows it, None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def reap(self) -> None:
        """Collect every child that has ended, the command among them or not."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self.pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    self.code = 128 - code if code < 0 else code


def _watch(child: int, started: float, orders: dict[str, Any]) -> dict[str, object]:
    """Wait for the command's end, the deadline, a word or the death of the launcher; then end the rest."""
    command = Command(child)
    why, grace = wait(command, started + float(str(orders["timeout"])), float(str(orders["grace"])))
    report: dict[str, object] = {
        "timed_out": why == "timeout",
        "interrupted": why == "stop",
        "killed_after_sec": time.monotonic() - started if why else None,
    }
    if why:
        _ask_to_leave(command, grace)
    report["gone"] = kill_all(command)
    report["exit_code"] = command.code
    return report


def wait(command: Command, deadline: float, grace: float) -> tuple[str, float]:
    """Why waiting is over (empty: the command ended by itself), and how long the rest may take to leave."""
    bell = ring_on_child_exit()
    while True:
        command.reap()
        if command.code is not None:
            return "", 0.0
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout", grace
        ready = select.select([0, bell], [], [], min(left, 60.0))[0]
        if bell in ready:
            os.read(bell, 4096)
        elif 0 in ready:
            # A byte is the word to stop; the stream's end is the launcher's death, and nobody waits then.
            return "stop", grace if os.read(0, 1) else 0.0


def ring_on_child_exit() -> int:
    """A descriptor that becomes readable whenever a child ends, so that waiting costs nothing."""
    bell, rope = os.pipe()
    os.set_blocking(rope, False)
    signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return bell


def _ask_to_leave(command: Command, grace: float) -> None:
    """SIGTERM to all, then wait until all have left, the grace period is over or the launcher is dead."""
    signal_all(signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and descendants():
        if select.select([0], [], [], PAUSE)[0]:
            if not os.read(0, 1):
                return
            time.sleep(PAUSE)
        command.reap()


def kill_all(command: Command | None) -> bool:
    """SIGKILL until no descendant is left; False when some will not go. ``command``: what must have ended and
    been reaped as well.
    """
    reaper = command or Command(0)
    until = time.monotonic() + KILL_PATIENCE
    while True:
        signal_all(signal.SIGSTOP)  # a tree that cannot run cannot fork faster than it is killed
        signal_all(signal.SIGKILL)
        reaper.reap()
        # The command's status counts as a descendant: it may be on its way out and not to be reaped yet.
        if (command is None or command.code is not None) and not descendants():
            return True
        if time.monotonic() > until:
            return False
        time.sleep(PAUSE / 4)


def signal_all(number: int, who: Callable[[], set[int]] | None = None) -> None:
    """Send a signal to every descendant, or to those that ``who`` finds, again for those that appear
    meanwhile.
    """
    done: set[int] = set()
    while new := (who or descendants)() - done:
        for pid in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        done |= new


def descendants() -> set[int]:
    """Pids of all living processes below this one (zombies that nobody can kill any more are left out)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, parent = text[text.rindex(")") + 2 :].split(maxsplit=2)[:2]
        if state not in "ZX":
            parents.setdefault(int(parent), []).append(int(entry.name))
        else:
            parents.setdefault(int(parent), [])
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found.update(children)
        todo += children
    return found


if __name__ == "__main__":
    main()
