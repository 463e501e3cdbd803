"""Checks of the doctor: directories, clocks and disks of this machine, and SLURM."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from contract.errors import one_line
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, existing, quick, scratch
from harness.runtime.space import GB
from harness.runtime.trees import check_writable

SKEW_WARN_S, SKEW_FAIL_S = 2.0, 60.0
"""By which the clock of a file system may differ: times of files are compared, and people read both."""
FEW_FILES = 10_000
_ASK_S = 30.0


def checks(patient: Patient) -> list[Check]:
    """Of this machine."""
    temp = Path(tempfile.gettempdir())
    found = [
        Check("runs_root", quick(runs_root, patient)),
        Check("clock", quick(clock, patient)),
        Check("disk runs_root", quick(disk, "disk runs_root", patient, patient.runtime.runs)),
        Check("disk temp", quick(disk, "disk temp", patient, temp)),
    ]
    if patient.runtime.backend == "docker":
        found.append(Check("disk engine", quick(engine_disk, patient)))
    launcher = getattr(patient.runtime.file, "launcher", None)
    if getattr(launcher, "engine", "") == "slurm":
        found.append(Check("slurm", quick(slurm, getattr(launcher, "partition", None))))
    return found


def runs_root(patient: Patient) -> Finding:
    """Runs are swapped in by rename and guarded by locks: both must work where they lie."""
    root = patient.runtime.runs
    check_writable(root, "runs_root")
    name, step = "runs_root", "put runs_root on a file system that has it (a local disk, NFS 4)"
    with scratch(patient.runtime) as place:
        old, new = place / "old", place / "new"
        for path in (old, new):
            path.mkdir()
            (path / "content").write_text(path.name, encoding="utf-8")
        try:
            (new / "content").replace(old / "content")
            new.rename(place / "renamed")
        except OSError as error:
            return Finding(name, FAIL, f"{root}: rename does not work: {error.strerror}", step)
        if (old / "content").read_text(encoding="utf-8") != "new" or new.exists():
            return Finding(name, FAIL, f"{root}: a rename did not replace what stood there", step)
        if fault := _lock_fault(place / "lock"):
            return Finding(name, FAIL, f"{root}: {fault}", step)
    text = f"{root} can be written; rename and locks work"
    return Finding(name, OK, text if root.exists() else f"{text} (it will be made)")


def _lock_fault(path: Path) -> str:
    """What is wrong with locks; a second holder must be refused."""
    with path.open("wb") as one, path.open("wb") as two:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"locks (flock) do not work: {error.strerror}"
        try:
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        except OSError as error:
            return f"locks (flock) do not work: {error.strerror}"
    return "a lock (flock) keeps nobody out"


def clock(patient: Patient) -> Finding:
    """Whether the file system of the runs and this machine agree about the time."""
    with scratch(patient.runtime) as place:
        before = time.time()
        (place / "now").write_text("now", encoding="utf-8")
        after = time.time()
        stamp = (place / "now").stat().st_mtime
    # Kernels stamp files with the time of their last tick.
    skew = max(0.0, stamp - after, before - stamp)
    text = f"times of files below {patient.runtime.runs} differ from this machine's clock by {skew:.1f} s"
    if skew <= SKEW_WARN_S:
        return Finding("clock", OK, f"clock and times of files agree within {SKEW_WARN_S:g} s")
    step = "synchronise the clocks of this machine and its file server (chrony, ntpd)"
    return Finding("clock", FAIL if skew > SKEW_FAIL_S else WARN, text, step)


def disk(name: str, patient: Patient, place: Path) -> Finding:
    """Free space against ``[agent] min_free_gb``, and room for more files."""
    floor = patient.runtime.file.agent.min_free_gb
    there = existing(place)
    free, state = shutil.disk_usage(there).free / GB, os.statvfs(there)
    text = f"{free:.1f} GB free for {place}"
    if free < floor:
        return Finding(
            name,
            FAIL,
            f"{text}, less than [agent] min_free_gb = {floor:g}",
            "make room, or lower [agent] min_free_gb",
        )
    if state.f_files and state.f_favail < FEW_FILES:
        return Finding(name, WARN, f"{text}, but room for {state.f_favail} more files only", "delete some")
    return Finding(name, OK, text)


def engine_disk(patient: Patient) -> Finding:
    """Free space where the engine keeps its containers."""
    name = "disk engine"
    places: tuple[Path, ...] = getattr(patient.backend, "storage", tuple)()
    if not places:
        return Finding(name, WARN, "the engine's disk is not on this machine, and was not looked at")
    return disk(name, patient, places[0])


def slurm(partition: str | None) -> Finding:
    """Whether jobs can be handed to SLURM from here."""
    name = "slurm"
    for program in ("sbatch", "scontrol", "sinfo", "squeue", "scancel"):
        if shutil.which(program) is None:
            step = "start this on a machine of the cluster that submits jobs, or load its SLURM module"
            return Finding(name, FAIL, f"{program} is not on PATH", step)
    status, said = _ask("scontrol", "ping")
    if status or "UP" not in said.upper().split("/")[0].replace("(", " "):
        text = said or f"scontrol ping ended with status {status}"
        return Finding(
            name, FAIL, f"the controller does not answer: {text}", "see systemctl status slurmctld"
        )
    words = ["--partition", partition] if partition else []
    status, said = _ask("sinfo", "--noheader", *words, "--format", "%P %a")
    rows = [row.split() for row in said.split(";") if len(row.split()) == 2]
    if status or not rows:
        text = f"there is no partition {partition!r}" if partition else "no partition is listed"
        return Finding(name, FAIL, text, "sinfo lists them; correct [launcher] partition")
    if all(state != "up" for _, state in rows):
        text = f"partition {', '.join(row[0] for row in rows)} is not up"
        return Finding(name, FAIL, text, "scontrol update PartitionName=… State=UP")
    if importlib.util.find_spec("submitit") is None:
        return Finding(name, FAIL, "submitit is not installed", 'pip install "fourdcodebench[slurm]"')
    return Finding(name, OK, f"the controller answers; partition {', '.join(row[0] for row in rows)}")


def _ask(*words: str) -> tuple[int, str]:
    """Status and output of a program, line breaks as ``;``."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ASK_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, one_line(str(error))
    text = done.stdout if done.returncode == 0 else done.stderr or done.stdout
    return done.returncode, ";".join(one_line(line) for line in text.splitlines() if line.strip())[:300]
