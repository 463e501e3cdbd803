"""The control groups of a running container: what they limit, and how often memory ran out in them.

Standard library only: the warden of Apptainer containers imports it by path. Version 1 has a tree for each
controller below ``/sys/fs/cgroup``, version 2 has one for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PAGE = 1 << 16
"""The kernel rounds a limit of memory to whole pages, of 64 KiB at most."""


def groups(pid: int, root: Path = ROOT, proc: Path = Path("/proc")) -> dict[str, Path]:
    """Folder of each controller's group that process ``pid`` is in; empty when it cannot be told."""
    found: dict[str, Path] = {}
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else ("",):
            # Version 2 is the whole tree, or hangs below "unified" where both are mounted.
            bases = (root, root / "unified") if controller == "" else (root / controller,)
            for base in bases:
                folder = base / path.lstrip("/")
                if folder.is_dir() and (controller or (folder / "cgroup.procs").exists()):
                    found.setdefault(controller, folder)
                    break
    return found


def oom_kills(folders: Mapping[str, Path]) -> int | None:
    """How many processes of the group the kernel has killed for want of memory; None when unknown."""
    for controller, name in (("memory", "memory.oom_control"), ("", "memory.events")):
        if controller in folders:
            with suppress(OSError, ValueError):
                for line in (folders[controller] / name).read_text(encoding="ascii").splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
    return None


def unkept(folders: Mapping[str, Path], limits: Mapping[str, float]) -> list[str]:
    """Which of ``limits`` (``memory`` in bytes, ``cpus``, ``pids``) the group does not keep, a clause
    each.
    """
    found = []
    for name, wanted in limits.items():
        kept = {"memory": _memory, "cpus": _cpus, "pids": _pids}[name](folders)
        slack = _PAGE if name == "memory" else 0.01 if name == "cpus" else 0
        if kept is None or kept > wanted + slack:
            found.append(f"{name} {wanted:g} was asked for and is {'no limit' if kept is None else kept}")
    return found


def remove(folders: Mapping[str, Path]) -> None:
    """Remove the groups of a container that is gone and was not tidied up after; used ones stay."""
    for folder in {path for path in folders.values() if path.name and path not in (ROOT, ROOT / "unified")}:
        with suppress(OSError):
            folder.rmdir()


def _memory(folders: Mapping[str, Path]) -> float | None:
    return _number(folders, "memory", "memory.limit_in_bytes") or _number(folders, "", "memory.max")


def _pids(folders: Mapping[str, Path]) -> float | None:
    return _number(folders, "pids", "pids.max") or _number(folders, "", "pids.max")


def _cpus(folders: Mapping[str, Path]) -> float | None:
    quota = _number(folders, "cpu", "cpu.cfs_quota_us")
    period = _number(folders, "cpu", "cpu.cfs_period_us")
    if quota is not None and period:
        return quota / period if quota > 0 else None
    with suppress(OSError, ValueError, KeyError):
        share, whole = (folders[""] / "cpu.max").read_text(encoding="ascii").split()
        return int(share) / int(whole)
    return None


def _number(folders: Mapping[str, Path], controller: str, name: str) -> float | None:
    with suppress(OSError, ValueError, KeyError):
        return int((folders[controller] / name).read_text(encoding="ascii"))
    return None
